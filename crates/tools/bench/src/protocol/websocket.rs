//! WebSocket (RFC 6455): messages that the server echoes, or that it sends to all connections.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_codec::h1::{ClientConnection, HeadLimits, Http1ClientEvent, OutgoingRequest};
use apus_http::Method;
use apus_transport::Transport;
use apus_websocket::codec::{
    ByteString, CloseCode, CodecSettings, Message, WebSocketConnection, WebSocketEvent, accept_key,
};
use bytes::{Bytes, BytesMut};
use tokio::time::Sleep;

use super::http2_tunnel::Http2Tunnel;
use super::{BegunRequest, RECONNECT_AFTER, ReceivedBody, WorkerContext, poll_read, poll_write};
use crate::connect::OpeningFailure;
use crate::pace::BytePace;
use crate::plan::HttpVersion;
use crate::think_time::ThinkPause;
use crate::websocket_mode::WebSocketMode;
use crate::{LoadFailure, PlannedRequest};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// The longest message of a server.
const MAX_MESSAGE: usize = 64 << 20;

/// What the response to the handshake may have.
const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 64 * 1024,
    fields: 1000,
};

/// How often a connection that receives looks whether the load is over, and then whether all has come.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_AT_END_EVERY: Duration = Duration::from_millis(20);

/// The digits of the time at the begin of a message to all connections.
const TIME_DIGITS: usize = 16;

/// A connection of the load, which is opened again when it was closed.
pub(crate) struct WebSocketLoad {
    id: usize,
    context: Rc<WorkerContext>,
    mode: WebSocketMode,
    payload: Bytes,
    session: Option<WebSocketSession>,
    /// Messages of this connection that have not come back.
    in_flight: VecDeque<BegunRequest>,
    /// A message that was due while there was no connection.
    waiting: Option<Instant>,
    /// Messages that came.
    received: u64,
    /// Whether this connection sends no more.
    has_sent_all: bool,
    /// Since when the load is over.
    over_since: Option<Instant>,
    pause: ThinkPause,
    timer: Pin<Box<Sleep>>,
}

struct WebSocketSession {
    stream: MessageStream,
    codec: WebSocketConnection,
    input: BytesMut,
    /// What was just read.
    read: Vec<u8>,
    /// Messages that were sent over this connection.
    begun: u64,
    opened: Instant,
}

/// What carries the frames of WebSocket.
enum MessageStream {
    /// A connection that was switched (RFC 6455).
    Switched {
        transport: Transport,
        receive_pace: BytePace,
        send_pace: BytePace,
    },
    /// A stream of HTTP/2 (RFC 8441).
    Http2(Box<Http2Tunnel>),
}

/// Why a connection is not used any more.
enum SessionEnd {
    /// Nothing is left to do.
    Over,
    /// It was used long enough, and another one replaces it.
    Spent,
    Failed(LoadFailure, String),
}

impl MessageStream {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self {
            Self::Switched {
                transport,
                send_pace,
                ..
            } => poll_write(transport, cx, (bytes, send_pace)),
            Self::Http2(tunnel) => tunnel.poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self {
            Self::Switched { transport, .. } => transport.poll_flush(cx),
            Self::Http2(tunnel) => tunnel.poll_flush(cx),
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, (LoadFailure, String)>> {
        match self {
            Self::Switched {
                transport,
                receive_pace,
                ..
            } => poll_read(transport, cx, (into, receive_pace))
                .map_err(|error| (LoadFailure::of_io(&error), error.to_string())),
            Self::Http2(tunnel) => tunnel.poll_read(cx, into),
        }
    }
}

impl WebSocketSession {
    /// Writes what waits.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), LoadFailure> {
        while !self.codec.output().is_empty() {
            match self.stream.poll_write(cx, self.codec.output()) {
                Poll::Ready(Ok(written)) => self.codec.consume_output(written),
                Poll::Ready(Err(error)) => return Err(LoadFailure::of_io(&error)),
                Poll::Pending => return Ok(()),
            }
        }
        match self.stream.poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(LoadFailure::of_io(&error)),
            _ => Ok(()),
        }
    }
}

impl WebSocketLoad {
    pub(crate) fn new(id: usize, context: Rc<WorkerContext>, mode: WebSocketMode) -> Self {
        let first_look = match mode {
            WebSocketMode::Echo => context.plan.timeout,
            WebSocketMode::Broadcast => LOOK_EVERY,
        };
        let request = context.plan.requests.first();
        Self {
            id,
            mode,
            payload: request.map_or_else(Bytes::new, |request| request.body.clone()),
            context,
            session: None,
            in_flight: VecDeque::new(),
            waiting: None,
            received: 0,
            has_sent_all: false,
            over_since: None,
            pause: ThinkPause::default(),
            timer: Box::pin(tokio::time::sleep(first_look)),
        }
    }

    /// Opens the connection before the load. A failure is found again, and counted, in the load.
    pub(crate) async fn prepare(&mut self) {
        let _ = self.open().await;
    }

    /// Whether this connection sends messages: one in each worker does, if all connections get them.
    fn is_sender(&self) -> bool {
        self.mode == WebSocketMode::Echo || self.id == 0
    }

    /// Sends messages until there are no more, and receives all.
    pub(crate) async fn run(mut self) {
        loop {
            if self.session.is_none() {
                let due = if self.is_sender() {
                    let arrivals = &self.context.arrivals;
                    match self.waiting.take() {
                        Some(due) => Some(due),
                        None => {
                            poll_fn(|cx| self.pause.poll(cx, (self.id, arrivals))).await;
                            poll_fn(|cx| arrivals.poll_next(self.id, cx)).await
                        }
                    }
                } else {
                    (!self.context.arrivals.is_over()).then(Instant::now)
                };
                let Some(due) = due else {
                    return;
                };
                if let Err(failure) = self.open().await {
                    self.waiting = None;
                    let begun = self.context.begin(due, 0);
                    self.context
                        .recorder
                        .borrow_mut()
                        .cause(failure.kind, || failure.cause);
                    self.context.failed(failure.kind, begun, &mut None);
                    tokio::time::sleep(RECONNECT_AFTER).await;
                    continue;
                }
                self.waiting = self.is_sender().then_some(due);
            }
            match poll_fn(|cx| self.poll(cx)).await {
                SessionEnd::Over => return self.close(),
                SessionEnd::Spent => self.close(),
                SessionEnd::Failed(kind, cause) => self.fail(kind, cause),
            }
        }
    }

    /// Says that the connection ends, without waiting for the response.
    fn close(&mut self) {
        if let Some(mut session) = self.session.take() {
            let _ = session.codec.close_with(CloseCode::NORMAL);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let _ = session.poll_write(&mut cx);
            if let MessageStream::Http2(tunnel) = &mut session.stream {
                tunnel.go_away();
                let _ = tunnel.poll_flush(&mut cx);
            }
        }
    }

    async fn open(&mut self) -> Result<(), OpeningFailure> {
        self.context.arrivals.leave(self.id);
        let opened = self.context.connector.open().await?;
        let began = Instant::now();
        let plan = &self.context.plan;
        let timeout = plan.timeout;
        let handshake = async {
            match plan.version {
                HttpVersion::Http2 => self.connect_over_http2(opened.transport).await,
                _ => self.switch(opened.transport).await,
            }
        };
        let (stream, input) = match tokio::time::timeout(timeout, handshake).await {
            Ok(opened) => opened?,
            Err(_) => {
                return Err(OpeningFailure {
                    kind: LoadFailure::ConnectTimeout,
                    cause: format!("no response to the handshake within {timeout:?}"),
                });
            }
        };
        self.context
            .recorder
            .borrow_mut()
            .opened(opened.took + began.elapsed(), opened.resumed);
        let settings = CodecSettings {
            max_frame: MAX_MESSAGE,
            max_message: MAX_MESSAGE,
            compression: None,
        };
        let mut random = fastrand::Rng::new();
        let codec = WebSocketConnection::client(&settings, move || random.u32(..).to_ne_bytes());
        self.session = Some(WebSocketSession {
            stream,
            codec,
            input,
            read: Vec::with_capacity(READ_BYTES),
            begun: 0,
            opened: Instant::now(),
        });
        Ok(())
    }

    /// Opens a stream of HTTP/2 for WebSocket (RFC 8441 section 5).
    async fn connect_over_http2(
        &self,
        transport: Transport,
    ) -> Result<(MessageStream, BytesMut), OpeningFailure> {
        let failed = |(kind, cause): (LoadFailure, String)| OpeningFailure {
            kind,
            cause: format!("the handshake of WebSocket: {cause}"),
        };
        let plan = &self.context.plan;
        let mut tunnel = Http2Tunnel::new(transport, plan);
        if let Some(request) = plan.requests.first() {
            let mut request = PlannedRequest::clone(request);
            request.headers.push(b"sec-websocket-version", b"13");
            let connected = tunnel.connect(&request, "websocket").await;
            let status = connected.map_err(failed)?;
            if !(200..300).contains(&status) {
                let cause = format!("status {status} instead of 200");
                return Err(failed((LoadFailure::WrongStatus, cause)));
            }
        }
        Ok((MessageStream::Http2(Box::new(tunnel)), BytesMut::new()))
    }

    /// Switches a connection of HTTP/1.1.
    async fn switch(
        &self,
        mut transport: Transport,
    ) -> Result<(MessageStream, BytesMut), OpeningFailure> {
        let input = self.handshake(&mut transport).await?;
        let speed = self.context.plan.speed;
        let stream = MessageStream::Switched {
            transport,
            receive_pace: BytePace::new(speed.receive),
            send_pace: BytePace::new(speed.send),
        };
        Ok((stream, input))
    }

    /// Switches to WebSocket (RFC 6455 section 4.1); returns what came behind the response.
    async fn handshake(&self, transport: &mut Transport) -> Result<BytesMut, OpeningFailure> {
        let failed = |kind, cause: &str| OpeningFailure {
            kind,
            cause: format!("the handshake of WebSocket: {cause}"),
        };
        let io = |error: std::io::Error| failed(LoadFailure::of_io(&error), &error.to_string());
        // 16 bytes in base64: the last of 22 digits has two bits.
        let random = &self.context.random;
        let digits = std::iter::repeat_with(|| random.borrow_mut().alphanumeric());
        let key: String = digits.take(21).chain("A==".chars()).collect();
        let mut out = Vec::new();
        let mut codec = ClientConnection::new(LIMITS);
        if let Some(request) = self.context.plan.requests.first() {
            let mut headers = request.headers.clone();
            headers.push(b"sec-websocket-key", key.as_bytes());
            headers.push(b"sec-websocket-version", b"13");
            let head = OutgoingRequest {
                method: &Method::GET,
                target: request.url.path(),
                host: request.host(),
                headers: &headers,
                content_length: Some(0),
                upgrade: Some("websocket"),
                te_trailers: false,
                expects_continue: false,
            };
            codec
                .send_request(head, &mut out)
                .map_err(|error| failed(LoadFailure::Io, &error.to_string()))?;
            codec.send_end(None, &mut out);
        }
        let mut written = 0;
        while let Some(rest) = out.get(written..).filter(|rest| !rest.is_empty()) {
            let output = [IoSlice::new(rest)];
            written += poll_fn(|cx| transport.poll_write(cx, &output))
                .await
                .map_err(io)?;
        }
        poll_fn(|cx| transport.poll_flush(cx)).await.map_err(io)?;
        let mut input = Vec::with_capacity(READ_BYTES);
        loop {
            let read = poll_fn(|cx| transport.poll_read(cx, &mut input))
                .await
                .map_err(io)?;
            if read == 0 {
                return Err(failed(
                    LoadFailure::ClosedBeforeResponse,
                    "the server closed the connection",
                ));
            }
            loop {
                let (consumed, event) = codec
                    .handle_input(&input)
                    .map_err(|error| failed(LoadFailure::of_http1(error), &error.to_string()))?;
                let head = match event {
                    Http1ClientEvent::Response(head) => head,
                    Http1ClientEvent::Informational(..) => {
                        input.drain(..consumed);
                        continue;
                    }
                    _ => {
                        input.drain(..consumed);
                        break;
                    }
                };
                if !codec.is_tunnel() {
                    let cause = format!("status {} instead of 101", head.status.as_u16());
                    return Err(failed(LoadFailure::WrongStatus, &cause));
                }
                let expected = accept_key(key.as_bytes());
                if head.headers.get_str("sec-websocket-accept") != Some(&expected) {
                    let cause = "another Sec-WebSocket-Accept than that of the key";
                    return Err(failed(LoadFailure::Malformed, cause));
                }
                return Ok(BytesMut::from(input.get(consumed..).unwrap_or_default()));
            }
        }
    }

    /// Drives the connection to its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        loop {
            // What came with the handshake, or was just read.
            if let Err((kind, cause)) = self.handle_input() {
                return Poll::Ready(SessionEnd::Failed(kind, cause));
            }
            let is_over = if self.is_sender() {
                self.begin_messages(cx)
            } else {
                self.context.arrivals.is_over()
            };
            let has_all = self.mode == WebSocketMode::Echo || self.has_received_all();
            if is_over && self.in_flight.is_empty() && has_all {
                return Poll::Ready(SessionEnd::Over);
            }
            if self.in_flight.is_empty() && self.is_spent() {
                return Poll::Ready(SessionEnd::Spent);
            }
            let Some(session) = &mut self.session else {
                return Poll::Ready(SessionEnd::Over);
            };
            if let Err(kind) = session.poll_write(cx) {
                return Poll::Ready(SessionEnd::Failed(kind, "the connection failed".to_owned()));
            }
            session.read.clear();
            match session.stream.poll_read(cx, &mut session.read) {
                Poll::Ready(Ok(0)) => {
                    let cause = "the server closed the connection".to_owned();
                    return Poll::Ready(SessionEnd::Failed(
                        LoadFailure::ClosedBeforeResponse,
                        cause,
                    ));
                }
                Poll::Ready(Ok(_)) => session.input.extend_from_slice(&session.read),
                Poll::Ready(Err((kind, cause))) => {
                    return Poll::Ready(SessionEnd::Failed(kind, cause));
                }
                Poll::Pending => match self.poll_timer(cx, is_over) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(end)) => return Poll::Ready(end),
                    Poll::Ready(None) => {}
                },
            }
        }
    }

    /// Whether no further message is to be sent over this connection.
    fn is_spent(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| self.context.plan.is_spent(session.begun, session.opened))
    }

    /// Begins as many messages as may be in flight; returns whether none is left.
    fn begin_messages(&mut self, cx: &mut Context<'_>) -> bool {
        while self.in_flight.len() < self.context.plan.in_flight.get() && !self.is_spent() {
            let arrivals = &self.context.arrivals;
            if self.pause.poll(cx, (self.id, arrivals)).is_pending() {
                return false;
            }
            let due = match self.waiting.take() {
                Some(due) => due,
                None => match arrivals.poll_next(self.id, cx) {
                    Poll::Ready(Some(due)) => due,
                    Poll::Ready(None) => {
                        self.note_sent_all();
                        return true;
                    }
                    Poll::Pending => return false,
                },
            };
            self.send(due);
        }
        false
    }

    fn note_sent_all(&mut self) {
        if self.is_sender() && !self.has_sent_all {
            self.has_sent_all = true;
            let broadcast = &self.context.broadcast;
            broadcast.senders_done.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn send(&mut self, due: Instant) {
        let payload = match self.mode {
            WebSocketMode::Echo => self.payload.clone(),
            WebSocketMode::Broadcast => {
                let broadcast = &self.context.broadcast;
                broadcast.sent.fetch_add(1, Ordering::SeqCst);
                self.context.recorder.borrow_mut().broadcast(due);
                let time = due.saturating_duration_since(broadcast.epoch).as_nanos();
                let mut message = format!("{time:0TIME_DIGITS$x} ").into_bytes();
                message.extend_from_slice(&self.payload);
                message.into()
            }
        };
        let message = match ByteString::try_from(payload.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::Binary(payload),
        };
        if let Some(session) = &mut self.session {
            // A connection that is closed fails when it is read.
            let _ = session.codec.send(message);
            session.begun += 1;
        }
        self.in_flight.push_back(self.context.begin(due, 0));
    }

    fn handle_input(&mut self) -> Result<(), (LoadFailure, String)> {
        loop {
            let Some(session) = &mut self.session else {
                return Ok(());
            };
            match session.codec.handle_input(&mut session.input) {
                None => return Ok(()),
                Some(WebSocketEvent::Message(message)) => self.receive(&message)?,
                Some(WebSocketEvent::Ping(_) | WebSocketEvent::Pong(_)) => {}
                Some(WebSocketEvent::Close(_)) => {
                    let cause = "the server closed the connection".to_owned();
                    return Err((LoadFailure::ClosedBeforeResponse, cause));
                }
                Some(WebSocketEvent::Failed(error)) => {
                    return Err((LoadFailure::Malformed, error.to_string()));
                }
            }
        }
    }

    fn receive(&mut self, message: &Message) -> Result<(), (LoadFailure, String)> {
        let now = Instant::now();
        let bytes = message.as_bytes();
        let begun = match self.mode {
            WebSocketMode::Echo => self.in_flight.pop_front().ok_or_else(|| {
                let cause = "a message that nobody has sent".to_owned();
                (LoadFailure::Malformed, cause)
            })?,
            WebSocketMode::Broadcast => {
                let broadcast = &self.context.broadcast;
                let time = bytes
                    .get(..TIME_DIGITS)
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let Some(time) = time else {
                    // Such as a greeting.
                    return Ok(());
                };
                self.received += 1;
                let due = broadcast.epoch + Duration::from_nanos(time);
                self.in_flight.pop_front_if(|begun| begun.due == due);
                BegunRequest {
                    due,
                    began: due,
                    request: 0,
                }
            }
        };
        let payload = match self.mode {
            WebSocketMode::Echo => Some(bytes),
            WebSocketMode::Broadcast => bytes.get(TIME_DIGITS + 1..),
        };
        let mistake = (payload != Some(&self.payload[..])).then(|| {
            let cause = "the message came back with other bytes".to_owned();
            (LoadFailure::WrongBody, cause)
        });
        let received = ReceivedBody::of_message(bytes.len());
        self.context.record(begun, (&received, now), mistake);
        if self.is_sender() {
            self.context.pause(&mut self.pause, &None);
        }
        Ok(())
    }

    /// Whether nobody sends any more, and all messages came.
    fn has_received_all(&mut self) -> bool {
        let broadcast = &self.context.broadcast;
        let is_sent = broadcast.senders_done.load(Ordering::SeqCst) >= self.context.workers;
        is_sent && self.received >= broadcast.sent.load(Ordering::SeqCst)
    }

    /// Whether something is to be done because of the time; or the end, because it takes too long.
    fn poll_timer(&mut self, cx: &mut Context<'_>, is_over: bool) -> Poll<Option<SessionEnd>> {
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let now = Instant::now();
        let timeout = self.context.plan.timeout;
        if self.mode == WebSocketMode::Broadcast {
            // Messages that do not come are counted in the end.
            self.in_flight
                .pop_front_if(|begun| begun.began + timeout <= now);
            let next = if is_over {
                LOOK_AT_END_EVERY
            } else {
                LOOK_EVERY
            };
            self.timer.as_mut().reset((now + next).into());
            if is_over && *self.over_since.get_or_insert(now) + timeout <= now {
                return Poll::Ready(Some(SessionEnd::Over));
            }
            return Poll::Ready(None);
        }
        let oldest = self.in_flight.front().map_or(now, |begun| begun.began);
        if oldest + timeout <= now {
            self.timer.as_mut().reset((now + timeout).into());
            let cause = "no message came back".to_owned();
            return Poll::Ready(Some(SessionEnd::Failed(LoadFailure::Timeout, cause)));
        }
        self.timer.as_mut().reset((oldest + timeout).into());
        Poll::Ready(None)
    }

    /// Counts the messages in flight as failed, or the connection, and closes it.
    fn fail(&mut self, kind: LoadFailure, cause: String) {
        let mut recorder = self.context.recorder.borrow_mut();
        recorder.cause(kind, || cause);
        if self.mode == WebSocketMode::Broadcast && self.in_flight.is_empty() {
            recorder.failed(kind, 0, Instant::now());
        }
        for begun in self.in_flight.drain(..) {
            recorder.failed(kind, begun.request, begun.due);
        }
        if let Some(due) = self.waiting.take() {
            recorder.failed(kind, 0, due);
        }
        drop(recorder);
        self.session = None;
    }
}

impl Drop for WebSocketLoad {
    fn drop(&mut self) {
        self.note_sent_all();
        let is_open = !self.in_flight.is_empty() || self.waiting.is_some();
        let is_echo = self.mode == WebSocketMode::Echo;
        if is_open && is_echo && !self.context.arrivals.is_interrupted() {
            let cause = "the load was over before the message came back".to_owned();
            self.fail(LoadFailure::Timeout, cause);
        }
    }
}
