//! Loads over WebSocket over HTTP/2 (RFC 8441), against the crate `h2`.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::mpsc::channel;
use std::thread;

use apus_bench::{BenchError, HttpVersion, LoadFailure, LoadPlan, WebSocketMode};
use apus_websocket::codec::{CodecSettings, WebSocketConnection, WebSocketEvent};
use bytes::{Bytes, BytesMut};
use h2::ext::Protocol;
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{failures, plan, run};

/// What the server does.
#[derive(Clone, Copy, PartialEq)]
enum TunnelAction {
    Echo,
    /// Responds to the handshake with 403.
    Refuse,
    /// Does not offer extended CONNECT.
    NoConnect,
    /// Resets the stream at the first message.
    Reset,
}

fn start(action: TunnelAction) -> u16 {
    let (sender, port) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap().port()).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                tokio::task::spawn_local(serve(socket, action));
            }
        });
    });
    port.recv().unwrap()
}

async fn serve(socket: TcpStream, action: TunnelAction) {
    let mut builder = h2::server::Builder::new();
    if action != TunnelAction::NoConnect {
        builder.enable_connect_protocol();
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let protocol = request.extensions().get::<Protocol>();
        assert_eq!(protocol.map(Protocol::as_str), Some("websocket"));
        assert_eq!(request.headers()["sec-websocket-version"], "13");
        assert_eq!(request.uri().path(), "/room");
        tokio::task::spawn_local(async move {
            let status = if action == TunnelAction::Refuse {
                403
            } else {
                200
            };
            let head = http::Response::builder().status(status).body(()).unwrap();
            let is_refused = action == TunnelAction::Refuse;
            let Ok(mut out) = respond.send_response(head, is_refused) else {
                return;
            };
            let mut body = request.into_body();
            let mut codec = WebSocketConnection::server(&CodecSettings::default());
            let mut input = BytesMut::new();
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len());
                input.extend_from_slice(&data);
                while let Some(event) = codec.handle_input(&mut input) {
                    if let WebSocketEvent::Message(message) = event {
                        codec.send(message).unwrap();
                    }
                }
                let mut output = Vec::new();
                while !codec.output().is_empty() {
                    output.extend_from_slice(codec.output());
                    codec.consume_output(codec.output().len());
                }
                if action == TunnelAction::Reset && !output.is_empty() {
                    out.send_reset(h2::Reason::INTERNAL_ERROR);
                    return;
                }
                if !output.is_empty() && out.send_data(output.into(), false).is_err() {
                    return;
                }
            }
        });
    }
}

fn echo_plan(port: u16, connections: usize, messages: u64) -> LoadPlan {
    let mut plan = plan(
        &format!("ws://127.0.0.1:{port}/room"),
        connections,
        messages,
    );
    plan.websocket = Some(WebSocketMode::Echo);
    plan.version = HttpVersion::Http2;
    plan.requests[0].body = "hello".into();
    plan
}

#[test]
fn messages_come_back_over_streams() {
    let port = start(TunnelAction::Echo);
    let mut plan = echo_plan(port, 3, 300);
    let report = run(plan.clone());
    assert_eq!((report.responses, report.failed), (300, 0), "{report:?}");
    assert_eq!(report.connections_opened, 3);
    assert_eq!(report.protocol, "WebSocket over HTTP/2 (echo)");

    // More than the windows of HTTP/2 have at first.
    plan.in_flight = NonZeroUsize::new(8).unwrap();
    plan.requests[0].body = vec![0xff; 100_000].into();
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (300, 0), "{report:?}");
}

#[test]
fn connections_are_replaced_after_a_number_of_messages() {
    let port = start(TunnelAction::Echo);
    let mut plan = echo_plan(port, 1, 30);
    plan.life.requests = NonZeroU64::new(10);
    let report = run(plan.clone());
    assert_eq!((report.responses, report.failed), (30, 0), "{report:?}");
    assert_eq!(report.connections_opened, 3);

    plan.life.requests = None;
    plan.limit = apus_bench::LoadLimit::Requests(1);
    plan.probes = false;
    plan.requests[0].body = vec![b'x'; 40_000].into();
    plan.speed.receive = NonZeroU32::new(80_000);
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (1, 0), "{report:?}");
    assert!(report.latency.min_ms >= 350.0, "{}", report.latency.min_ms);
}

#[test]
fn servers_without_websocket_over_http2_are_told_apart() {
    let plan = echo_plan(start(TunnelAction::NoConnect), 1, 1);
    let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("extended CONNECT"), "{error}");

    let report = run(echo_plan(start(TunnelAction::Refuse), 1, 1));
    let [refused] = &report.failures[..] else {
        panic!("{report:?}");
    };
    assert_eq!(refused.kind, LoadFailure::WrongStatus);
    assert!(
        refused
            .cause
            .as_ref()
            .unwrap()
            .contains("status 403 instead of 200")
    );
}

#[test]
fn a_stream_that_is_reset_is_counted() {
    let mut plan = echo_plan(start(TunnelAction::Reset), 1, 1);
    plan.probes = false;
    let report = run(plan);
    assert_eq!(failures(&report), [(LoadFailure::StreamReset, 1)]);
}

#[test]
fn what_means_nothing_for_messages_is_rejected() {
    let changes: [fn(&mut LoadPlan); 4] = [
        |plan| plan.keeps_alive = false,
        |plan| plan.expected.length = Some(1),
        |plan| plan.version = HttpVersion::Http3,
        |plan| {
            plan.websocket = Some(WebSocketMode::Broadcast);
            plan.life.requests = NonZeroU64::new(1);
        },
    ];
    for change in changes {
        let mut plan = echo_plan(1, 1, 1);
        change(&mut plan);
        let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
        assert!(matches!(error, BenchError::Plan(_)), "{error}");
    }
}
