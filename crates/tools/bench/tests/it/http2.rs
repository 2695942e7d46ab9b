//! HTTP/2, against the crate `h2`.

use std::io::Read;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use apus_bench::{BenchError, HttpVersion, LoadFailure, LoadPlan};
use apus_testkit::scripted::{Action, ScriptedServer, response};
use h2::Reason;
use tokio::net::TcpListener;

use crate::harness::{failures, plan, run};

/// What the server does with a stream.
enum StreamAction {
    /// Sends a body of so many bytes.
    Respond(usize),
    Reset,
    /// Shuts the connection down after the response.
    GoAway,
    Wait,
}

struct Http2Server {
    port: u16,
    /// The bytes of all request bodies.
    received: Arc<AtomicU64>,
}

impl Http2Server {
    /// A server that does this with each stream, by its number from 0 on. The first is the one before the load.
    fn start(script: impl Fn(u64) -> StreamAction + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(AtomicU64::new(0));
        let (script, bytes) = (Arc::new(script), Arc::clone(&received));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let number = Arc::new(AtomicU64::new(0));
                while let Ok((socket, _)) = listener.accept().await {
                    let (script, bytes) = (Arc::clone(&script), Arc::clone(&bytes));
                    let number = Arc::clone(&number);
                    tokio::spawn(async move {
                        let Ok(mut connection) = h2::server::handshake(socket).await else {
                            return;
                        };
                        while let Some(Ok((request, mut respond))) = connection.accept().await {
                            let action = script(number.fetch_add(1, Ordering::SeqCst));
                            if matches!(action, StreamAction::GoAway) {
                                connection.graceful_shutdown();
                            }
                            let bytes = Arc::clone(&bytes);
                            tokio::spawn(async move {
                                let mut body = request.into_body();
                                while let Some(Ok(data)) = body.data().await {
                                    let _ = body.flow_control().release_capacity(data.len());
                                    bytes.fetch_add(data.len() as u64, Ordering::SeqCst);
                                }
                                let len = match action {
                                    StreamAction::Respond(len) => len,
                                    StreamAction::GoAway => 1,
                                    StreamAction::Reset => {
                                        respond.send_reset(Reason::INTERNAL_ERROR);
                                        return;
                                    }
                                    StreamAction::Wait => {
                                        std::future::pending::<()>().await;
                                        return;
                                    }
                                };
                                let head = http::Response::builder().status(200).body(()).unwrap();
                                let Ok(mut stream) = respond.send_response(head, len == 0) else {
                                    return;
                                };
                                if len > 0 {
                                    let _ = stream.send_data(vec![b'x'; len].into(), true);
                                }
                            });
                        }
                    });
                }
            });
        });
        Self { port, received }
    }

    fn plan(&self, connections: usize, requests: u64) -> LoadPlan {
        let mut plan = plan(
            &format!("http://127.0.0.1:{}/", self.port),
            connections,
            requests,
        );
        plan.version = HttpVersion::Http2;
        plan
    }
}

#[test]
fn streams_share_connections() {
    let server = Http2Server::start(|_| StreamAction::Respond(100));
    let mut plan = server.plan(3, 3000);
    plan.in_flight = NonZeroUsize::new(10).unwrap();
    plan.expected.length = Some(100);
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (3000, 0), "{report:?}");
    assert_eq!((report.connections_opened, report.protocol), (3, "HTTP/2"));
    assert_eq!(report.statuses.get(&200), Some(&3000));
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let server = Http2Server::start(|_| StreamAction::Respond(1_000_000));
    let mut plan = server.plan(1, 8);
    plan.in_flight = NonZeroUsize::new(4).unwrap();
    plan.requests[0].method = apus_http::Method::POST;
    plan.requests[0].body = vec![b'y'; 300_000].into();
    plan.expected.body = Some(vec![b'x'; 1_000_000]);
    let report = run(plan);
    assert_eq!(
        (report.responses, report.failed),
        (8, 0),
        "{:?}",
        report.failures
    );
    assert_eq!(server.received.load(Ordering::SeqCst), 9 * 300_000);
}

#[test]
fn a_stream_that_is_reset_is_counted_and_the_connection_goes_on() {
    let server = Http2Server::start(|number| match number {
        5 => StreamAction::Reset,
        _ => StreamAction::Respond(0),
    });
    let report = run(server.plan(1, 10));
    assert_eq!(report.responses, 9);
    assert_eq!(failures(&report), [(LoadFailure::StreamReset, 1)]);
    assert_eq!(report.connections_opened, 1);
}

#[test]
fn a_connection_that_is_shut_down_is_counted_and_opened_again() {
    let server = Http2Server::start(|number| match number {
        5 => StreamAction::GoAway,
        _ => StreamAction::Respond(1),
    });
    let report = run(server.plan(1, 20));
    assert_eq!(
        (report.responses, report.failed),
        (20, 0),
        "{:?}",
        report.failures
    );
    assert_eq!(report.connections_opened, 2);
    assert!(report.goaways >= 1, "{}", report.goaways);
}

#[test]
fn a_stream_without_a_response_is_a_timeout_and_the_others_go_on() {
    let server = Http2Server::start(|number| match number {
        5 => StreamAction::Wait,
        _ => StreamAction::Respond(1),
    });
    let mut plan = server.plan(1, 20);
    plan.in_flight = NonZeroUsize::new(2).unwrap();
    plan.timeout = Duration::from_millis(500);
    let report = run(plan);
    assert_eq!(report.responses, 19);
    assert_eq!(failures(&report), [(LoadFailure::Timeout, 1)]);
    assert!(report.latency.max_ms < 450.0, "{}", report.latency.max_ms);
}

#[test]
fn an_open_loop_keeps_its_rate_over_streams() {
    let server = Http2Server::start(|_| StreamAction::Respond(1));
    let mut plan = server.plan(2, 200);
    plan.in_flight = NonZeroUsize::new(8).unwrap();
    plan.rate = Some("400".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (200, 0));
    assert!((0.45..0.7).contains(&report.seconds), "{}", report.seconds);
}

#[test]
fn a_server_without_http2_is_an_error() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let mut plan = plan(&server.url("/"), 1, 1);
    plan.version = HttpVersion::Http2;
    plan.timeout = Duration::from_secs(2);
    let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }), "{error}");
}

#[test]
fn a_connection_thinks_between_a_response_and_its_next_request() {
    let server = Http2Server::start(|_| StreamAction::Respond(1));
    let mut plan = server.plan(1, 4);
    plan.think_time = Some("60ms".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (4, 0));
    assert!(report.seconds >= 0.175, "{}", report.seconds);
}

/// With windows of 64 KiB, as RFC 9113 has them at the start, servers keep buffers for streams that wait: nginx needed
/// 790 MB in place of 54.
#[test]
fn no_server_waits_for_the_window_of_a_stream() {
    const DEFAULT: u32 = 16 << 20;
    for (asked, window) in [
        (None, DEFAULT),
        (Some(65_536), 65_536),
        (Some(1 << 30), 1 << 30),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            // The preface, and the header of SETTINGS (RFC 9113 section 3.4).
            let mut start = [0; 24 + 9];
            socket.read_exact(&mut start).unwrap();
            let length = usize::from(start[26]);
            let mut settings = vec![0; length];
            socket.read_exact(&mut settings).unwrap();
            let mut settings = settings.chunks_exact(6);
            let window = settings.find(|setting| setting[..2] == [0, 4]);
            window.map(|setting| u32::from_be_bytes(setting[2..].try_into().unwrap()))
        });
        let mut plan = plan(&format!("http://127.0.0.1:{port}/"), 1, 1);
        plan.version = HttpVersion::Http2;
        plan.timeout = Duration::from_secs(2);
        plan.receive_window = asked;
        assert!(apus_bench::run(plan, &mut |_| {}).is_err());
        assert_eq!(server.join().unwrap(), Some(window));
    }
}
