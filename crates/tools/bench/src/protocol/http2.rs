//! HTTP/2 (RFC 9113): several requests at once over a connection, each over a stream of its own.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_codec::h2::{ErrorCode, Http2Codec, Http2Config, Http2Event, OutgoingRequest, StreamKey};
use apus_transport::{PollBudget, Transport, yield_to_events};
use tokio::time::Sleep;

use super::streams::{RequestSource, StreamsEnd, StreamsLoad};
use super::{BegunRequest, ReceivedBody, WorkerContext, poll_read, poll_write};
use crate::LoadFailure;
use crate::pace::BytePace;
use crate::plan::LoadPlan;

/// Bytes that are read at once. A frame other than DATA has to fit.
const READ_BYTES: usize = 32 * 1024;

/// What a server may send before it is read.
const RECEIVE_WINDOW: u32 = 16 << 20;

/// Past this number of bytes to write, no further data is added.
const MAX_WRITE: usize = 128 * 1024;

/// How often the codec gets the time.
const ADVANCE_EVERY: Duration = Duration::from_millis(250);

/// A connection of the load, which is opened again when it was closed.
pub(crate) struct Http2Load {
    source: RequestSource,
    connection: Option<Http2LoadConnection>,
    /// By the slot of the stream.
    streams: Vec<Option<OpenStream>>,
    open: usize,
    /// Wakes the task when a request may be too old.
    timer: Pin<Box<Sleep>>,
}

struct Http2LoadConnection {
    transport: Transport,
    codec: Http2Codec,
    input: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    receive_pace: BytePace,
    send_pace: BytePace,
    /// Requests that were begun over this connection.
    begun: u64,
    opened: Instant,
    advanced: Instant,
}

struct OpenStream {
    key: StreamKey,
    begun: BegunRequest,
    received: ReceivedBody,
    /// Bytes of the request's body that were sent.
    sent: usize,
}

impl Http2LoadConnection {
    fn new(transport: Transport, plan: &LoadPlan) -> Self {
        let streams = plan.in_flight.get();
        let window = plan.receive_window.unwrap_or(RECEIVE_WINDOW);
        let mut out = Vec::new();
        let codec = Http2Codec::client(
            Http2Config {
                max_concurrent_streams: u32::try_from(streams).unwrap_or(u32::MAX),
                max_frame_size: 16 * 1024,
                target_bytes: 0,
                head_bytes: 256 * 1024,
                fields: 1000,
                receive_window: window,
                // As with browsers and h2load, no server waits for the window of a stream.
                stream_receive_window: Some(window),
                extended_connect: false,
            },
            &mut out,
        );
        let now = Instant::now();
        Self {
            transport,
            codec,
            input: Vec::with_capacity(READ_BYTES),
            out,
            written: 0,
            receive_pace: BytePace::new(plan.speed.receive),
            send_pace: BytePace::new(plan.speed.send),
            begun: 0,
            opened: now,
            advanced: now,
        }
    }

    /// Writes what waits; returns whether all of it was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, LoadFailure> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match poll_write(&mut self.transport, cx, (rest, &mut self.send_pace)) {
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Err(LoadFailure::of_io(&error)),
                Poll::Pending => return Ok(false),
            }
        }
        self.out.clear();
        self.written = 0;
        match self.transport.poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(LoadFailure::of_io(&error)),
            _ => Ok(true),
        }
    }
}

impl Http2Load {
    pub(crate) fn new(id: usize, context: Rc<WorkerContext>) -> Self {
        let timer = Box::pin(tokio::time::sleep(context.plan.timeout));
        Self {
            source: RequestSource::new(id, context),
            connection: None,
            streams: Vec::new(),
            open: 0,
            timer,
        }
    }

    /// Opens the connection before the load. A failure is found again, and counted, by the first request.
    pub(crate) async fn prepare(&mut self) {
        let _ = self.open().await;
    }

    fn poll_steps(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Poll<StreamsEnd<LoadFailure>>, LoadFailure> {
        // A server that responds at once would keep the thread at this connection.
        let mut budget = PollBudget::default();
        loop {
            if budget.is_spent() {
                yield_to_events(cx);
                return Ok(Poll::Pending);
            }
            budget.rounds += 1;
            let is_over = self.begin_requests(cx);
            let Some(connection) = &mut self.connection else {
                return Ok(Poll::Ready(StreamsEnd::ShutDown));
            };
            let is_spent = self
                .source
                .context
                .plan
                .is_spent(connection.begun, connection.opened);
            if self.open == 0 && (is_over || is_spent || connection.codec.is_shutting_down()) {
                return Ok(Poll::Ready(if is_over {
                    StreamsEnd::Done
                } else {
                    StreamsEnd::ShutDown
                }));
            }
            self.send_bodies()?;
            let Some(connection) = &mut self.connection else {
                return Ok(Poll::Ready(StreamsEnd::ShutDown));
            };
            let is_written = connection.poll_write(cx)?;
            if is_written && connection.codec.is_send_due() {
                continue;
            }
            if connection.input.capacity() - connection.input.len() < READ_BYTES / 2 {
                connection.input.reserve(READ_BYTES);
            }
            let paced = (&mut connection.input, &mut connection.receive_pace);
            match poll_read(&mut connection.transport, cx, paced) {
                Poll::Ready(Ok(0)) if self.open == 0 => {
                    return Ok(Poll::Ready(StreamsEnd::ShutDown));
                }
                Poll::Ready(Ok(0)) => {
                    let has_begun = self
                        .streams
                        .iter()
                        .flatten()
                        .any(|open| open.received.status != 0);
                    return Err(if has_begun {
                        LoadFailure::ClosedInResponse
                    } else {
                        LoadFailure::ClosedBeforeResponse
                    });
                }
                Poll::Ready(Ok(_)) => self.handle_input()?,
                Poll::Ready(Err(error)) => {
                    let kind = LoadFailure::of_io(&error);
                    self.source
                        .context
                        .recorder
                        .borrow_mut()
                        .cause(kind, || error.to_string());
                    return Err(kind);
                }
                Poll::Pending => {
                    if !self.poll_timer(cx) {
                        return Ok(Poll::Pending);
                    }
                }
            }
        }
    }

    /// Begins as many requests as may be in flight; returns whether none is left.
    fn begin_requests(&mut self, cx: &mut Context<'_>) -> bool {
        let most = self.source.context.plan.in_flight.get();
        while self.open < most {
            let Some(connection) = &self.connection else {
                return false;
            };
            if connection.codec.available_streams() == 0 || self.is_spent() {
                return false;
            }
            match self.source.poll_due(cx) {
                Poll::Ready(Some(due)) => self.begin(due),
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
        false
    }

    /// Whether no further request is to be sent over the connection.
    fn is_spent(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|known| self.source.context.plan.is_spent(known.begun, known.opened))
    }

    fn begin(&mut self, due: Instant) {
        let index = self.source.context.choose(&mut self.source.user);
        let request = self.source.context.request(index, &self.source.user);
        let (Some(request), Some(connection)) = (request, &mut self.connection) else {
            return;
        };
        let head = OutgoingRequest {
            method: &request.method,
            scheme: request.url.scheme(),
            authority: Some(request.host()),
            path: request.url.path(),
            protocol: None,
            headers: &request.headers,
            content_length: (!request.body.is_empty()).then_some(request.body.len() as u64),
            te_trailers: self.source.context.plan.expected.grpc,
            expects_continue: false,
        };
        let is_whole = request.body.is_empty();
        let Some(key) = connection
            .codec
            .send_request(head, is_whole, &mut connection.out)
        else {
            self.source.waiting = Some(due);
            return;
        };
        connection.begun += 1;
        if !is_whole {
            connection.codec.want_send(key);
        }
        let slot = key.slot();
        if self.streams.len() <= slot {
            self.streams.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.streams.get_mut(slot) {
            *place = Some(OpenStream {
                key,
                begun: self.source.context.begin(due, index),
                received: ReceivedBody::default(),
                sent: 0,
            });
            self.open += 1;
        }
    }

    /// Sends the bytes of bodies that the windows allow.
    fn send_bodies(&mut self) -> Result<(), LoadFailure> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        while connection.out.len() < MAX_WRITE
            && let Some((key, most)) = connection.codec.next_send()
        {
            let Some(Some(stream)) = self.streams.get_mut(key.slot()) else {
                continue;
            };
            let request = self
                .source
                .context
                .request(stream.begun.request, &self.source.user);
            let rest = request
                .and_then(|request| request.body.get(stream.sent..))
                .unwrap_or_default();
            let part = rest.get(..most.min(rest.len())).unwrap_or_default();
            let is_last = part.len() == rest.len();
            connection
                .codec
                .send_data(key, part.len(), is_last, &mut connection.out)
                .map_err(|_| LoadFailure::Malformed)?;
            connection.out.extend_from_slice(part);
            stream.sent += part.len();
            if !is_last {
                connection.codec.want_send(key);
            }
        }
        Ok(())
    }

    fn handle_input(&mut self) -> Result<(), LoadFailure> {
        let now = Instant::now();
        let mut handled = 0;
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(());
            };
            if now - connection.advanced > ADVANCE_EVERY {
                connection.advanced = now;
                connection.codec.advance(now - connection.opened);
            }
            let input = connection.input.get(handled..).unwrap_or_default();
            let (consumed, event) = connection
                .codec
                .handle_input(input, &mut connection.out)
                .map_err(|error| {
                    let mut recorder = self.source.context.recorder.borrow_mut();
                    recorder.cause(LoadFailure::Malformed, || error.to_string());
                    LoadFailure::Malformed
                })?;
            let start = handled;
            handled += consumed;
            match event {
                Http2Event::Incomplete => {
                    connection.input.drain(..handled);
                    return Ok(());
                }
                Http2Event::Response {
                    stream,
                    status,
                    headers,
                    end,
                } => {
                    if let Some(Some(open)) = self.streams.get_mut(stream.slot()) {
                        open.received.status = status.as_u16();
                        open.received
                            .note_fields(&headers, &self.source.context.plan.expected);
                    }
                    if let Some(user) = &mut self.source.user {
                        user.note_headers(&headers);
                    }
                    if end {
                        self.complete(stream, now);
                    }
                }
                Http2Event::Data { stream, range, end } => {
                    let range = range.start + start..range.end + start;
                    let data = connection.input.get(range).unwrap_or_default();
                    if let Some(Some(open)) = self.streams.get_mut(stream.slot()) {
                        self.source.context.receive(
                            &mut open.received,
                            data,
                            &mut self.source.user,
                        );
                    }
                    let len = data.len();
                    connection.codec.consumed(stream, len, &mut connection.out);
                    if end {
                        self.complete(stream, now);
                    }
                }
                Http2Event::Trailers { stream, trailers } => {
                    if let Some(Some(open)) = self.streams.get_mut(stream.slot()) {
                        open.received
                            .note_fields(&trailers, &self.source.context.plan.expected);
                    }
                    self.complete(stream, now);
                }
                Http2Event::Reset { stream, code } => {
                    self.fail_stream(stream, LoadFailure::StreamReset, || code.to_string());
                }
                Http2Event::Malformed {
                    stream: Some(stream),
                    fault,
                } => {
                    self.fail_stream(stream, LoadFailure::Malformed, || fault.to_string());
                }
                Http2Event::GoAway { last, code } => self.handle_go_away(last, code),
                _ => {}
            }
        }
    }

    fn handle_go_away(&mut self, last: u32, code: ErrorCode) {
        self.source.context.recorder.borrow_mut().counts.go_aways += 1;
        // Requests over later streams were not processed (RFC 9113 section 6.8).
        let later: Vec<StreamKey> = self
            .streams
            .iter()
            .flatten()
            .map(|open| open.key)
            .filter(|key| key.id() > last)
            .collect();
        for key in later {
            self.fail_stream(key, LoadFailure::GoAway, || code.to_string());
        }
    }

    fn take(&mut self, key: StreamKey) -> Option<OpenStream> {
        let place = self.streams.get_mut(key.slot())?;
        let found = place.take_if(|open| open.key == key)?;
        self.open -= 1;
        Some(found)
    }

    fn complete(&mut self, key: StreamKey, now: Instant) {
        let Some(open) = self.take(key) else {
            return;
        };
        if let Some(connection) = &mut self.connection
            && connection.codec.is_open(key)
        {
            // The server did not wait for the whole request.
            connection
                .codec
                .reset(key, ErrorCode::CANCEL, &mut connection.out);
        }
        self.source
            .context
            .complete(open.begun, (&open.received, now), &mut self.source.user);
        self.source.pause();
    }

    fn fail_stream(&mut self, key: StreamKey, kind: LoadFailure, cause: impl FnOnce() -> String) {
        if let Some(connection) = &mut self.connection {
            connection
                .codec
                .reset(key, ErrorCode::CANCEL, &mut connection.out);
        }
        if let Some(open) = self.take(key) {
            self.source.context.recorder.borrow_mut().cause(kind, cause);
            self.source
                .context
                .failed(kind, open.begun, &mut self.source.user);
        }
    }

    /// Fails requests that are too old; returns whether there are any.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_any = false;
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let timeout = self.source.context.plan.timeout;
            let open = self.streams.iter().flatten();
            let late: Vec<StreamKey> = open
                .filter(|open| open.begun.began + timeout <= now)
                .map(|open| open.key)
                .collect();
            is_any |= !late.is_empty();
            for key in late {
                self.fail_stream(key, LoadFailure::Timeout, || {
                    "no complete response".to_owned()
                });
            }
            let oldest = self
                .streams
                .iter()
                .flatten()
                .map(|open| open.begun.began)
                .min();
            self.timer
                .as_mut()
                .reset((oldest.unwrap_or(now) + timeout).into());
        }
        is_any
    }
}

impl StreamsLoad for Http2Load {
    type Failure = LoadFailure;

    fn source(&mut self) -> &mut RequestSource {
        &mut self.source
    }

    fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    async fn open(&mut self) -> Result<(), LoadFailure> {
        self.source.leave();
        let opened = self.source.context.open().await?;
        let plan = &self.source.context.plan;
        self.connection = Some(Http2LoadConnection::new(opened.transport, plan));
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<StreamsEnd<LoadFailure>> {
        match self.poll_steps(cx) {
            Ok(polled) => polled,
            Err(kind) => Poll::Ready(StreamsEnd::Failed(kind)),
        }
    }

    fn fail(&mut self, kind: LoadFailure) {
        for open in self.streams.drain(..).flatten() {
            self.source
                .context
                .failed(kind, open.begun, &mut self.source.user);
        }
        self.source.fail_waiting(kind);
        self.open = 0;
        self.connection = None;
    }

    fn close(&mut self) {
        self.connection = None;
    }
}

impl Drop for Http2Load {
    fn drop(&mut self) {
        let is_any = self.open > 0 || self.source.waiting.is_some();
        if is_any && !self.source.context.arrivals.is_interrupted() {
            self.fail(LoadFailure::Timeout);
        }
    }
}
