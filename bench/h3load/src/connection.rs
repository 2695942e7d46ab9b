//! A connection of the load: it keeps a number of requests open.

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use apus_h3::{
    H3Config, H3Connection, H3Error, H3ErrorCode, H3Event, LocalStream, OutgoingRequest,
    StreamAction, StreamKey,
};
use apus_http::{Headers, Method};
use apus_quic::{
    Dir, QuicClientTls, QuicConnection, QuicEndpoint, QuicEvent, StreamError, StreamId, StreamRead,
};
use bytes::Bytes;
use http::Uri;

use crate::statistics::Statistics;

/// What is requested, and what has to come.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    authority: String,
    path: String,
    length: Option<u64>,
    headers: Headers,
}

impl Target {
    pub(crate) fn new(url: &Uri, length: Option<u64>) -> Result<Self, Box<dyn Error>> {
        let authority = url.authority().ok_or("the URL has no authority")?;
        let mut headers = Headers::new();
        headers.try_append("user-agent", "h3load")?;
        headers.try_append("accept", "*/*")?;
        Ok(Self {
            address: authority
                .as_str()
                .parse()
                .map_err(|_| "the URL needs an IP address and a port")?,
            authority: authority.to_string(),
            path: url
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
            length,
            headers,
        })
    }
}

/// Opens a connection with one request, in its turn, and keeps `streams` requests open on it once all connections of
/// the load stand, unless it is `held` only.
pub(crate) async fn hold_connection(
    endpoint: QuicEndpoint,
    tls: QuicClientTls,
    target: Rc<Target>,
    statistics: Rc<Statistics>,
    streams: usize,
    held: bool,
) {
    let Ok(turn) = statistics.turn().await else {
        return;
    };
    match Connection::open(&endpoint, &tls, target, Rc::clone(&statistics)) {
        Ok(mut connection) => {
            if connection.run(1, Some(1), true).await {
                drop(turn);
                if !held {
                    connection.wait_for_load().await;
                }
                let most = held.then_some(1);
                connection.run(streams, most, false).await;
            }
        }
        Err(_) => statistics.count_error("connections that cannot be opened"),
    }
}

/// Opens one connection after another for one request each.
pub(crate) async fn make_connections(
    endpoint: QuicEndpoint,
    tls: QuicClientTls,
    target: Rc<Target>,
    statistics: Rc<Statistics>,
) {
    loop {
        match Connection::open(&endpoint, &tls, Rc::clone(&target), Rc::clone(&statistics)) {
            Ok(mut connection) => {
                if connection.run(1, Some(1), true).await {
                    connection.close();
                }
            }
            Err(_) => return statistics.count_error("connections that cannot be opened"),
        }
    }
}

struct OpenRequest {
    began: Instant,
    body: u64,
    is_ok: bool,
}

struct Connection {
    quic: QuicConnection,
    codec: H3Connection,
    target: Rc<Target>,
    statistics: Rc<Statistics>,
    local: Vec<(LocalStream, StreamId)>,
    requests: HashMap<u64, OpenRequest>,
    /// Complete responses.
    responses: u64,
    began: Instant,
    is_connected: bool,
    out: Vec<u8>,
}

impl Connection {
    fn open(
        endpoint: &QuicEndpoint,
        tls: &QuicClientTls,
        target: Rc<Target>,
        statistics: Rc<Statistics>,
    ) -> Result<Self, Box<dyn Error>> {
        let began = Instant::now();
        let quic = endpoint.connect(target.address, "bench.test", tls)?;
        let codec = H3Connection::client(H3Config {
            max_concurrent_streams: 1000,
            target_bytes: 1 << 16,
            head_bytes: 1 << 16,
            fields: 100,
            extended_connect: false,
            decoder_table_bytes: 4096,
            blocked_streams: 16,
            encoder_table_bytes: 4096,
        });
        Ok(Self {
            quic,
            codec,
            target,
            statistics,
            local: Vec::new(),
            requests: HashMap::new(),
            responses: 0,
            began,
            is_connected: false,
            out: Vec::new(),
        })
    }

    /// Keeps `streams` requests open, until there were so many responses. Then it goes on without requests, unless it
    /// `returns`. Whether the connection still stands.
    async fn run(&mut self, streams: usize, most: Option<u64>, returns: bool) -> bool {
        loop {
            if self.is_connected {
                self.begin_requests(streams, most, returns);
            }
            self.flush();
            if returns && most.is_some_and(|most| self.responses >= most) {
                return true;
            }
            if !self.next_event().await {
                return false;
            }
        }
    }

    /// Handles events until all connections of the load stand.
    async fn wait_for_load(&mut self) {
        let statistics = Rc::clone(&self.statistics);
        let mut stand = pin!(statistics.all_settled());
        loop {
            self.flush();
            tokio::select! {
                () = &mut stand => return,
                is_open = self.next_event() => if !is_open { return },
            }
        }
    }

    /// Handles one event; whether the connection still stands.
    async fn next_event(&mut self) -> bool {
        let result = match poll_fn(|cx| self.quic.poll_event(cx)).await {
            QuicEvent::Connected { .. } => {
                self.is_connected = true;
                Ok(())
            }
            QuicEvent::Opened(id) | QuicEvent::Readable(id) => self.read(id),
            QuicEvent::Closed(_) => {
                self.statistics.count_error("lost connections");
                return false;
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.statistics.count_error("violations of the protocol");
            self.quic.close(error.code().0, Bytes::new());
            return false;
        }
        true
    }

    fn close(&self) {
        self.quic.close(H3ErrorCode::NO_ERROR.0, Bytes::new());
    }

    fn begin_requests(&mut self, streams: usize, most: Option<u64>, with_handshake: bool) {
        while self.requests.len() < streams
            && most.is_none_or(|most| self.responses + (self.requests.len() as u64) < most)
            && self.codec.available_streams() > 0
        {
            let Some(id) = self.quic.open(Dir::Bi) else {
                return;
            };
            let request = OutgoingRequest {
                method: &Method::GET,
                scheme: "https",
                authority: Some(&self.target.authority),
                path: &self.target.path,
                protocol: None,
                headers: &self.target.headers,
                content_length: None,
                te_trailers: false,
                expects_continue: false,
            };
            let sent = self
                .codec
                .send_request(number(id), request, true, &mut self.out);
            if sent.is_err() {
                self.statistics.count_error("requests that cannot be sent");
                return;
            }
            let mut chunks = [Bytes::copy_from_slice(&self.out)];
            self.out.clear();
            // A head of some bytes fits into every window that a server offers.
            if self.quic.write(id, &mut chunks).is_err() || self.quic.finish(id).is_err() {
                self.statistics.count_error("requests that cannot be sent");
                return;
            }
            let began = if with_handshake {
                self.began
            } else {
                Instant::now()
            };
            let request = OpenRequest {
                began,
                body: 0,
                is_ok: false,
            };
            self.requests.insert(number(id), request);
        }
    }

    /// Sends what the codec has, and does what it requests.
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
                    let _ = self.quic.reset(stream(id), code.0);
                }
                StreamAction::StopSending { id, code } => {
                    let _ = self.quic.stop_sending(stream(id), code.0);
                }
                StreamAction::Resume { .. } => {
                    self.statistics
                        .count_error("field sections that were blocked");
                }
            }
        }
    }

    fn read(&mut self, id: StreamId) -> Result<(), H3Error> {
        let mut chunks = Vec::new();
        let end = match self.quic.read(id, usize::MAX, |chunk| chunks.push(chunk)) {
            Ok(read) => read == StreamRead::Finished,
            Err(StreamError::Reset { code }) => {
                let event = self.codec.handle_reset(number(id), H3ErrorCode(code))?;
                if self.requests.remove(&number(id)).is_some() {
                    self.statistics.count_error("responses that were reset");
                }
                if let Some(event) = event {
                    self.note(event);
                }
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        if chunks.is_empty() && end {
            chunks.push(Bytes::new());
        }
        let count = chunks.len();
        for (index, mut chunk) in chunks.into_iter().enumerate() {
            let is_last = end && index + 1 == count;
            loop {
                match self.codec.handle_stream(number(id), &mut chunk, is_last)? {
                    H3Event::Incomplete | H3Event::Blocked => break,
                    event => self.note(event),
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, event: H3Event) {
        match event {
            H3Event::Response {
                stream,
                status,
                end,
                ..
            } => {
                if let Some(request) = self.requests.get_mut(&stream.id()) {
                    request.is_ok = status == http::StatusCode::OK;
                }
                self.note_end(stream, end);
            }
            H3Event::Data { stream, data, end } => {
                if let Some(request) = self.requests.get_mut(&stream.id()) {
                    request.body += data.len() as u64;
                }
                self.note_end(stream, end);
            }
            H3Event::Trailers { stream, .. } => self.note_end(stream, true),
            H3Event::Malformed { .. } | H3Event::Reset { .. } => {
                self.statistics
                    .count_error("responses that were malformed or reset");
            }
            H3Event::GoAway { .. } => self.statistics.count_error("GOAWAY"),
            _ => {}
        }
    }

    fn note_end(&mut self, stream: StreamKey, end: bool) {
        if !end {
            return;
        }
        let Some(request) = self.requests.remove(&stream.id()) else {
            return;
        };
        self.responses += 1;
        if self.responses == 1 {
            self.statistics.count_settled();
        }
        let is_whole = self
            .target
            .length
            .is_none_or(|length| length == request.body);
        if request.is_ok && is_whole {
            self.statistics
                .count_response(request.body, request.began.elapsed());
        } else {
            self.statistics
                .count_error("responses with another status or length");
        }
    }
}

fn number(id: StreamId) -> u64 {
    id.into()
}

fn stream(id: u64) -> StreamId {
    let direction = if id & 2 == 0 { Dir::Bi } else { Dir::Uni };
    let side = if id & 1 == 0 {
        apus_quic::Side::Client
    } else {
        apus_quic::Side::Server
    };
    StreamId::new(side, direction, id >> 2)
}
