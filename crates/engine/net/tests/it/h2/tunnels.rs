//! CONNECT (RFC 9113 section 8.5) and extended CONNECT (RFC 8441): a stream is handed over as an
//! HTTP/1.1 connection is by CONNECT or Upgrade, to the same services.

use std::sync::Arc;

use apus_http::{HeaderValue, Method, Response, ServiceFactory, StatusCode, header};
use apus_net::{Limits, ListenerPlan};
use apus_testkit::body_bytes;
use apus_testkit::h2::{code, data, request_with, reset, setting, window_update};

use super::client::Peer;
use super::{open, open_tls, open_with, with_tls};
use crate::harness::{Server, local, ok, paths, plan, service};
use crate::tunnels::echo;

/// A service that knows nothing of HTTP/2.
fn accepting() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let upgrade = request.upgrade();
        let mut response = match (request.method(), request.path(), upgrade) {
            (&Method::CONNECT, ..) => Response::new(StatusCode::OK),
            (&Method::GET, "/upgrade", Some("echo")) => {
                Response::new(StatusCode::SWITCHING_PROTOCOLS)
                    .with_header(&header::UPGRADE, &HeaderValue::from_static("echo"))
            }
            (_, path, _) => return ok(path.to_owned()).into(),
        };
        response.set_tunnel(Box::new(|duplex| Box::pin(echo(duplex))));
        response.into()
    })
}

fn extended(path: &str) -> Vec<(&str, &str)> {
    let mut fields = vec![(":protocol", "echo")];
    fields.extend(request_with("CONNECT", path, &[("x", "y")]));
    fields
}

const CONNECT: [(&str, &str); 2] = [(":method", "CONNECT"), (":authority", "b:443")];

/// Sends this through a tunnel and sees it come back.
fn assert_echoes<S: std::io::Read + std::io::Write>(peer: &mut Peer<S>, stream: u32, text: &[u8]) {
    let before = peer.received(stream).body.len();
    peer.upload(stream, text, false);
    peer.until("the echo", |peer| {
        peer.received(stream).body.len() >= before + text.len()
    });
    assert!(peer.received(stream).body[before..] == *text);
}

#[test]
fn extended_connect_is_offered_and_hands_its_stream_over_rfc_8441() {
    let server = Server::start(accepting());
    let (authority, tls_server) = with_tls(Limits::default(), accepting());
    let mut peer = open(&server);
    peer.fence();
    assert_eq!(peer.settings[&setting::ENABLE_CONNECT_PROTOCOL], 1);
    let stream = peer.request(&extended("/upgrade"), false);
    // Early bytes belong to the tunnel.
    peer.send(data(stream, "early", false));
    let head = peer.head(stream);
    assert_eq!(head.status, 200);
    assert_eq!(head.field("upgrade"), None);
    assert_eq!(head.field("content-length"), None);
    peer.until("the echo", |peer| peer.received(stream).text() == "early");
    assert_echoes(&mut peer, stream, b" and later");
    // Other streams share the connection.
    assert_eq!(peer.fetch("/beside").text(), "/beside");
    let second = peer.request(&extended("/upgrade"), false);
    assert_echoes(&mut peer, second, b"second");
    assert_echoes(&mut peer, stream, b" and first");
    peer.send(data(stream, "", true));
    assert_eq!(peer.response(stream).text(), "early and later and first");
    assert_echoes(&mut peer, second, b" goes on");

    let mut peer = open_tls(&authority, &tls_server);
    let stream = peer.request(&extended("/upgrade"), false);
    assert_echoes(&mut peer, stream, b"over TLS");
}

#[test]
fn connect_hands_its_stream_over_rfc_9113_section_8_5() {
    let server = Server::start(accepting());
    let mut peer = open(&server);
    let stream = peer.request(&CONNECT, false);
    assert_eq!(peer.head(stream).status, 200);
    assert_eq!(peer.head(stream).field("content-length"), None);
    assert_echoes(&mut peer, stream, b"GET / HTTP/1.1\r\n\r\n");
    peer.send(data(stream, "", true));
    assert!(peer.response(stream).ended);
    assert_eq!(server.totals().requests, 1);
}

#[test]
fn much_goes_through_a_tunnel_within_its_windows() {
    let server = Server::start(accepting());
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 3000)]);
    let stream = peer.request(&extended("/upgrade"), false);
    assert_echoes(&mut peer, stream, &body_bytes(300_000));
    assert_eq!(peer.goaways, []);
    // A tunnel that takes nothing gets no more, and can send no more than the windows allow.
    peer.opens_windows = false;
    let before = peer.received(stream).body.len();
    let window = peer.window_of(stream).min(peer.window());
    peer.upload(stream, &body_bytes(window as usize), false);
    peer.fence();
    let echoed = peer.received(stream).body.len() - before;
    assert_eq!(echoed, 3000);
    peer.send(window_update(stream, 1 << 20));
    peer.send(window_update(0, 1 << 20));
    peer.until("the rest", |peer| {
        peer.received(stream).body.len() - before == window as usize
    });
}

#[test]
fn a_tunnel_that_no_service_takes_gets_an_error() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    // A service that does not switch responds as to a GET. Its 200 would open a tunnel here.
    let stream = peer.request(&extended("/upgrade"), false);
    assert_eq!(peer.response(stream).status, 501);
    let stream = peer.request(&CONNECT, false);
    assert_eq!(peer.response(stream).status, 500);
    assert_eq!(peer.fetch("/next").text(), "/next");
}

#[test]
fn no_stream_is_switched_that_did_not_request_it() {
    let server = Server::start(service(|_| {
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        response.set_tunnel(Box::new(|duplex| Box::pin(echo(duplex))));
        response.into()
    }));
    let mut peer = open(&server);
    assert_eq!(peer.fetch("/").status, 500);
    assert_eq!(peer.fetch("/").status, 500);
}

#[test]
fn the_fields_of_a_connect_are_as_they_have_to_be() {
    let server = Server::start(accepting());
    let mut peer = open(&server);
    let authority = (":authority", "b:443");
    for fields in [
        &[(":method", "CONNECT")][..],
        &[(":method", "CONNECT"), (":scheme", "http"), authority],
        &[(":method", "CONNECT"), (":path", "/"), authority],
        &[(":method", "CONNECT"), (":authority", "b")],
        &[(":method", "CONNECT"), (":authority", "b:443\r\nx: y")],
        // RFC 8441 section 4.
        &[(":method", "CONNECT"), (":protocol", "echo"), authority],
        &[
            (":method", "CONNECT"),
            (":protocol", "echo"),
            (":scheme", "http"),
            authority,
        ],
        &[
            (":method", "CONNECT"),
            (":protocol", "echo"),
            (":protocol", "echo"),
            (":scheme", "http"),
            (":path", "/upgrade"),
            authority,
        ],
        &[
            (":method", "CONNECT"),
            (":protocol", "echo\r\nx: y"),
            (":scheme", "http"),
            (":path", "/upgrade"),
            authority,
        ],
    ] {
        let stream = peer.request(fields, false);
        assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR, "{fields:?}");
    }
    assert_eq!(server.totals().requests, 0);
}

#[test]
fn a_tunnel_lives_through_a_reload() {
    let server = Server::start(accepting());
    let mut peer = open(&server);
    let stream = peer.request(&extended("/upgrade"), false);
    assert_echoes(&mut peer, stream, b"before");
    let new = plan(vec![ListenerPlan::new(local(), paths())]);
    server.engine.reload(new).unwrap();
    assert_echoes(&mut peer, stream, b" after");
    let other = peer.request(&extended("/upgrade"), false);
    assert_eq!(peer.response(other).status, 501);
}

#[test]
fn a_reset_ends_a_tunnel_alone() {
    let (sender, ended) = std::sync::mpsc::channel();
    let server = Server::start(service(move |request| {
        if request.path() != "/upgrade" {
            return ok(request.path().to_owned()).into();
        }
        let sender = sender.clone();
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        response.set_tunnel(Box::new(move |duplex| {
            Box::pin(async move {
                echo(duplex).await;
                sender.send(()).unwrap();
            })
        }));
        response.into()
    }));
    let mut peer = open(&server);
    let streams = [(); 2].map(|()| peer.request(&extended("/upgrade"), false));
    for stream in streams {
        assert_echoes(&mut peer, stream, b"x");
    }
    peer.send(reset(streams[0], code::CANCEL));
    ended.recv_timeout(crate::harness::PATIENCE).unwrap();
    assert_echoes(&mut peer, streams[1], b"y");
    assert!(ended.try_recv().is_err());
    drop(peer);
    ended.recv_timeout(crate::harness::PATIENCE).unwrap();
}
