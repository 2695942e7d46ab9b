//! One request and its answer: calls the service, feeds it the content as it reads, and sends what
//! it answers.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::h1::{BodyFraming, ContentFraming, Event, RequestHead, ServerConnection};
use apus_http::{
    Answer, Body, BodyError, Completion, Frame, Method, Outcome, Request, Response, StatusCode,
};

use super::content::Content;
use super::{Connection, End};
use crate::clock::TICK;

/// Pipelined bytes that are read ahead while a handler works, to notice a client that goes away.
const READ_AHEAD: usize = 16 * 1024;

/// Encoded bytes that are gathered before a write, while more can be had at once.
const GATHER: usize = 32 * 1024;

/// The content of the current request, as the driver sees it.
pub(super) struct Incoming {
    content: Content,
    expects_continue: bool,
    /// Bytes still to come, where the request tells how many there are.
    left: Option<u64>,
    received: u64,
    /// The tick since which the client is waited for, and the ticks that this took before.
    waiting_since: Option<u32>,
    waited: u32,
    failed: bool,
}

impl Connection<'_> {
    /// Answers one request; tells when it was the last one.
    pub(super) async fn exchange(&mut self, request: RequestHead) -> io::Result<Option<End>> {
        // The time for the head is over, and nobody may take the connection for idle.
        self.place.untimed();
        let (mut incoming, body) = match request.content {
            ContentFraming::None => (None, Body::Empty),
            ContentFraming::Length(length) => {
                let (incoming, body) = Incoming::new(Some(length), request.expects_continue);
                (Some(incoming), body)
            }
            ContentFraming::Chunked => {
                let (incoming, body) = Incoming::new(None, request.expects_continue);
                (Some(incoming), body)
            }
        };
        let connect = request.head.method == Method::CONNECT;
        let request = Request::from_head(request.head, body, Rc::clone(&self.info));
        let service = self.listener.service();
        let answer = catch_unwind(AssertUnwindSafe(|| service.call(request)));
        let response = match answer {
            Ok(Answer::Now(response)) => response,
            Ok(Answer::Later(future)) => self.wait_for(future, &mut incoming).await?,
            Err(_) => self.panicked(),
        };
        drop(service);
        self.respond(response, &mut incoming, connect).await
    }

    fn panicked(&self) -> Response {
        self.worker.counters.panics.add(1);
        tracing::error!(peer = %self.info.peer, "a handler panicked; its client got a 500");
        Response::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "500 Internal Server Error\n",
        )
    }

    /// Waits for a handler while it reads the content, or while nothing else is to do.
    async fn wait_for(
        &mut self,
        mut future: Pin<Box<dyn Future<Output = Response>>>,
        incoming: &mut Option<Incoming>,
    ) -> io::Result<Response> {
        if !self.out.is_empty() {
            // Earlier answers must not wait for this one.
            self.flush().await?;
        }
        self.place.untimed();
        poll_fn(|cx| {
            self.place.register(cx);
            loop {
                match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                    Ok(Poll::Ready(response)) => return Poll::Ready(Ok(response)),
                    Ok(Poll::Pending) => {}
                    Err(_) => return Poll::Ready(Ok(self.panicked())),
                }
                if self.poll_meanwhile(cx, incoming)?.is_pending() {
                    if incoming.is_none() {
                        self.rest();
                    }
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// What the connection does while somebody else works: feeds content to who waits for it, or
    /// else watches whether the client is still there. Ready when there was progress that the
    /// other may have waited for.
    fn poll_meanwhile(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Option<Incoming>,
    ) -> io::Result<Poll<()>> {
        match incoming {
            Some(incoming) if !incoming.failed && !self.codec.request_body_done() => {
                if incoming.content.poll_wanted(cx) {
                    return self.poll_content(cx, incoming);
                }
                // Content that nobody reads yet stays where it is; the client waits.
                self.stop_waiting(incoming);
                Ok(Poll::Pending)
            }
            _ => {
                while self.input.unread().len() < READ_AHEAD {
                    match self.poll_fill(cx) {
                        Poll::Ready(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Err(error),
                        Poll::Pending => break,
                    }
                }
                Ok(Poll::Pending)
            }
        }
    }

    /// Moves one piece of content, or its end, to its reader.
    fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Incoming,
    ) -> io::Result<Poll<()>> {
        if std::mem::take(&mut incoming.expects_continue) {
            self.codec.send_continue(&mut self.out);
        }
        if !self.out.is_empty() && self.poll_flush_out(cx)?.is_pending() {
            return Ok(Poll::Pending);
        }
        loop {
            match self.codec.handle_input(self.input.unread()) {
                Ok((consumed, Event::Data(part))) => {
                    let bytes = self.input.take(part, consumed);
                    incoming.count(bytes.len());
                    incoming.content.push(bytes, cx);
                    self.stop_waiting(incoming);
                    return Ok(Poll::Ready(()));
                }
                Ok((consumed, Event::End(trailers))) => {
                    self.input.consume(consumed);
                    incoming.content.end(Ok(trailers), cx);
                    self.stop_waiting(incoming);
                    return Ok(Poll::Ready(()));
                }
                Ok((consumed, Event::Incomplete | Event::Request(_))) => {
                    self.input.consume(consumed);
                }
                Err(error) => {
                    self.worker.counters.bad_requests.add(1);
                    tracing::debug!(peer = %self.info.peer, %error, "refused a request's content");
                    self.fail(incoming, BodyError::Malformed, cx);
                    return Ok(Poll::Ready(()));
                }
            }
            if self.place.expired() || self.is_too_slow(incoming) {
                self.worker.counters.timeouts.add(1);
                tracing::debug!(peer = %self.info.peer, "a request's content came too slowly");
                self.place.reprieve();
                self.fail(incoming, BodyError::TimedOut, cx);
                return Ok(Poll::Ready(()));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.fail(incoming, BodyError::Disconnected, cx);
                    return Ok(Poll::Ready(()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    if incoming.waiting_since.is_none() {
                        incoming.waiting_since = Some(self.worker.clock.ticks());
                        self.input.rest(&self.worker.buffers);
                        self.place
                            .busy(&self.worker.clock, self.limits.body_timeout);
                    }
                    return Ok(Poll::Pending);
                }
            }
        }
    }

    fn stop_waiting(&self, incoming: &mut Incoming) {
        if let Some(since) = incoming.waiting_since.take() {
            let waited = self.worker.clock.ticks().saturating_sub(since);
            incoming.waited = incoming.waited.saturating_add(waited);
            self.place.untimed();
        }
    }

    /// Whether the content came slower than allowed, over all the time that it was waited for.
    fn is_too_slow(&self, incoming: &Incoming) -> bool {
        let waited = TICK.saturating_mul(incoming.waited);
        waited > self.limits.body_timeout
            && incoming.received / waited.as_secs().max(1) < self.limits.body_rate
    }

    fn fail(&mut self, incoming: &mut Incoming, error: BodyError, cx: &Context<'_>) {
        incoming.failed = true;
        incoming.content.end(Err(error), cx);
        self.stop_waiting(incoming);
        self.codec.close();
    }

    /// Sends an answer; tells when it was the last one.
    async fn respond(
        &mut self,
        mut response: Response,
        incoming: &mut Option<Incoming>,
        connect: bool,
    ) -> io::Result<Option<End>> {
        let limit = self.limits.requests_per_connection;
        if self.codec.keeps_alive() && (self.is_ending() || (limit > 0 && self.requests >= limit)) {
            // The client does not know yet, and may be sending its next request.
            self.closes_first = true;
            self.codec.close();
        }
        let tunnel = response.take_tunnel();
        if let Some(content) = incoming
            && !self.codec.request_body_done()
        {
            if tunnel.is_some() {
                // What the tunnel reads starts behind the content (RFC 9110 section 7.8).
                Box::pin(self.drain(incoming)).await?;
                if !self.codec.request_body_done() {
                    self.codec.close();
                    return Ok(Some(End::Linger));
                }
            } else if !content.content.is_abandoned() {
                // The answer still reads it, as when it sends it back.
                if std::mem::take(&mut content.expects_continue) {
                    self.codec.send_continue(&mut self.out);
                }
            } else if content
                .left
                .is_some_and(|left| left > self.limits.drain_bytes)
            {
                self.codec.close();
            }
        }
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS && tunnel.is_none() {
            tracing::error!("a service answered 101 and took no connection over; sent a 500");
            response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
        } else if connect && status.is_success() && tunnel.is_none() {
            tracing::error!("a service accepted CONNECT and took no connection over; sent a 500");
            response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let body = response.take_body();
        let (framing, head_bytes) =
            self.encode_head(response.status(), response.headers(), body.len());
        self.framing_bytes = 0;
        let body_bytes = match framing {
            BodyFraming::None => {
                self.codec.send_end(None, &mut self.out);
                Ok(0)
            }
            framing => self.send_body(body, framing, incoming).await,
        };
        let outcome = match &body_bytes {
            Ok(_) => Outcome::Complete,
            Err(Broken::Source { .. }) => Outcome::SourceFailed,
            Err(Broken::Client { .. }) => Outcome::ClientGone,
        };
        if response.is_observed() {
            let sent = match &body_bytes {
                Ok(sent) | Err(Broken::Source { sent } | Broken::Client { sent, .. }) => *sent,
            };
            let completion = Completion {
                status: response.status(),
                body_bytes: sent,
                bytes: head_bytes + self.framing_bytes + sent,
                duration: Duration::ZERO,
                outcome,
            };
            self.note_written(response.take_observers(), completion);
        }
        match body_bytes {
            Ok(_) => {}
            Err(Broken::Source { .. }) => {
                self.worker.counters.broken_responses.add(1);
                // Cut off without an end, so that the client can tell; what was sent may arrive.
                let _ = self.flush().await;
                if framing == BodyFraming::UntilClose {
                    // An end in order would be the end of the content.
                    self.transport.reset_when_dropped();
                }
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Err(Broken::Client { error, .. }) => return Err(error),
        }
        if self.codec.is_tunnel() {
            self.flush().await?;
            return Ok(tunnel.map(End::Tunnel));
        }
        if !self.codec.request_body_done() && self.codec.keeps_alive() {
            Box::pin(self.drain(incoming)).await?;
        }
        if !self.codec.keeps_alive() {
            self.flush().await?;
            let whole =
                self.codec.request_body_done() && self.input.is_empty() && !self.closes_first;
            return Ok(Some(if whole { End::Close } else { End::Linger }));
        }
        if self.out.len() >= GATHER {
            self.flush().await?;
        }
        Ok(None)
    }

    /// Sends content; gives its length.
    async fn send_body(
        &mut self,
        body: Body,
        framing: BodyFraming,
        incoming: &mut Option<Incoming>,
    ) -> Result<u64, Broken> {
        match body {
            Body::Empty => {
                self.codec.send_end(None, &mut self.out);
                Ok(0)
            }
            Body::Bytes(bytes) => {
                self.send_bytes(&bytes)
                    .await
                    .map_err(|error| Broken::Client { error, sent: 0 })?;
                self.codec.send_end(None, &mut self.out);
                Ok(bytes.len() as u64)
            }
            Body::File(range) => {
                Box::pin(self.send_file(&range)).await?;
                self.codec.send_end(None, &mut self.out);
                Ok(range.len)
            }
            Body::Stream(_) => Box::pin(self.send_stream(body, framing, incoming)).await,
        }
    }

    async fn send_stream(
        &mut self,
        mut body: Body,
        framing: BodyFraming,
        incoming: &mut Option<Incoming>,
    ) -> Result<u64, Broken> {
        let mut sent = 0;
        let length = match framing {
            BodyFraming::Length(length) => Some(length),
            _ => None,
        };
        let mut trailers = None;
        while let Some(frame) = self.next_frame(&mut body, incoming).await {
            let frame = frame.map_err(|error| Broken::Client { error, sent })?;
            let len = match &frame {
                Ok(Frame::Data(bytes)) => bytes.len() as u64,
                Ok(Frame::File(range)) => range.len,
                Ok(Frame::Trailers(_)) => 0,
                Err(error) => {
                    tracing::warn!(%error, "the content of a response broke off");
                    return Err(Broken::Source { sent });
                }
            };
            if length.is_some_and(|length| sent + len > length) {
                tracing::error!("the content of a response is longer than it said");
                return Err(Broken::Source { sent });
            }
            match frame {
                Ok(Frame::Data(bytes)) => {
                    self.encode_framing(|codec, out| codec.send_chunk_start(bytes.len(), out));
                    let result = self.send_bytes(&bytes).await;
                    result.map_err(|error| Broken::Client { error, sent })?;
                    self.encode_framing(ServerConnection::send_chunk_end);
                    if self.out.len() >= GATHER {
                        let result = self.flush().await;
                        result.map_err(|error| Broken::Client { error, sent })?;
                    }
                }
                Ok(Frame::File(range)) => {
                    let len = usize::try_from(range.len).unwrap_or(usize::MAX);
                    self.encode_framing(|codec, out| codec.send_chunk_start(len, out));
                    self.send_file(&range)
                        .await
                        .map_err(|broken| broken.after(sent))?;
                    self.encode_framing(ServerConnection::send_chunk_end);
                }
                Ok(Frame::Trailers(section)) => trailers = Some(section),
                Err(_) => {}
            }
            sent += len;
        }
        if length.is_some_and(|length| sent < length) {
            tracing::error!("the content of a response is shorter than it said");
            return Err(Broken::Source { sent });
        }
        self.encode_framing(|codec, out| codec.send_end(trailers.as_ref(), out));
        Ok(sent)
    }

    /// Encodes what stands around data, and counts it.
    fn encode_framing(&mut self, encode: impl FnOnce(&mut ServerConnection, &mut Vec<u8>)) {
        let before = self.out.len();
        encode(&mut self.codec, &mut self.out);
        self.framing_bytes += (self.out.len() - before) as u64;
    }

    /// The next frame of a response. What was encoded leaves before it is waited for.
    async fn next_frame(
        &mut self,
        body: &mut Body,
        incoming: &mut Option<Incoming>,
    ) -> Option<io::Result<Result<Frame, BodyError>>> {
        let mut flushed = self.out.is_empty();
        let frame = poll_fn(|cx| {
            self.place.register(cx);
            loop {
                let polled = catch_unwind(AssertUnwindSafe(|| body.poll_frame(cx)));
                match polled {
                    Ok(Poll::Ready(frame)) => return Poll::Ready(Ok(frame)),
                    Ok(Poll::Pending) => {}
                    Err(_) => {
                        self.panicked();
                        let error = BodyError::Source("its source panicked".into());
                        return Poll::Ready(Ok(Some(Err(error))));
                    }
                }
                if !flushed {
                    if self.place.expired() {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    ready!(self.poll_flush_out(cx))?;
                    flushed = true;
                    self.place.untimed();
                    self.rest();
                }
                if self.poll_meanwhile(cx, incoming)?.is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
        match frame {
            Ok(frame) => frame.map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    /// Reads and throws away the rest of the content, if it is little, so that the connection can
    /// go on.
    async fn drain(&mut self, incoming: &mut Option<Incoming>) -> io::Result<()> {
        if let Some(incoming) = incoming
            && std::mem::take(&mut incoming.expects_continue)
        {
            self.codec.send_continue(&mut self.out);
        }
        self.flush().await?;
        let mut left = self.limits.drain_bytes;
        self.place
            .busy(&self.worker.clock, self.limits.body_timeout);
        loop {
            match self.codec.handle_input(self.input.unread()) {
                Ok((consumed, event)) => {
                    self.input.consume(consumed);
                    left = match left.checked_sub(consumed as u64) {
                        Some(left) => left,
                        None => {
                            self.codec.close();
                            break;
                        }
                    };
                    if matches!(event, Event::End(_)) || self.codec.request_body_done() {
                        break;
                    }
                    if matches!(event, Event::Incomplete) && self.read_more(false).await? == 0 {
                        self.codec.close();
                        break;
                    }
                }
                Err(_) => {
                    self.worker.counters.bad_requests.add(1);
                    self.codec.close();
                    break;
                }
            }
        }
        *incoming = None;
        Ok(())
    }
}

impl Incoming {
    fn new(length: Option<u64>, expects_continue: bool) -> (Self, Body) {
        let (content, stream) = Content::new(length);
        let incoming = Self {
            content,
            expects_continue,
            left: length,
            received: 0,
            waiting_since: None,
            waited: 0,
            failed: false,
        };
        (incoming, Body::stream(stream))
    }

    fn count(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
        }
    }
}

/// Why an answer is not whole.
pub(super) enum Broken {
    /// Its source failed after so many bytes.
    Source { sent: u64 },
    /// The client is gone, or too slow.
    Client { error: io::Error, sent: u64 },
}

impl Broken {
    /// The same where so many bytes had been sent before.
    fn after(self, before: u64) -> Self {
        match self {
            Self::Source { sent } => Self::Source {
                sent: sent + before,
            },
            Self::Client { error, sent } => Self::Client {
                error,
                sent: sent + before,
            },
        }
    }
}
