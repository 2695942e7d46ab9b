//! HTTP/3 (RFC 9114): several requests at once over a connection of QUIC, each over a stream of its own.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_h3::{
    H3Config, H3Connection, H3Error, H3ErrorCode, H3Event, LocalStream, OutgoingRequest,
    RequestError, StreamAction, StreamKey,
};
use apus_h3_quic::{number_of, stream_id};
use apus_quic::{
    ConnectError, Dir, QuicClientTls, QuicCloseReason, QuicConnection, QuicEndpoint, QuicEvent,
    QuicKeys, QuicSettings, QuicTlsError, QuicWorkers, Steering, StreamError, StreamEvent,
    StreamId, StreamRead,
};
use bytes::{Buf, Bytes};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::streams::{RequestSource, StreamsEnd, StreamsLoad};
use super::{BegunRequest, ReceivedBody, WorkerContext};
use crate::LoadFailure;
use crate::connect::OpeningFailure;
use crate::pace::BytePace;
use crate::plan::LoadPlan;
use crate::tls::ConnectionTls;

/// What a server may send over a connection, and over one stream of it, before it is read. Where this end is the bottleneck,
/// what was sent waits in its sockets: the larger the window, the longer a new connection takes to get its share.
const RECEIVE_WINDOW: u32 = 1 << 20;

/// The same of a slow client, so that the server notices that it is slow.
const SLOW_RECEIVE_WINDOW: u32 = 64 << 10;

/// The sockets of a worker. Further connections share them.
const MAX_SOCKETS: usize = 64;

/// A connection without packets for this time ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// How often the codec gets the time.
const ADVANCE_EVERY: Duration = Duration::from_millis(250);

/// How long the last packets, which close connections, may take to be sent.
const CLOSING: Duration = Duration::from_millis(20);

/// The errors of QUIC that are alerts of TLS (RFC 9001 section 4.8).
const ALERTS: std::ops::RangeInclusive<u64> = 0x100..=0x1ff;

/// The sockets of a worker, and what its connections need to be opened.
pub(crate) struct QuicSockets {
    endpoints: Vec<QuicEndpoint>,
    tasks: Vec<JoinHandle<()>>,
    tls: ConnectionTls,
    server: SocketAddr,
}

impl QuicSockets {
    /// Opens sockets for this number of connections.
    pub(crate) fn open(
        connections: usize,
        server: SocketAddr,
        tls: ConnectionTls,
        plan: &LoadPlan,
    ) -> io::Result<Self> {
        let mut sockets = Self {
            endpoints: Vec::new(),
            tasks: Vec::new(),
            tls,
            server,
        };
        for _ in 0..connections.clamp(1, MAX_SOCKETS) {
            let window = match plan.speed.receive {
                Some(_) => SLOW_RECEIVE_WINDOW,
                None => RECEIVE_WINDOW,
            };
            sockets.add(plan.receive_window.unwrap_or(window))?;
        }
        Ok(sockets)
    }

    fn add(&mut self, window: u32) -> io::Result<()> {
        let keys = QuicKeys::generate().map_err(io::Error::other)?;
        let own: SocketAddr = match self.server {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let settings = QuicSettings {
            receive_window: window,
            stream_receive_window: window,
            max_idle_timeout: IDLE_TIMEOUT,
            // A server opens no bidirectional streams (RFC 9114 section 6.1).
            max_bidirectional_streams: 0,
            ..QuicSettings::default()
        };
        let socket = QuicWorkers::new(keys, Steering::default()).bind_client(own)?;
        let (endpoint, task) = QuicEndpoint::new(socket, settings, None)?;
        self.endpoints.push(endpoint);
        self.tasks.push(tokio::task::spawn_local(task));
        Ok(())
    }

    /// Waits a moment until connections that were closed have told their servers.
    pub(crate) async fn close(&self) {
        for endpoint in &self.endpoints {
            endpoint.close_all(H3ErrorCode::NO_ERROR.0, &Bytes::new());
            endpoint.stop();
        }
        let all_ended = async {
            while !self.tasks.iter().all(JoinHandle::is_finished) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // The server learns of the others by its idle timeout.
        let _ = tokio::time::timeout(CLOSING, all_ended).await;
    }
}

/// A connection of the load, which is opened again when it was closed.
pub(crate) struct Http3Load {
    id: usize,
    source: RequestSource,
    sockets: Rc<QuicSockets>,
    tls: Option<QuicClientTls>,
    connection: Option<Http3LoadConnection>,
    /// Wakes the task when a request may be too old.
    timer: Pin<Box<Sleep>>,
}

struct Http3LoadConnection {
    quic: QuicConnection,
    codec: H3Connection,
    local: Vec<(LocalStream, StreamId)>,
    /// In the order of their streams.
    requests: VecDeque<OpenRequest>,
    /// Requests that were begun over this connection.
    begun: u64,
    out: Vec<u8>,
    /// Data of a stream while it is read.
    chunks: Vec<Bytes>,
    receive_pace: BytePace,
    send_pace: BytePace,
    /// Streams over which something came that a slow client has not read.
    readable: VecDeque<StreamId>,
    is_going_away: bool,
    opened: Instant,
    advanced: Instant,
}

struct OpenRequest {
    key: StreamKey,
    begun: BegunRequest,
    received: ReceivedBody,
    /// What was not written yet: the head with the begin of the frame of the body, and the body.
    unsent: [Bytes; 2],
}

impl OpenRequest {
    fn is_sent(&self) -> bool {
        self.unsent.iter().all(Bytes::is_empty)
    }
}

/// What a connection fails of.
pub(crate) enum Http3LoadFailure {
    /// It was closed.
    Closed(LoadFailure, String),
    /// The server broke the protocol.
    Malformed(H3Error),
}

/// Why no connection of QUIC can be opened.
#[derive(Debug)]
enum QuicOpeningError {
    Tls(QuicTlsError),
    /// The worker has no socket.
    NoSocket,
    Connect(ConnectError),
}

impl fmt::Display for QuicOpeningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::NoSocket => f.write_str("there is no socket"),
            Self::Connect(error) => error.fmt(f),
        }
    }
}

impl Http3LoadConnection {
    fn new(quic: QuicConnection, plan: &LoadPlan) -> Self {
        let streams = plan.in_flight.get();
        let now = Instant::now();
        Self {
            quic,
            codec: H3Connection::client(H3Config {
                max_concurrent_streams: u32::try_from(streams).unwrap_or(u32::MAX),
                target_bytes: 0,
                head_bytes: 256 * 1024,
                fields: 1000,
                extended_connect: false,
                decoder_table_bytes: 4096,
                // No field section ever waits for another stream.
                blocked_streams: 0,
                encoder_table_bytes: 4096,
            }),
            local: Vec::new(),
            requests: VecDeque::new(),
            begun: 0,
            out: Vec::new(),
            chunks: Vec::new(),
            receive_pace: BytePace::new(plan.speed.receive),
            send_pace: BytePace::new(plan.speed.send),
            readable: VecDeque::new(),
            is_going_away: false,
            opened: now,
            advanced: now,
        }
    }

    fn request(&mut self, number: u64) -> Option<&mut OpenRequest> {
        let at = self.position(number)?;
        self.requests.get_mut(at)
    }

    fn take(&mut self, number: u64) -> Option<OpenRequest> {
        let at = self.position(number)?;
        self.requests.remove(at)
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.requests
            .binary_search_by_key(&number, |open| open.key.id())
            .ok()
    }

    /// Sends what the codec has on its own streams, and does what it requests.
    fn flush(&mut self) {
        while let Some(kind) = LocalStream::ALL.get(self.local.len()) {
            let Some(id) = self.quic.open(Dir::Uni) else {
                break;
            };
            self.local.push((*kind, id));
        }
        for (kind, id) in &self.local {
            let output = self.codec.output(*kind);
            if output.is_empty() {
                continue;
            }
            let mut chunk = [Bytes::copy_from_slice(output)];
            if let Ok(written) = self.quic.write(*id, &mut chunk) {
                output.drain(..written);
            }
        }
        while let Some(action) = self.codec.next_action() {
            match action {
                StreamAction::Reset { id, code } => {
                    let _ = self.quic.reset(stream_id(id), code.0);
                }
                StreamAction::StopSending { id, code } => {
                    let _ = self.quic.stop_sending(stream_id(id), code.0);
                }
                // None is ever blocked.
                StreamAction::Resume { .. } => {}
            }
        }
    }

    /// Writes what is left of a request, unless that is done at a pace.
    fn write(&mut self, id: StreamId) {
        if self.send_pace.is_limited() {
            return;
        }
        let Some(at) = self.position(number_of(id)) else {
            return;
        };
        let Some(open) = self.requests.get_mut(at).filter(|open| !open.is_sent()) else {
            return;
        };
        if self.quic.write(id, &mut open.unsent).is_err() {
            // The server needs no more of it; its response may follow.
            open.unsent = Default::default();
            return;
        }
        if open.is_sent() {
            let _ = self.quic.finish(id);
        }
    }

    /// Reads so much of what came over a stream into `chunks`; returns whether that was all of it, or the code with which it was
    /// reset.
    fn read(&mut self, id: StreamId, most: usize) -> Result<StreamRead, StreamError> {
        let chunks = &mut self.chunks;
        let read = self.quic.read(id, most, |chunk| chunks.push(chunk))?;
        if self.chunks.is_empty() && read == StreamRead::Finished {
            self.chunks.push(Bytes::new());
        }
        Ok(read)
    }

    /// Notes that a slow client has something to read over a stream.
    fn note_readable(&mut self, id: StreamId) {
        if !self.readable.contains(&id) {
            self.readable.push_back(id);
        }
    }

    /// Writes what is left of all requests as fast as a slow client does.
    fn write_at_pace(&mut self, cx: &mut Context<'_>) {
        if !self.send_pace.is_limited() {
            return;
        }
        for open in &mut self.requests {
            while !open.is_sent() {
                let Poll::Ready(Some(most)) = self.send_pace.poll_ready(cx) else {
                    return;
                };
                let id = stream_id(open.key.id());
                let [head, body] = &mut open.unsent;
                let of_head = most.min(head.len());
                let of_body = (most - of_head).min(body.len());
                let mut part = [head.slice(..of_head), body.slice(..of_body)];
                let Ok(written) = self.quic.write(id, &mut part) else {
                    // The server needs no more of it; its response may follow.
                    open.unsent = Default::default();
                    break;
                };
                if written == 0 {
                    // An event follows when the windows are open again.
                    break;
                }
                head.advance(written.min(of_head));
                body.advance(written - written.min(of_head));
                self.send_pace.spend(written);
                if open.is_sent() {
                    let _ = self.quic.finish(id);
                }
            }
        }
    }
}

impl Http3Load {
    pub(crate) fn new(id: usize, context: Rc<WorkerContext>, sockets: Rc<QuicSockets>) -> Self {
        let timer = Box::pin(tokio::time::sleep(context.plan.timeout));
        Self {
            id,
            source: RequestSource::new(id, context),
            sockets,
            tls: None,
            connection: None,
            timer,
        }
    }

    /// Opens the connection before the load, if it is kept. A failure is found again, and counted, by the first request.
    pub(crate) async fn prepare(&mut self) {
        if self.source.context.plan.keeps_alive {
            let _ = self.open().await;
        }
    }

    fn close_with(&mut self, code: H3ErrorCode) {
        if let Some(connection) = self.connection.take() {
            connection.quic.close(code.0, Bytes::new());
        }
    }

    async fn try_open(&mut self) -> Result<(), OpeningFailure> {
        self.source.leave();
        let server = self.sockets.server;
        let failed = |kind, cause: String| OpeningFailure {
            kind,
            cause: format!("connecting to {server} by QUIC: {cause}"),
        };
        let began = Instant::now();
        let quic = self
            .connect()
            .map_err(|error| failed(LoadFailure::Connect, error.to_string()))?;
        let plan = &self.source.context.plan;
        let connection = Http3LoadConnection::new(quic, plan);
        // Streams that the server has opened already.
        let mut early = Vec::new();
        let connected = tokio::time::timeout(plan.timeout, async {
            loop {
                match poll_fn(|cx| connection.quic.poll_event(cx)).await {
                    QuicEvent::Connected { .. } => return Ok(()),
                    QuicEvent::Closed(reason) => return Err(reason),
                    QuicEvent::Stream(StreamEvent::Opened(id) | StreamEvent::Readable(id)) => {
                        early.push(id)
                    }
                    _ => {}
                }
            }
        });
        match connected.await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return Err(failed(opening_failure(&reason), reason.to_string())),
            Err(_) => {
                connection.quic.close(H3ErrorCode::NO_ERROR.0, Bytes::new());
                let cause = format!("no handshake within {:?}", plan.timeout);
                return Err(failed(LoadFailure::ConnectTimeout, cause));
            }
        }
        let facts = connection.quic.handshake();
        let protocol = facts.as_ref().and_then(|facts| facts.protocol.as_deref());
        if protocol != Some(b"h3") {
            connection.quic.close(H3ErrorCode::NO_ERROR.0, Bytes::new());
            let cause = "the server does not offer HTTP/3".to_owned();
            return Err(failed(LoadFailure::Tls, cause));
        }
        let resumed = facts.is_some_and(|facts| facts.is_resumed);
        self.source
            .context
            .recorder
            .borrow_mut()
            .opened(began.elapsed(), resumed);
        self.connection = Some(connection);
        for id in early {
            self.read_all(id).map_err(|error| {
                self.close_with(error.code());
                failed(LoadFailure::Malformed, error.to_string())
            })?;
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<QuicConnection, QuicOpeningError> {
        let sockets = &self.sockets;
        let tls = match &mut self.tls {
            Some(tls) => tls,
            none => none.insert(
                QuicClientTls::new(sockets.tls.with_own_sessions())
                    .map_err(QuicOpeningError::Tls)?,
            ),
        };
        let count = sockets.endpoints.len().max(1);
        let endpoint = sockets.endpoints.get(self.id % count);
        endpoint
            .ok_or(QuicOpeningError::NoSocket)?
            .connect(sockets.server, &sockets.tls.name.to_str(), tls)
            .map_err(QuicOpeningError::Connect)
    }

    fn poll_steps(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Poll<StreamsEnd<Http3LoadFailure>>, Http3LoadFailure> {
        loop {
            let is_over = self.begin_requests(cx).map_err(|error| {
                let cause = format!("the request cannot be sent: {error}");
                Http3LoadFailure::Closed(LoadFailure::Io, cause)
            })?;
            let Some(connection) = &mut self.connection else {
                return Ok(Poll::Ready(StreamsEnd::ShutDown));
            };
            connection.flush();
            connection.write_at_pace(cx);
            if connection.requests.is_empty() {
                if is_over {
                    return Ok(Poll::Ready(StreamsEnd::Done));
                }
                if connection.is_going_away || self.is_spent() {
                    return Ok(Poll::Ready(StreamsEnd::ShutDown));
                }
            }
            if self.read_at_pace(cx).map_err(Http3LoadFailure::Malformed)? {
                continue;
            }
            let Some(connection) = &mut self.connection else {
                return Ok(Poll::Ready(StreamsEnd::ShutDown));
            };
            match connection.quic.poll_event(cx) {
                Poll::Ready(QuicEvent::Stream(
                    StreamEvent::Opened(id) | StreamEvent::Readable(id),
                )) => {
                    if connection.receive_pace.is_limited() {
                        connection.note_readable(id)
                    } else {
                        self.read_all(id).map_err(Http3LoadFailure::Malformed)?
                    }
                }
                Poll::Ready(QuicEvent::Stream(StreamEvent::Writable(id))) => connection.write(id),
                Poll::Ready(QuicEvent::Stream(StreamEvent::Stopped { stream, code })) => {
                    let number = number_of(stream);
                    if let Some(open) = connection.request(number) {
                        open.unsent = Default::default();
                    }
                    connection
                        .codec
                        .handle_stop_sending(number, H3ErrorCode(code))
                        .map_err(Http3LoadFailure::Malformed)?;
                }
                Poll::Ready(QuicEvent::Closed(reason)) => {
                    return if connection.requests.is_empty() {
                        Ok(Poll::Ready(StreamsEnd::ShutDown))
                    } else {
                        Err(Http3LoadFailure::Closed(
                            closing_failure(&reason),
                            reason.to_string(),
                        ))
                    };
                }
                Poll::Ready(_) => {}
                Poll::Pending => {
                    if !self.poll_timer(cx) {
                        return Ok(Poll::Pending);
                    }
                }
            }
        }
    }

    /// Whether no further request is to be sent over the connection.
    fn is_spent(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|known| self.source.context.plan.is_spent(known.begun, known.opened))
    }

    /// Begins as many requests as may be in flight; returns whether none is left.
    fn begin_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, RequestError> {
        let most = self.source.context.plan.in_flight.get();
        loop {
            let Some(connection) = &self.connection else {
                return Ok(false);
            };
            if connection.requests.len() >= most
                || connection.is_going_away
                || connection.codec.available_streams() == 0
                || self.is_spent()
            {
                return Ok(false);
            }
            let due = match self.source.poll_due(cx) {
                Poll::Ready(Some(due)) => due,
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => return Ok(false),
            };
            self.source.waiting = Some(due);
            if !self.begin(due)? {
                return Ok(false);
            }
            self.source.waiting = None;
        }
    }

    /// Begins a request; returns whether the server allows it now.
    fn begin(&mut self, due: Instant) -> Result<bool, RequestError> {
        let index = self.source.context.choose(&mut self.source.user);
        let request = self.source.context.request(index, &self.source.user);
        let (Some(request), Some(connection)) = (request, &mut self.connection) else {
            return Ok(false);
        };
        let Some(id) = connection.quic.open(Dir::Bi) else {
            return Ok(false);
        };
        let body = &request.body;
        let head = OutgoingRequest {
            method: &request.method,
            scheme: request.url.scheme(),
            authority: Some(request.host()),
            path: request.url.path(),
            protocol: None,
            headers: &request.headers,
            content_length: (!body.is_empty()).then_some(body.len() as u64),
            te_trailers: false,
            expects_continue: false,
        };
        let out = &mut connection.out;
        out.clear();
        let key = connection
            .codec
            .send_request(number_of(id), head, body.is_empty(), out)?;
        if !body.is_empty() {
            connection.codec.send_data(key, body.len(), true, out);
        }
        let unsent = [Bytes::copy_from_slice(out), body.clone()];
        connection.begun += 1;
        connection.requests.push_back(OpenRequest {
            key,
            begun: self.source.context.begin(due, index),
            received: ReceivedBody::default(),
            unsent,
        });
        connection.write(id);
        Ok(true)
    }

    /// Reads all that came over a stream.
    fn read_all(&mut self, id: StreamId) -> Result<(), H3Error> {
        self.read(id, usize::MAX).map(|_| ())
    }

    /// Reads what came over the streams as fast as a slow client does; returns whether anything was read.
    fn read_at_pace(&mut self, cx: &mut Context<'_>) -> Result<bool, H3Error> {
        let mut is_any = false;
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(is_any);
            };
            let Some(id) = connection.readable.front().copied() else {
                return Ok(is_any);
            };
            let Poll::Ready(Some(most)) = connection.receive_pace.poll_ready(cx) else {
                return Ok(is_any);
            };
            let (bytes, is_limited) = self.read(id, most)?;
            is_any = true;
            if let Some(connection) = &mut self.connection {
                connection.receive_pace.spend(bytes);
                connection.readable.pop_front();
                if is_limited {
                    // The other streams are read first.
                    connection.readable.push_back(id);
                }
            }
        }
    }

    /// Reads so much at most; returns how much that was, and whether there is more.
    fn read(&mut self, id: StreamId, most: usize) -> Result<(usize, bool), H3Error> {
        let Some(connection) = &mut self.connection else {
            return Ok((0, false));
        };
        let now = Instant::now();
        if now - connection.advanced > ADVANCE_EVERY {
            connection.advanced = now;
            connection.codec.advance(now - connection.opened);
        }
        let number = number_of(id);
        let read = match connection.read(id, most) {
            Ok(read) => read,
            Err(StreamError::Reset { code }) => {
                connection.codec.handle_reset(number, H3ErrorCode(code))?;
                let cause = || format!("code {code:#x}");
                self.fail_request(number, LoadFailure::StreamReset, cause);
                return Ok((0, false));
            }
            Err(_) => return Ok((0, false)),
        };
        let is_whole = read == StreamRead::Finished;
        let mut chunks = std::mem::take(&mut connection.chunks);
        let bytes = chunks.iter().map(Bytes::len).sum();
        let count = chunks.len();
        for (index, mut chunk) in chunks.drain(..).enumerate() {
            let is_last = is_whole && index + 1 == count;
            loop {
                let Some(connection) = &mut self.connection else {
                    return Ok((bytes, false));
                };
                match connection
                    .codec
                    .handle_stream(number, &mut chunk, is_last)?
                {
                    H3Event::Incomplete | H3Event::Blocked => break,
                    event => self.handle(event, now),
                }
            }
        }
        if let Some(connection) = &mut self.connection {
            connection.chunks = chunks;
        }
        Ok((bytes, read == StreamRead::Limited))
    }

    fn handle(&mut self, event: H3Event, now: Instant) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        match event {
            H3Event::Response {
                stream,
                status,
                headers,
                end,
            } => {
                if let Some(open) = connection.request(stream.id()) {
                    open.received.status = status.as_u16();
                }
                if let Some(user) = &mut self.source.user {
                    user.note_headers(&headers);
                }
                if end {
                    self.complete(stream, now);
                }
            }
            H3Event::Data { stream, data, end } => {
                if let Some(open) = connection.request(stream.id()) {
                    self.source
                        .context
                        .receive(&mut open.received, &data, &mut self.source.user);
                }
                if end {
                    self.complete(stream, now);
                }
            }
            H3Event::Trailers { stream, .. } => self.complete(stream, now),
            H3Event::Malformed { stream, fault } => {
                self.fail_request(stream.id(), LoadFailure::Malformed, || fault.to_string());
            }
            H3Event::Reset { stream, code } => {
                let cause = || format!("code {:#x}", code.0);
                self.fail_request(stream.id(), LoadFailure::StreamReset, cause);
            }
            H3Event::GoAway { id } => {
                connection.is_going_away = true;
                self.source.context.recorder.borrow_mut().counts.go_aways += 1;
                // Requests from this one on were not processed (RFC 9114 section 5.2).
                let later: Vec<u64> = connection
                    .requests
                    .iter()
                    .map(|open| open.key.id())
                    .filter(|known| *known >= id)
                    .collect();
                for number in later {
                    let cause = || "the server shut the connection down".to_owned();
                    self.fail_request(number, LoadFailure::GoAway, cause);
                }
            }
            _ => {}
        }
    }

    fn complete(&mut self, stream: StreamKey, now: Instant) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let Some(open) = connection.take(stream.id()) else {
            return;
        };
        if !open.is_sent() {
            // The server did not wait for the whole request.
            let id = stream_id(stream.id());
            let _ = connection.quic.reset(id, H3ErrorCode::REQUEST_CANCELLED.0);
        }
        self.source
            .context
            .complete(open.begun, (&open.received, now), &mut self.source.user);
        self.source.pause();
    }

    fn fail_request(&mut self, number: u64, kind: LoadFailure, cause: impl FnOnce() -> String) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Some(open) = connection.take(number) {
            connection
                .codec
                .reset(open.key, H3ErrorCode::REQUEST_CANCELLED);
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
            // Requests begin in the order of their streams.
            let oldest = loop {
                let connection = self.connection.as_ref();
                match connection.and_then(|connection| connection.requests.front()) {
                    Some(open) if open.begun.began + timeout <= now => {
                        let number = open.key.id();
                        let cause = || "no complete response".to_owned();
                        self.fail_request(number, LoadFailure::Timeout, cause);
                        is_any = true;
                    }
                    open => break open.map(|open| open.begun.began),
                }
            };
            let next = oldest.unwrap_or(now) + timeout;
            self.timer.as_mut().reset(next.into());
        }
        is_any
    }

    /// Counts the requests in flight as failed.
    fn fail_all(&mut self, kind: LoadFailure, cause: String) {
        self.source
            .context
            .recorder
            .borrow_mut()
            .cause(kind, || cause);
        let open = self
            .connection
            .iter_mut()
            .flat_map(|connection| connection.requests.drain(..));
        for open in open {
            self.source
                .context
                .failed(kind, open.begun, &mut self.source.user);
        }
        self.source.fail_waiting(kind);
    }
}

impl StreamsLoad for Http3Load {
    type Failure = Http3LoadFailure;

    fn source(&mut self) -> &mut RequestSource {
        &mut self.source
    }

    fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    async fn open(&mut self) -> Result<(), LoadFailure> {
        self.try_open().await.map_err(|failure| {
            let mut recorder = self.source.context.recorder.borrow_mut();
            recorder.cause(failure.kind, || failure.cause);
            failure.kind
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<StreamsEnd<Http3LoadFailure>> {
        match self.poll_steps(cx) {
            Ok(polled) => polled,
            Err(failure) => Poll::Ready(StreamsEnd::Failed(failure)),
        }
    }

    fn fail(&mut self, failure: Http3LoadFailure) {
        match failure {
            Http3LoadFailure::Closed(kind, cause) => {
                self.fail_all(kind, cause);
                self.close_with(H3ErrorCode::NO_ERROR);
            }
            Http3LoadFailure::Malformed(error) => {
                self.fail_all(LoadFailure::Malformed, error.to_string());
                self.close_with(error.code());
            }
        }
    }

    fn close(&mut self) {
        self.close_with(H3ErrorCode::NO_ERROR);
    }
}

impl Drop for Http3Load {
    fn drop(&mut self) {
        let is_open = self
            .connection
            .as_ref()
            .is_some_and(|connection| !connection.requests.is_empty());
        if (is_open || self.source.waiting.is_some())
            && !self.source.context.arrivals.is_interrupted()
        {
            self.fail_all(
                LoadFailure::Timeout,
                "the load was over before the response".to_owned(),
            );
        }
        self.close_with(H3ErrorCode::NO_ERROR);
    }
}

/// The kind of the end of a connection that was not open yet.
fn opening_failure(reason: &QuicCloseReason) -> LoadFailure {
    match reason {
        QuicCloseReason::Peer { code, .. } | QuicCloseReason::Transport { code, .. }
            if ALERTS.contains(code) =>
        {
            LoadFailure::Tls
        }
        QuicCloseReason::IdleTimeout | QuicCloseReason::HandshakeTimeout => {
            LoadFailure::ConnectTimeout
        }
        QuicCloseReason::Reset => LoadFailure::Reset,
        _ => LoadFailure::Connect,
    }
}

/// The kind of the end of a connection with requests in flight.
fn closing_failure(reason: &QuicCloseReason) -> LoadFailure {
    match reason {
        QuicCloseReason::Reset => LoadFailure::Reset,
        QuicCloseReason::IdleTimeout => LoadFailure::Timeout,
        _ => LoadFailure::ClosedBeforeResponse,
    }
}
