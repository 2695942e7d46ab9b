//! A client of HTTP/3 for tests: honest requests by the codec in the role of a client, and any bytes on any stream.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apus_h3::{
    H3Config, H3Connection, H3ErrorCode, H3Event, LocalStream, OutgoingRequest, StreamAction,
    StreamKey,
};
use apus_http::{Headers, Method};
use apus_quic::{
    Dir, QuicClientTls, QuicCloseReason, QuicConnection, QuicEndpoint, QuicEvent, QuicKeys,
    QuicSettings, QuicWorkers, Side, Steering, StreamError, StreamEvent, StreamId, StreamRead,
};
use bytes::Bytes;
use rustls::ClientConfig;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::harness::{PATIENCE, text};

/// The control stream of a server, which is the first that it opens.
const SERVER_CONTROL: u64 = 3;

/// A connection with its own runtime, which runs while a method waits.
pub(crate) struct H3Client {
    runtime: Runtime,
    local: LocalSet,
    connection: ClientConnection,
    _endpoint: QuicEndpoint,
}

/// What the client knows, for the conditions of [`H3Client::wait`].
pub(crate) struct ClientConnection {
    pub(crate) quic: QuicConnection,
    codec: H3Connection,
    local: Vec<(LocalStream, StreamId)>,
    keys: HashMap<u64, StreamKey>,
    responses: HashMap<u64, H3Response>,
    unsent: HashMap<u64, Unsent>,
    /// The streams that are not read.
    unread: HashSet<u64>,
    pub(crate) is_connected: bool,
    pub(crate) early_data_accepted: bool,
    pub(crate) go_away: Option<u64>,
    pub(crate) closed: Option<QuicCloseReason>,
}

#[derive(Default)]
struct Unsent {
    chunks: VecDeque<Bytes>,
    end: bool,
}

/// The part of a response that has arrived.
#[derive(Debug, Default)]
pub(crate) struct H3Response {
    /// 0 before the head.
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) informational: Vec<u16>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Headers>,
    pub(crate) is_complete: bool,
    /// The code with which the server reset it, or broke the request off.
    pub(crate) reset: Option<H3ErrorCode>,
    /// The code with which the server wants no more of the request.
    pub(crate) stopped: Option<u64>,
}

impl H3Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get_str(name)
    }

    pub(crate) fn text(&self) -> String {
        text(&self.body)
    }
}

/// How a client opens its connection.
#[derive(Clone)]
pub(crate) struct H3ClientOptions {
    pub(crate) tls: QuicClientTls,
    pub(crate) quic: QuicSettings,
    pub(crate) name: &'static str,
    /// Whether the control stream and the QPACK streams are opened.
    pub(crate) opens_streams: bool,
    /// Whether the control stream of the server is read.
    pub(crate) reads_settings: bool,
}

impl H3ClientOptions {
    pub(crate) fn new(mut tls: ClientConfig) -> Self {
        tls.alpn_protocols = vec![b"h3".to_vec()];
        Self::with_tls(QuicClientTls::new(Arc::new(tls)).unwrap())
    }

    pub(crate) fn with_tls(tls: QuicClientTls) -> Self {
        Self {
            tls,
            quic: QuicSettings {
                max_bidirectional_streams: 0,
                receive_window: 64 << 20,
                stream_receive_window: 32 << 20,
                ..QuicSettings::default()
            },
            name: "example.com",
            opens_streams: true,
            reads_settings: true,
        }
    }
}

impl H3Client {
    /// Opens a connection, and waits for the handshake.
    pub(crate) fn open(address: SocketAddr, options: &H3ClientOptions) -> Self {
        let mut client = Self::begin(address, options);
        client.wait("the handshake", |connection| connection.is_connected);
        client
    }

    /// Opens a connection without waiting.
    pub(crate) fn begin(address: SocketAddr, options: &H3ClientOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = LocalSet::new();
        let workers = QuicWorkers::new(QuicKeys::generate().unwrap(), Steering::default());
        let own: SocketAddr = match address {
            SocketAddr::V4(_) => ([127, 0, 0, 1], 0).into(),
            SocketAddr::V6(_) => ([0, 0, 0, 0, 0, 0, 0, 1], 0).into(),
        };
        let (endpoint, quic) = local.block_on(&runtime, async {
            let socket = workers.bind_client(own).unwrap();
            let (endpoint, task) = QuicEndpoint::new(socket, options.quic.clone(), None).unwrap();
            tokio::task::spawn_local(task);
            let quic = endpoint
                .connect(address, options.name, &options.tls)
                .unwrap();
            (endpoint, quic)
        });
        let codec = H3Connection::client(H3Config {
            max_concurrent_streams: 1000,
            target_bytes: 1 << 20,
            head_bytes: 1 << 20,
            fields: 1000,
            extended_connect: false,
            decoder_table_bytes: 4096,
            blocked_streams: 16,
            encoder_table_bytes: 4096,
        });
        let mut client = Self {
            runtime,
            local,
            connection: ClientConnection {
                quic,
                codec,
                local: Vec::new(),
                keys: HashMap::new(),
                responses: HashMap::new(),
                unsent: HashMap::new(),
                unread: HashSet::new(),
                is_connected: false,
                early_data_accepted: false,
                go_away: None,
                closed: None,
            },
            _endpoint: endpoint,
        };
        if !options.reads_settings {
            client.leave_unread(SERVER_CONTROL);
        }
        if !options.opens_streams {
            // The codec has output that is never sent.
            for kind in LocalStream::ALL {
                client.connection.codec.output(kind).clear();
            }
        }
        client
    }

    /// Runs the connection until the condition holds.
    pub(crate) fn wait(&mut self, what: &str, mut until: impl FnMut(&ClientConnection) -> bool) {
        let connection = &mut self.connection;
        let running = async {
            loop {
                connection.flush();
                if until(connection) {
                    return;
                }
                // What the condition is about may change without an event.
                let event = poll_fn(|cx| connection.quic.poll_event(cx));
                match tokio::time::timeout(Duration::from_millis(10), event).await {
                    Ok(event) => connection.handle(event),
                    Err(_) => continue,
                }
                if connection.closed.is_some() {
                    assert!(until(connection), "{what}: {:?}", connection.closed);
                    return;
                }
            }
        };
        let waiting = async { tokio::time::timeout(PATIENCE, running).await };
        let result = self.local.block_on(&self.runtime, waiting);
        assert!(result.is_ok(), "it takes too long: {what}");
    }

    /// Runs the connection for this time.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.run_while(async { tokio::time::sleep(time).await });
    }

    /// Runs the connection until this future, of another matter, is complete.
    fn run_while<T>(&mut self, other: impl Future<Output = T>) -> T {
        let connection = &mut self.connection;
        let running = async {
            loop {
                connection.flush();
                let event = poll_fn(|cx| connection.quic.poll_event(cx)).await;
                let is_closed = matches!(event, QuicEvent::Closed(_));
                connection.handle(event);
                if is_closed {
                    std::future::pending::<()>().await;
                }
            }
        };
        let both = async {
            tokio::select! {
                () = running => unreachable!(),
                value = other => value,
            }
        };
        self.local.block_on(&self.runtime, both)
    }

    /// Begins a request, as soon as the server allows a stream; the stream.
    pub(crate) fn request(&mut self, request: &H3Request<'_>) -> u64 {
        loop {
            if let Some(id) = self.try_request(request) {
                return id;
            }
            self.pause(Duration::from_millis(1));
            assert_eq!(self.connection.closed, None, "no stream");
        }
    }

    /// Begins a request, if the server allows a stream.
    pub(crate) fn try_request(&mut self, request: &H3Request<'_>) -> Option<u64> {
        let id = number(self.connection.quic.open(Dir::Bi)?);
        self.connection.request(id, request);
        Some(id)
    }

    /// Sends more of a request's body.
    pub(crate) fn send_data(&mut self, id: u64, data: impl Into<Bytes>, end: bool) {
        self.connection.send_data(id, data.into(), end);
    }

    pub(crate) fn send_trailers(&mut self, id: u64, trailers: &Headers) {
        let key = self.connection.key(id);
        let mut out = Vec::new();
        self.connection.codec.send_trailers(key, trailers, &mut out);
        self.connection.send(id, out.into(), true);
    }

    /// Waits for the whole response.
    pub(crate) fn response(&mut self, id: u64) -> H3Response {
        self.wait("a response", |connection| {
            let response = connection.responses.get(&id);
            response.is_some_and(|response| response.is_complete || response.reset.is_some())
        });
        self.connection.responses.remove(&id).unwrap()
    }

    /// The part of the response that has arrived.
    pub(crate) fn so_far(&self, id: u64) -> &H3Response {
        &self.connection.responses[&id]
    }

    /// Waits for the head of a response.
    pub(crate) fn head(&mut self, id: u64) -> u16 {
        self.wait("the head of a response", |connection| {
            let response = connection.responses.get(&id);
            response.is_some_and(|response| response.status != 0 || response.reset.is_some())
        });
        self.so_far(id).status
    }

    pub(crate) fn get(&mut self, path: &str) -> H3Response {
        let id = self.request(&H3Request::get(path));
        self.response(id)
    }

    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> H3Response {
        let id = self.request(&H3Request {
            method: Method::POST,
            has_body: true,
            ..H3Request::get(path)
        });
        self.send_data(id, body.to_vec(), true);
        self.response(id)
    }

    /// Does not read a stream until [`H3Client::read_again`].
    pub(crate) fn leave_unread(&mut self, id: u64) {
        self.connection.unread.insert(id);
    }

    pub(crate) fn read_again(&mut self, id: u64) {
        self.connection.unread.remove(&id);
        self.connection.read(stream(id));
    }

    /// Opens a stream and sends these bytes on it.
    pub(crate) fn send_raw(&mut self, direction: Dir, bytes: &[u8], end: bool) -> u64 {
        let id = self.connection.quic.open(direction).expect("a stream");
        let id = number(id);
        self.connection.send(id, Bytes::copy_from_slice(bytes), end);
        id
    }

    /// Aborts the request and the response of a stream.
    pub(crate) fn cancel(&mut self, id: u64) {
        let code = H3ErrorCode::REQUEST_CANCELLED.0;
        let _ = self.connection.quic.reset(stream(id), code);
        let _ = self.connection.quic.stop_sending(stream(id), code);
    }

    /// Waits until the server closes the connection; the code of the application, or of the transport.
    pub(crate) fn closed(&mut self) -> QuicCloseReason {
        self.wait("the end of the connection", |connection| {
            connection.closed.is_some()
        });
        self.connection.closed.clone().unwrap()
    }

    /// Waits until the server closes the connection with this code.
    pub(crate) fn assert_closed_with(&mut self, expected: H3ErrorCode) {
        match self.closed() {
            QuicCloseReason::Application { code, reason } => {
                assert_eq!(H3ErrorCode(code), expected, "{}", text(&reason));
            }
            other => panic!("{other:?} instead of {expected}"),
        }
    }

    /// Closes the connection, and lets the last packets leave.
    pub(crate) fn close(mut self) {
        self.connection
            .quic
            .close(H3ErrorCode::NO_ERROR.0, Bytes::new());
        let leaving = async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        self.run_while(leaving);
    }

    pub(crate) fn state(&self) -> &ClientConnection {
        &self.connection
    }
}

impl ClientConnection {
    /// Sends what the codec has, and does what it requests.
    fn flush(&mut self) {
        while let Some(kind) = LocalStream::ALL.get(self.local.len()) {
            if self.codec.output(*kind).is_empty() {
                break;
            }
            let Some(id) = self.quic.open(Dir::Uni) else {
                break;
            };
            self.local.push((*kind, id));
        }
        for (kind, id) in &self.local {
            let output = self.codec.output(*kind);
            let mut chunk = [Bytes::copy_from_slice(output)];
            if let Ok(written) = self.quic.write(*id, &mut chunk) {
                output.drain(..written);
            }
        }
        while let Some(action) = self.codec.next_action() {
            match action {
                StreamAction::Reset { id, code } => {
                    let _ = self.quic.reset(stream(id), code.0);
                }
                StreamAction::StopSending { id, code } => {
                    let _ = self.quic.stop_sending(stream(id), code.0);
                }
                StreamAction::Resume { id } => panic!("stream {id} was blocked"),
            }
        }
    }

    fn handle(&mut self, event: QuicEvent) {
        match event {
            QuicEvent::Connected {
                early_data_accepted,
            } => {
                self.is_connected = true;
                self.early_data_accepted = early_data_accepted;
            }
            QuicEvent::Stream(StreamEvent::Opened(id) | StreamEvent::Readable(id)) => self.read(id),
            QuicEvent::Stream(StreamEvent::Writable(id)) => self.continue_sending(number(id)),
            QuicEvent::Stream(StreamEvent::Stopped { stream, code }) => {
                let id = number(stream);
                self.unsent.remove(&id);
                if let Some(response) = self.responses.get_mut(&id) {
                    response.stopped = Some(code);
                }
                let event = self.codec.handle_stop_sending(id, H3ErrorCode(code));
                if let Some(event) = event.unwrap() {
                    self.note(event);
                }
            }
            QuicEvent::Closed(reason) => self.closed = Some(reason),
            QuicEvent::Stream(StreamEvent::Finished(_) | StreamEvent::Available(_)) => {}
        }
    }

    fn read(&mut self, id: StreamId) {
        if self.unread.contains(&number(id)) {
            return;
        }
        let mut chunks = VecDeque::new();
        let end = match self
            .quic
            .read(id, usize::MAX, |chunk| chunks.push_back(chunk))
        {
            Ok(read) => read == StreamRead::Finished,
            Err(StreamError::Reset { code }) => {
                let code = H3ErrorCode(code);
                if let Some(event) = self.codec.handle_reset(number(id), code).unwrap() {
                    self.note(event);
                }
                if let Some(response) = self.responses.get_mut(&number(id)) {
                    response.reset = Some(code);
                }
                return;
            }
            Err(_) => return,
        };
        if chunks.is_empty() && end {
            chunks.push_back(Bytes::new());
        }
        while let Some(mut chunk) = chunks.pop_front() {
            let is_last = end && chunks.is_empty();
            loop {
                let event = self.codec.handle_stream(number(id), &mut chunk, is_last);
                match event.expect("the server keeps to the protocol") {
                    H3Event::Incomplete => break,
                    event => self.note(event),
                }
            }
        }
    }

    fn note(&mut self, event: H3Event) {
        let (id, end) = match &event {
            H3Event::Response { stream, end, .. } | H3Event::Data { stream, end, .. } => {
                (stream.id(), *end)
            }
            H3Event::Trailers { stream, .. } => (stream.id(), true),
            H3Event::Informational { stream, .. }
            | H3Event::Malformed { stream, .. }
            | H3Event::BodyRefused { stream, .. }
            | H3Event::Reset { stream, .. } => (stream.id(), false),
            H3Event::GoAway { id } => {
                self.go_away = Some(*id);
                return;
            }
            _ => return,
        };
        let Some(response) = self.responses.get_mut(&id) else {
            return;
        };
        response.is_complete |= end;
        match event {
            H3Event::Informational { status, .. } => response.informational.push(status.as_u16()),
            H3Event::Response {
                status, headers, ..
            } => {
                response.status = status.as_u16();
                response.headers = *headers;
            }
            H3Event::Data { data, .. } => response.body.extend_from_slice(&data),
            H3Event::Trailers { trailers, .. } => response.trailers = Some(*trailers),
            H3Event::Reset { code, .. } => response.reset = Some(code),
            H3Event::Malformed { fault, .. } => panic!("{fault}"),
            _ => {}
        }
    }

    fn request(&mut self, id: u64, request: &H3Request<'_>) {
        self.flush();
        let mut headers = Headers::new();
        for (name, value) in request.fields {
            headers.try_append(*name, value).unwrap();
        }
        let outgoing = OutgoingRequest {
            method: &request.method,
            scheme: "https",
            authority: Some(request.authority),
            path: request.path,
            protocol: request.protocol,
            headers: &headers,
            content_length: request.content_length,
            te_trailers: true,
            expects_continue: request.expects_continue,
        };
        let mut out = Vec::new();
        let end = !request.has_body;
        let sent = self.codec.send_request(id, outgoing, end, &mut out);
        self.responses.insert(id, H3Response::default());
        self.keys.insert(id, sent.expect("a request"));
        self.send(id, out.into(), end);
    }

    fn key(&self, id: u64) -> StreamKey {
        self.keys[&id]
    }

    fn send_data(&mut self, id: u64, data: Bytes, end: bool) {
        let key = self.key(id);
        let mut out = Vec::new();
        self.codec.send_data(key, data.len(), end, &mut out);
        self.send(id, out.into(), false);
        self.send(id, data, end);
    }

    fn send(&mut self, id: u64, bytes: Bytes, end: bool) {
        let unsent = self.unsent.entry(id).or_default();
        unsent.chunks.push_back(bytes);
        unsent.end |= end;
        self.continue_sending(id);
    }

    fn continue_sending(&mut self, id: u64) {
        let Some(unsent) = self.unsent.get_mut(&id) else {
            return;
        };
        loop {
            unsent.chunks.retain(|chunk| !chunk.is_empty());
            if unsent.chunks.is_empty() {
                if unsent.end {
                    let _ = self.quic.finish(stream(id));
                }
                self.unsent.remove(&id);
                return;
            }
            match self.quic.write(stream(id), unsent.chunks.make_contiguous()) {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    self.unsent.remove(&id);
                    return;
                }
            }
        }
    }

    /// Whether the server allows extended CONNECT.
    pub(crate) fn allows_extended_connect(&self) -> bool {
        self.codec.allows_extended_connect()
    }

    /// Bytes of a request that wait for a window.
    pub(crate) fn unsent_bytes(&self, id: u64) -> usize {
        let chunks = self.unsent.get(&id).into_iter();
        chunks
            .flat_map(|unsent| unsent.chunks.iter().map(Bytes::len))
            .sum()
    }

    pub(crate) fn body_bytes(&self, id: u64) -> usize {
        self.responses
            .get(&id)
            .map_or(0, |response| response.body.len())
    }

    pub(crate) fn response_of(&self, id: u64) -> Option<&H3Response> {
        self.responses.get(&id)
    }
}

/// A request to send.
#[derive(Clone)]
pub(crate) struct H3Request<'a> {
    pub(crate) method: Method,
    pub(crate) authority: &'a str,
    pub(crate) path: &'a str,
    pub(crate) protocol: Option<&'a str>,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) content_length: Option<u64>,
    pub(crate) expects_continue: bool,
    /// Whether the stream stays open behind the head.
    pub(crate) has_body: bool,
}

impl<'a> H3Request<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self {
            method: Method::GET,
            authority: "example.com",
            path,
            protocol: None,
            fields: &[],
            content_length: None,
            expects_continue: false,
            has_body: false,
        }
    }
}

fn stream(id: u64) -> StreamId {
    let side = [Side::Client, Side::Server][usize::from(id & 0x1 != 0)];
    let direction = [Dir::Bi, Dir::Uni][usize::from(id & 0x2 != 0)];
    StreamId::new(side, direction, id >> 2)
}

fn number(id: StreamId) -> u64 {
    let side = u64::from(id.initiator() == Side::Server);
    let direction = u64::from(id.dir() == Dir::Uni);
    id.index() << 2 | direction << 1 | side
}
