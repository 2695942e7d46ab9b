//! An origin over HTTP/3 whose behaviour a test writes as a script: the codec in the role of a server over our QUIC.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll};

use apus_h3::{H3Config, H3Connection, H3ErrorCode, H3Event, IncomingRequest, StreamKey};
use apus_h3_quic::{Http3Input, Http3Transport, number_of, stream_id};
use apus_http::{Headers, ResponseHead, StatusCode};
use apus_quic::{
    QuicCloseReason, QuicConnection, QuicEndpoint, QuicEvent, QuicKeys, QuicServerTls,
    QuicSettings, QuicWorkers, SelectServerTls, Steering, StreamEvent,
};
use apus_testkit::CertificateAuthority;
use bytes::Bytes;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::LocalSet;

use crate::harness::PATIENCE;

/// An origin on a separate thread, which serves one connection.
pub(super) struct ScriptedOrigin {
    pub(super) address: SocketAddr,
    pub(super) authority: CertificateAuthority,
    thread: std::thread::JoinHandle<()>,
}

/// What the script of an origin returns.
pub(super) type Script<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

struct OneSite(Arc<QuicServerTls>);

impl SelectServerTls for OneSite {
    fn select(
        &self,
        _name: Option<&str>,
        _client: Option<std::net::IpAddr>,
    ) -> Option<Arc<QuicServerTls>> {
        Some(Arc::clone(&self.0))
    }
}

impl ScriptedOrigin {
    pub(super) fn start(
        script: impl for<'a> FnOnce(&'a mut OriginEnd) -> Script<'a> + Send + 'static,
    ) -> Self {
        Self::with(b"h3", QuicSettings::default(), script)
    }

    /// An origin with another protocol, or other settings of QUIC.
    pub(super) fn with(
        protocol: &'static [u8],
        settings: QuicSettings,
        script: impl for<'a> FnOnce(&'a mut OriginEnd) -> Script<'a> + Send + 'static,
    ) -> Self {
        let authority = CertificateAuthority::generate();
        let tls = tls(&authority, protocol);
        let (sender, address) = channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            LocalSet::new().block_on(&runtime, async {
                let workers = QuicWorkers::new(QuicKeys::generate().unwrap(), Steering::ByHandOver);
                let socket = workers.bind(([127, 0, 0, 1], 0).into()).unwrap();
                let sites = Arc::new(OneSite(tls));
                let (endpoint, task) = QuicEndpoint::new(socket, settings, Some(sites)).unwrap();
                let task = tokio::task::spawn_local(task);
                sender.send(endpoint.local_address()).unwrap();
                let Ok(Some(quic)) = tokio::time::timeout(PATIENCE, endpoint.accept()).await else {
                    return;
                };
                let mut origin = OriginEnd::new(quic);
                let played = tokio::time::timeout(PATIENCE, script(&mut origin)).await;
                played.expect("the script to end");
                drop(origin);
                // Lets the last packets leave.
                endpoint.stop();
                let _ = tokio::time::timeout(PATIENCE, task).await;
            });
        });
        Self {
            address: address.recv().unwrap(),
            authority,
            thread,
        }
    }

    /// Waits for the end of the script, and panics if it did.
    pub(super) async fn finish(self) {
        let thread = self.thread;
        tokio::task::spawn_blocking(move || thread.join().expect("the script"))
            .await
            .unwrap();
    }
}

fn tls(authority: &CertificateAuthority, protocol: &[u8]) -> Arc<QuicServerTls> {
    let issued = authority.ecdsa(&["origin.test"]);
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![issued.der.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(QuicServerTls::new(config, false).unwrap())
}

/// The origin's end of a connection.
pub(super) struct OriginEnd {
    pub(super) transport: Http3Transport,
    input: Http3Input,
    events: VecDeque<H3Event>,
    /// Requests that came while something else was awaited.
    requests: VecDeque<IncomingRequest<StreamKey>>,
    closed: Option<QuicCloseReason>,
    /// Whether the control and QPACK streams are sent.
    pub(super) is_silent: bool,
}

impl OriginEnd {
    fn new(quic: QuicConnection) -> Self {
        let codec = H3Connection::server(H3Config {
            max_concurrent_streams: 1_000,
            target_bytes: 1 << 16,
            head_bytes: 1 << 16,
            fields: 100,
            extended_connect: false,
            decoder_table_bytes: 0,
            blocked_streams: 0,
            encoder_table_bytes: 0,
        });
        Self {
            transport: Http3Transport::new(codec, quic),
            input: Http3Input::default(),
            events: VecDeque::new(),
            requests: VecDeque::new(),
            closed: None,
            is_silent: false,
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<H3Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if let H3Event::Data { stream, data, .. } = &event {
                    self.input.note_consumed(stream.id(), data.len());
                }
                return Poll::Ready(event);
            }
            self.send_all();
            self.input.begin_round();
            while let Some(event) = self.input.next_event(&mut self.transport, 0) {
                self.events
                    .push_back(event.expect("the client keeps to the protocol"));
            }
            if !self.events.is_empty() {
                continue;
            }
            match self.transport.quic.poll_event(cx) {
                Poll::Pending if self.input.is_due(&self.transport) => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(QuicEvent::Stream(
                    StreamEvent::Opened(stream) | StreamEvent::Readable(stream),
                )) => {
                    self.input.note_readable(number_of(stream));
                }
                Poll::Ready(QuicEvent::Stream(StreamEvent::Writable(stream))) => {
                    self.transport.note_writable(number_of(stream));
                    self.transport.continue_outputs();
                }
                Poll::Ready(QuicEvent::Stream(StreamEvent::Stopped { stream, code })) => {
                    let (id, code) = (number_of(stream), H3ErrorCode(code));
                    let event = self.transport.codec.handle_stop_sending(id, code);
                    self.events.extend(event.unwrap());
                }
                Poll::Ready(QuicEvent::Closed(reason)) => {
                    self.closed = Some(reason);
                    return Poll::Pending;
                }
                Poll::Ready(_) => {}
            }
        }
    }

    /// The next event of the client.
    pub(super) async fn event(&mut self) -> H3Event {
        poll_fn(|cx| match self.poll_event(cx) {
            Poll::Pending if self.closed.is_some() => panic!("closed: {:?}", self.closed),
            polled => polled,
        })
        .await
    }

    /// The next request.
    pub(super) async fn request(&mut self) -> IncomingRequest<StreamKey> {
        if let Some(request) = self.requests.pop_front() {
            return request;
        }
        loop {
            if let H3Event::Request(request) = self.event().await {
                return request;
            }
        }
    }

    /// Waits until the client aborts a stream; its code.
    pub(super) async fn reset_of(&mut self, expected: StreamKey) -> H3ErrorCode {
        loop {
            match self.event().await {
                H3Event::Reset { stream, code } if stream == expected => return code,
                H3Event::Request(request) => self.requests.push_back(request),
                _ => {}
            }
        }
    }

    /// The whole body of a request.
    pub(super) async fn body(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            if let H3Event::Data { data, end, .. } = self.event().await {
                body.extend_from_slice(&data);
                if end {
                    return body;
                }
            }
        }
    }

    /// Waits until the client ends the connection; why.
    pub(super) async fn closed(&mut self) -> QuicCloseReason {
        poll_fn(|cx| {
            loop {
                let polled = self.poll_event(cx);
                if let Some(reason) = &self.closed {
                    return Poll::Ready(reason.clone());
                }
                if polled.is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Waits until the client ends the connection in order.
    pub(super) async fn ended(&mut self) {
        let reason = self.closed().await;
        assert!(
            matches!(&reason, QuicCloseReason::Application { code, .. }
                if *code == H3ErrorCode::NO_ERROR.0),
            "{reason}"
        );
    }

    /// Sends the head of a response.
    pub(super) fn head(&mut self, stream: StreamKey, status: u16, length: Option<u64>) {
        let head = ResponseHead {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &Headers::new(),
            content_length: length,
            date: b"Mon, 01 Jan 2024 00:00:00 GMT",
            server: None,
            alt_svc: None,
        };
        self.transport.send_head(stream, head);
        self.send_all();
    }

    /// Sends data of a response, whose stream ends with it if `end`.
    pub(super) fn data(&mut self, stream: StreamKey, data: impl Into<Bytes>, end: bool) {
        self.transport.send_bytes(stream, data.into(), end);
        self.send_all();
    }

    /// Sends a whole response.
    pub(super) fn respond(&mut self, stream: StreamKey, status: u16, body: &'static str) {
        self.head(stream, status, Some(body.len() as u64));
        if !body.is_empty() {
            self.data(stream, body, true);
        }
    }

    /// Sends bytes on the stream of a request, whatever they mean.
    pub(super) fn raw(&mut self, stream: StreamKey, bytes: &'static [u8], end: bool) {
        let id = stream_id(stream.id());
        let quic = &self.transport.quic;
        quic.write(id, &mut [Bytes::from_static(bytes)]).unwrap();
        if end {
            quic.finish(id).unwrap();
        }
    }

    pub(super) fn reset(&mut self, stream: StreamKey, code: H3ErrorCode) {
        self.transport.codec.reset(stream, code);
        self.send_all();
    }

    pub(super) fn close(&mut self, code: H3ErrorCode) {
        self.transport.quic.close(code.0, Bytes::new());
    }

    /// Gives QUIC all that was encoded.
    pub(super) fn send_all(&mut self) {
        if !self.is_silent {
            self.transport.flush(|_| {});
        }
    }
}
