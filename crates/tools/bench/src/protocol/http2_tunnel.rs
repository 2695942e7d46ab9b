//! A stream of HTTP/2 as a connection of bytes: the extended CONNECT (RFC 8441), over which WebSocket runs.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_codec::h2::{ErrorCode, Http2Codec, Http2Config, Http2Event, OutgoingRequest, StreamKey};
use apus_http::Method;
use apus_transport::Transport;

use super::{poll_read, poll_write};
use crate::pace::BytePace;
use crate::plan::LoadPlan;
use crate::{LoadFailure, PlannedRequest};

/// Bytes that are read at once. A frame other than DATA has to fit.
const READ_BYTES: usize = 32 * 1024;

/// What a server may send before it is read.
const RECEIVE_WINDOW: u32 = 1 << 20;

/// The most bytes that wait for the windows of the server.
const MAX_UNSENT: usize = 256 * 1024;

/// A connection of HTTP/2 with one stream, which is a tunnel.
pub(super) struct Http2Tunnel {
    transport: Transport,
    codec: Http2Codec,
    stream: Option<StreamKey>,
    /// The status of the response, once it was received.
    status: Option<u16>,
    input: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    /// Data that no frame was made of.
    unsent: Vec<u8>,
    /// Data that was received and not read.
    received: Vec<u8>,
    /// Why nothing more will be received.
    end: Option<(LoadFailure, String)>,
    receive_pace: BytePace,
    send_pace: BytePace,
    opened: Instant,
}

impl Http2Tunnel {
    pub(super) fn new(transport: Transport, plan: &LoadPlan) -> Self {
        let mut out = Vec::new();
        let codec = Http2Codec::client(
            Http2Config {
                max_concurrent_streams: 1,
                max_frame_size: 16 * 1024,
                target_bytes: 0,
                head_bytes: 256 * 1024,
                fields: 1000,
                receive_window: plan.receive_window.unwrap_or(RECEIVE_WINDOW),
                stream_receive_window: None,
                extended_connect: false,
            },
            &mut out,
        );
        Self {
            transport,
            codec,
            stream: None,
            status: None,
            input: Vec::with_capacity(READ_BYTES),
            out,
            written: 0,
            unsent: Vec::new(),
            received: Vec::new(),
            end: None,
            receive_pace: BytePace::new(plan.speed.receive),
            send_pace: BytePace::new(plan.speed.send),
            opened: Instant::now(),
        }
    }

    /// Opens the tunnel for a protocol; returns the status of the response.
    pub(super) async fn connect(
        &mut self,
        request: &PlannedRequest,
        protocol: &str,
    ) -> Result<u16, (LoadFailure, String)> {
        poll_fn(|cx| self.poll_until(cx, |tunnel| tunnel.codec.has_peer_settings())).await?;
        if !self.codec.allows_extended_connect() {
            let cause = "the server does not offer the extended CONNECT of RFC 8441".to_owned();
            return Err((LoadFailure::Malformed, cause));
        }
        let head = OutgoingRequest {
            method: &Method::CONNECT,
            scheme: request.url.scheme(),
            authority: Some(request.host()),
            path: request.url.path(),
            protocol: Some(protocol),
            headers: &request.headers,
            content_length: None,
            te_trailers: false,
            expects_continue: false,
        };
        self.stream = self.codec.send_request(head, false, &mut self.out);
        if self.stream.is_none() {
            let cause = "the server allows no stream".to_owned();
            return Err((LoadFailure::GoAway, cause));
        }
        poll_fn(|cx| self.poll_until(cx, |tunnel| tunnel.status.is_some())).await?;
        Ok(self.status.unwrap_or(0))
    }

    /// Drives the connection until something is true.
    fn poll_until(
        &mut self,
        cx: &mut Context<'_>,
        is_reached: impl Fn(&Self) -> bool,
    ) -> Poll<Result<(), (LoadFailure, String)>> {
        loop {
            if is_reached(self) {
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = &self.end {
                return Poll::Ready(Err(end.clone()));
            }
            if self.drive(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes bytes to send, if not too many wait already.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.unsent.len() >= MAX_UNSENT {
            self.write(cx);
            if self.unsent.len() >= MAX_UNSENT {
                return Poll::Pending;
            }
        }
        if self.end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.unsent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Sends the part of what waits that can be sent now.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx);
        Poll::Ready(Ok(()))
    }

    /// Reads data of the tunnel: 0 bytes at its end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, (LoadFailure, String)>> {
        loop {
            if !self.received.is_empty() {
                let bytes = self.received.len();
                into.append(&mut self.received);
                return Poll::Ready(Ok(bytes));
            }
            match self.end.take() {
                Some((LoadFailure::ClosedBeforeResponse, _)) => return Poll::Ready(Ok(0)),
                Some(end) => return Poll::Ready(Err(end)),
                None => {}
            }
            if self.drive(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Writes, and reads once.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.write(cx);
        if self.input.capacity() - self.input.len() < READ_BYTES / 2 {
            self.input.reserve(READ_BYTES);
        }
        let paced = (&mut self.input, &mut self.receive_pace);
        match poll_read(&mut self.transport, cx, paced) {
            Poll::Ready(Ok(0)) => self.fail(
                LoadFailure::ClosedBeforeResponse,
                "the server closed the connection".to_owned(),
            ),
            Poll::Ready(Ok(_)) => self.handle_input(),
            Poll::Ready(Err(error)) => self.fail(LoadFailure::of_io(&error), error.to_string()),
            Poll::Pending => return Poll::Pending,
        }
        // Window updates and acknowledgements.
        self.write(cx);
        Poll::Ready(())
    }

    fn fail(&mut self, kind: LoadFailure, cause: String) {
        self.end.get_or_insert((kind, cause));
    }

    /// Makes frames of the data, and writes them.
    fn write(&mut self, cx: &mut Context<'_>) {
        loop {
            if let Some(stream) = self.stream
                && !self.unsent.is_empty()
                && self.status.is_some()
            {
                self.codec.want_send(stream);
            }
            while let Some((stream, most)) = self.codec.next_send() {
                let len = most.min(self.unsent.len());
                if self
                    .codec
                    .send_data(stream, len, false, &mut self.out)
                    .is_err()
                {
                    let cause = "the windows of the server are too small".to_owned();
                    self.fail(LoadFailure::Malformed, cause);
                    return;
                }
                self.out.extend(self.unsent.drain(..len));
                if !self.unsent.is_empty() {
                    self.codec.want_send(stream);
                }
            }
            let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) else {
                self.out.clear();
                self.written = 0;
                // An error is found by the next read.
                let _ = self.transport.poll_flush(cx);
                return;
            };
            match poll_write(&mut self.transport, cx, (rest, &mut self.send_pace)) {
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => {
                    self.fail(LoadFailure::of_io(&error), error.to_string());
                    return;
                }
                Poll::Pending => return,
            }
        }
    }

    fn handle_input(&mut self) {
        self.codec.advance(self.opened.elapsed());
        let mut handled = 0;
        loop {
            let input = self.input.get(handled..).unwrap_or_default();
            let (consumed, event) = match self.codec.handle_input(input, &mut self.out) {
                Ok(handled) => handled,
                Err(error) => return self.fail(LoadFailure::Malformed, error.to_string()),
            };
            let start = handled;
            handled += consumed;
            match event {
                Http2Event::Incomplete => {
                    self.input.drain(..handled);
                    return;
                }
                Http2Event::Response { status, end, .. } => {
                    self.status = Some(status.as_u16());
                    if end {
                        self.end_of_stream();
                    }
                }
                Http2Event::Data { stream, range, end } => {
                    let range = range.start + start..range.end + start;
                    let data = self.input.get(range).unwrap_or_default();
                    self.received.extend_from_slice(data);
                    let len = data.len();
                    self.codec.consumed(stream, len, &mut self.out);
                    if end {
                        self.end_of_stream();
                    }
                }
                Http2Event::Trailers { .. } => self.end_of_stream(),
                Http2Event::Reset { code, .. } => {
                    self.fail(LoadFailure::StreamReset, code.to_string());
                }
                Http2Event::Malformed { fault, .. } => {
                    self.fail(LoadFailure::Malformed, fault.to_string());
                }
                _ => {}
            }
        }
    }

    fn end_of_stream(&mut self) {
        let cause = "the server closed the stream".to_owned();
        self.fail(LoadFailure::ClosedBeforeResponse, cause);
    }

    /// Says that the connection ends.
    pub(super) fn go_away(&mut self) {
        self.codec.go_away(ErrorCode::NO_ERROR, &mut self.out);
    }
}
