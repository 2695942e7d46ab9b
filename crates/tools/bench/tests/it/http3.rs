//! HTTP/3, against a scripted server on the codec and QUIC of Apus.

use std::collections::HashMap;
use std::future::poll_fn;
use std::num::{NonZeroU32, NonZeroUsize};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use apus_bench::{BenchError, HttpVersion, LoadFailure, LoadPlan};
use apus_h3::{H3Config, H3Connection, H3ErrorCode, H3Event, StreamKey};
use apus_h3_quic::{Http3Input, Http3Transport, number_of, stream_id};
use apus_http::{Headers, ResponseHead, StatusCode};
use apus_quic::{
    QuicConnection, QuicEndpoint, QuicEvent, QuicKeys, QuicServerTls, QuicSettings, QuicWorkers,
    SelectServerTls, Steering, StreamEvent,
};
use apus_testkit::CertificateAuthority;
use bytes::Bytes;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::harness::{failures, plan, run};

/// What the server does with a request.
enum Http3Action {
    /// Sends a body of so many bytes.
    Respond(usize),
    Reset,
    /// Shuts the connection down, and responds.
    GoAway,
    /// Sends a frame that no response has.
    Malformed,
    /// Closes the connection.
    Close,
    Wait,
}

type Script = dyn Fn(u64) -> Http3Action;

/// Counts over all connections.
#[derive(Default)]
struct Received {
    requests: AtomicU64,
    body_bytes: AtomicU64,
    connections: AtomicU64,
}

struct Http3Server {
    port: u16,
    received: Arc<Received>,
}

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

fn tls(protocol: &[u8]) -> Arc<QuicServerTls> {
    let issued = CertificateAuthority::generate().ecdsa(&["localhost"]);
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

impl Http3Server {
    /// A server that does this with each request, by its number from 0 on. The first is the one before the load.
    fn start(script: impl Fn(u64) -> Http3Action + Send + 'static) -> Self {
        Self::with_protocol(b"h3", script)
    }

    fn with_protocol(
        protocol: &'static [u8],
        script: impl Fn(u64) -> Http3Action + Send + 'static,
    ) -> Self {
        let received = Arc::new(Received::default());
        let counted = Arc::clone(&received);
        let (sender, port) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let workers = QuicWorkers::new(QuicKeys::generate().unwrap(), Steering::ByHandOver);
                let socket = workers.bind(([127, 0, 0, 1], 0).into()).unwrap();
                let sites = Arc::new(OneSite(tls(protocol)));
                let settings = QuicSettings::default();
                let (endpoint, task) = QuicEndpoint::new(socket, settings, Some(sites)).unwrap();
                tokio::task::spawn_local(task);
                sender.send(endpoint.local_address().port()).unwrap();
                let script: Rc<Script> = Rc::new(script);
                while let Some(quic) = endpoint.accept().await {
                    counted.connections.fetch_add(1, Ordering::SeqCst);
                    let end = ServerEnd::new(quic, Rc::clone(&script), Arc::clone(&counted));
                    tokio::task::spawn_local(end.serve());
                }
            });
        });
        Self {
            port: port.recv().unwrap(),
            received,
        }
    }

    fn plan(&self, connections: usize, requests: u64) -> LoadPlan {
        let url = format!("https://127.0.0.1:{}/", self.port);
        let mut plan = plan(&url, connections, requests);
        plan.version = HttpVersion::Http3;
        plan.tls.verify = false;
        plan
    }
}

/// The server's end of a connection.
struct ServerEnd {
    transport: Http3Transport,
    input: Http3Input,
    script: Rc<Script>,
    received: Arc<Received>,
    bodies: HashMap<u64, u64>,
}

impl ServerEnd {
    fn new(quic: QuicConnection, script: Rc<Script>, received: Arc<Received>) -> Self {
        let codec = H3Connection::server(H3Config {
            max_concurrent_streams: 1_000,
            target_bytes: 1 << 16,
            head_bytes: 1 << 16,
            fields: 100,
            extended_connect: false,
            decoder_table_bytes: 4096,
            blocked_streams: 0,
            encoder_table_bytes: 4096,
        });
        Self {
            transport: Http3Transport::new(codec, quic),
            input: Http3Input::default(),
            script,
            received,
            bodies: HashMap::new(),
        }
    }

    async fn serve(mut self) {
        loop {
            self.transport.flush(|_| {});
            self.input.begin_round();
            while let Some(event) = self.input.next_event(&mut self.transport, 0) {
                self.handle(event.expect("the client keeps to the protocol"));
            }
            self.transport.flush(|_| {});
            if self.input.is_due(&self.transport) {
                continue;
            }
            match poll_fn(|cx| self.transport.quic.poll_event(cx)).await {
                QuicEvent::Stream(StreamEvent::Opened(stream) | StreamEvent::Readable(stream)) => {
                    self.input.note_readable(number_of(stream));
                }
                QuicEvent::Stream(StreamEvent::Writable(stream)) => {
                    self.transport.note_writable(number_of(stream));
                    self.transport.continue_outputs();
                }
                QuicEvent::Closed(_) => return,
                _ => {}
            }
        }
    }

    fn handle(&mut self, event: H3Event) {
        match event {
            H3Event::Request(request) if request.end => self.respond(request.stream),
            H3Event::Data { stream, data, end } => {
                self.input.note_consumed(stream.id(), data.len());
                *self.bodies.entry(stream.id()).or_default() += data.len() as u64;
                if end {
                    let bytes = self.bodies.remove(&stream.id()).unwrap_or(0);
                    self.received.body_bytes.fetch_add(bytes, Ordering::SeqCst);
                    self.respond(stream);
                }
            }
            _ => {}
        }
    }

    fn respond(&mut self, stream: StreamKey) {
        let number = self.received.requests.fetch_add(1, Ordering::SeqCst);
        let quic = &self.transport.quic;
        match (self.script)(number) {
            Http3Action::Respond(length) => self.send(stream, length),
            Http3Action::Reset => self
                .transport
                .codec
                .reset(stream, H3ErrorCode::INTERNAL_ERROR),
            Http3Action::GoAway => {
                self.transport.codec.go_away();
                self.send(stream, 1);
            }
            Http3Action::Malformed => {
                // DATA before HEADERS (RFC 9114 section 4.1).
                let frame = Bytes::from_static(b"\0\x01x");
                quic.write(stream_id(stream.id()), &mut [frame]).unwrap();
            }
            Http3Action::Close => quic.close(H3ErrorCode::INTERNAL_ERROR.0, Bytes::new()),
            Http3Action::Wait => {}
        }
    }

    fn send(&mut self, stream: StreamKey, length: usize) {
        let head = ResponseHead {
            status: StatusCode::OK,
            headers: &Headers::new(),
            content_length: Some(length as u64),
            date: b"Mon, 01 Jan 2024 00:00:00 GMT",
            server: None,
            alt_svc: None,
        };
        self.transport.send_head(stream, head);
        if length > 0 {
            self.transport
                .send_bytes(stream, vec![b'x'; length].into(), true);
        }
    }
}

#[test]
fn streams_share_connections() {
    let server = Http3Server::start(|_| Http3Action::Respond(100));
    let mut plan = server.plan(3, 3000);
    plan.in_flight = NonZeroUsize::new(10).unwrap();
    plan.expected.length = Some(100);
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (3000, 0), "{report:?}");
    assert_eq!((report.connections_opened, report.protocol), (3, "HTTP/3"));
    assert_eq!(report.statuses.get(&200), Some(&3000));
    assert!(report.latency.p50_ms > 0.0 && report.connect_time.count == 3);
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let server = Http3Server::start(|_| Http3Action::Respond(1_000_000));
    let mut plan = server.plan(1, 8);
    plan.in_flight = NonZeroUsize::new(4).unwrap();
    plan.requests[0].method = apus_http::Method::POST;
    plan.requests[0].body = vec![b'y'; 300_000].into();
    plan.expected.body = Some(vec![b'x'; 1_000_000]);
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (8, 0), "{report:?}");
    let received = server.received.body_bytes.load(Ordering::SeqCst);
    assert_eq!(received, 9 * 300_000);
}

/// Runs twenty requests, two at a time, over one connection. The server does this with the fifth.
fn with_fifth(action: fn() -> Http3Action) -> apus_bench::BenchReport {
    let server = Http3Server::start(move |number| match number {
        5 => action(),
        _ => Http3Action::Respond(1),
    });
    let mut plan = server.plan(1, 20);
    plan.in_flight = NonZeroUsize::new(2).unwrap();
    plan.timeout = Duration::from_secs(1);
    let report = run(plan);
    assert_eq!(report.responses + report.failed, 20, "{report:?}");
    assert!(report.latency.max_ms < 900.0, "{}", report.latency.max_ms);
    report
}

#[test]
fn a_stream_that_is_reset_is_counted_and_the_connection_goes_on() {
    let report = with_fifth(|| Http3Action::Reset);
    assert_eq!(failures(&report), [(LoadFailure::StreamReset, 1)]);
    assert_eq!(report.connections_opened, 1);
}

#[test]
fn a_connection_that_is_shut_down_is_counted_and_opened_again() {
    let report = with_fifth(|| Http3Action::GoAway);
    // Requests that were on their way when the connection was shut down are not processed.
    assert!(report.failed <= 2, "{report:?}");
    assert!(
        failures(&report)
            .iter()
            .all(|(kind, _)| matches!(kind, LoadFailure::GoAway | LoadFailure::StreamReset)),
        "{report:?}"
    );
    assert_eq!((report.connections_opened, report.goaways), (2, 1));
}

#[test]
fn a_stream_without_a_response_is_a_timeout_and_the_others_go_on() {
    let report = with_fifth(|| Http3Action::Wait);
    assert_eq!(failures(&report), [(LoadFailure::Timeout, 1)]);
    assert_eq!(report.connections_opened, 1);
}

#[test]
fn a_malformed_response_fails_the_connection() {
    let report = with_fifth(|| Http3Action::Malformed);
    let found = failures(&report);
    assert!(
        matches!(found[..], [(LoadFailure::Malformed, 1 | 2)]),
        "{found:?}"
    );
    assert_eq!(report.connections_opened, 2);
}

#[test]
fn a_connection_that_closes_instead_of_a_response_is_counted() {
    let report = with_fifth(|| Http3Action::Close);
    let found = failures(&report);
    assert!(
        matches!(found[..], [(LoadFailure::ClosedBeforeResponse, 1 | 2)]),
        "{found:?}"
    );
    assert_eq!(report.connections_opened, 2);
}

#[test]
fn each_request_has_a_connection_of_its_own_that_resumes_a_session_or_not() {
    let server = Http3Server::start(|_| Http3Action::Respond(1));
    for resumes in [true, false] {
        let before = server.received.connections.load(Ordering::SeqCst);
        let mut plan = server.plan(8, 80);
        plan.keeps_alive = false;
        plan.tls.resumes = resumes;
        let report = run(plan);
        assert_eq!((report.responses, report.failed), (80, 0), "{report:?}");
        assert_eq!(report.connections_opened, 80);
        // With the connection before the load.
        let accepted = server.received.connections.load(Ordering::SeqCst) - before;
        assert_eq!(accepted, 81);
        // Each of the eight begins with a full handshake.
        if resumes {
            assert!(report.handshakes_resumed >= 60, "{report:?}")
        } else {
            assert_eq!(report.handshakes_resumed, 0)
        }
        // The latency has the handshake in it.
        assert!(report.latency.min_ms >= report.connect_time.min_ms);
    }
}

#[test]
fn an_open_loop_keeps_its_rate_over_streams() {
    let server = Http3Server::start(|_| Http3Action::Respond(1));
    let mut plan = server.plan(2, 200);
    plan.in_flight = NonZeroUsize::new(8).unwrap();
    plan.rate = Some("400".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (200, 0));
    assert!((0.45..0.9).contains(&report.seconds), "{}", report.seconds);
}

#[test]
fn a_server_without_http3_is_an_error() {
    let server = Http3Server::with_protocol(b"other", |_| Http3Action::Respond(1));
    let error = apus_bench::run(server.plan(1, 1), &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }), "{error}");

    let mut verified = Http3Server::start(|_| Http3Action::Respond(1)).plan(1, 1);
    verified.tls.verify = true;
    verified.tls.authorities = Some(CertificateAuthority::generate().pem.into_bytes());
    let error = apus_bench::run(verified, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("--insecure"), "{error}");

    let mut clear = plan("http://127.0.0.1:1/", 1, 1);
    clear.version = HttpVersion::Http3;
    let error = apus_bench::run(clear, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Plan(_)), "{error}");
}

#[test]
fn a_connection_thinks_between_a_response_and_its_next_request() {
    let server = Http3Server::start(|_| Http3Action::Respond(1));
    let mut plan = server.plan(1, 4);
    plan.think_time = Some("60ms".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (4, 0));
    assert!(report.seconds >= 0.175, "{}", report.seconds);
}

#[test]
fn slow_clients_read_and_send_at_their_speed() {
    let server = Http3Server::start(|_| Http3Action::Respond(100_000));
    let mut reading = server.plan(1, 1);
    reading.probes = false;
    reading.speed.receive = NonZeroU32::new(200_000);
    reading.expected.length = Some(100_000);
    let report = run(reading);
    assert_eq!((report.responses, report.failed), (1, 0), "{report:?}");
    // The first tenth of a second is for free.
    assert!(report.latency.min_ms >= 350.0, "{}", report.latency.min_ms);

    let mut sending = server.plan(1, 1);
    sending.probes = false;
    sending.requests[0].body = vec![b'y'; 40_000].into();
    sending.speed.send = NonZeroU32::new(80_000);
    let report = run(sending);
    assert_eq!((report.responses, report.failed), (1, 0), "{report:?}");
    assert!(report.latency.min_ms >= 350.0, "{}", report.latency.min_ms);
    assert_eq!(server.received.body_bytes.load(Ordering::SeqCst), 40_000);
}

#[test]
fn several_slow_streams_share_a_connection() {
    let server = Http3Server::start(|_| Http3Action::Respond(50_000));
    let mut plan = server.plan(1, 6);
    plan.in_flight = NonZeroUsize::new(3).unwrap();
    plan.speed.receive = NonZeroU32::new(1_000_000);
    plan.requests[0].body = vec![b'y'; 20_000].into();
    plan.speed.send = NonZeroU32::new(1_000_000);
    plan.expected.body = Some(vec![b'x'; 50_000]);
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (6, 0), "{report:?}");
}
