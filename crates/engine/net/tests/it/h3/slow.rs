//! Clients that are slow or silent, and limits of connections.

use std::time::Duration;

use apus_h3::H3ErrorCode;
use apus_http::{Method, ResponseFuture};
use apus_net::{EnginePlan, Http3Settings, Limits};
use apus_quic::{Dir, QuicCloseReason};

use super::{H3Client, H3Request, H3Server};
use crate::harness::{collector, ok, paths, service};

fn short() -> Limits {
    Limits {
        head_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        body_timeout: Duration::from_secs(1),
        ..Limits::default()
    }
}

#[test]
fn a_client_without_settings_is_closed() {
    let server = H3Server::with_limits(short(), paths());
    let mut client = server.open_raw();
    client.assert_closed_with(H3ErrorCode::EXCESSIVE_LOAD);
    assert_eq!(server.server.totals().timeouts, 1);
}

#[test]
fn a_head_that_does_not_end_costs_the_connection() {
    let server = H3Server::with_limits(short(), paths());
    let mut client = server.open();
    assert_eq!(client.get("/a").text(), "/a");
    // A field section of 100 bytes, of which two come.
    client.send_raw(Dir::Bi, &[0x1, 0x40, 100, 0, 0], false);
    client.assert_closed_with(H3ErrorCode::EXCESSIVE_LOAD);
    assert_eq!(server.server.totals().timeouts, 1);
}

#[test]
fn an_idle_connection_ends_gracefully() {
    let server = H3Server::with_limits(short(), paths());
    let mut client = server.open();
    assert_eq!(client.get("/a").text(), "/a");
    client.wait("GOAWAY", |connection| connection.go_away.is_some());
    client.assert_closed_with(H3ErrorCode::NO_ERROR);
    assert_eq!(server.server.totals().timeouts, 0);
}

#[test]
fn a_body_that_does_not_come_breaks_off_for_its_service() {
    let server = H3Server::with_limits(short(), collector());
    let mut client = server.open();
    let id = client.request(&H3Request {
        method: Method::POST,
        has_body: true,
        ..H3Request::get("/")
    });
    client.send_data(id, "a", false);
    let response = client.response(id);
    assert_eq!(response.status, 400, "{}", response.text());
    assert_eq!(server.server.totals().timeouts, 1);
}

#[test]
fn a_handler_may_work_longer_than_the_idle_timeout_of_quic() {
    let slow = service(|_| {
        ResponseFuture::later(async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            ok("done")
        })
    });
    let server = H3Server::run(Limits::default(), slow, |mut plan| {
        plan.listeners[0].http3 = Some(Http3Settings {
            max_idle_timeout: Duration::from_secs(1),
            ..Http3Settings::default()
        });
        plan
    });
    assert_eq!(server.open().get("/").text(), "done");
}

#[test]
fn connections_beyond_the_limits_are_refused() {
    for limits in [
        Limits {
            connections_per_address: 2,
            ..Limits::default()
        },
        Limits {
            max_connections: 2,
            ..Limits::default()
        },
    ] {
        let server = H3Server::with_limits(limits, paths());
        let mut first = server.open();
        let mut second = server.open();
        let mut third = H3Client::begin(server.server.address(), &server.options);
        match third.closed() {
            QuicCloseReason::Application { code, .. } => {
                assert_eq!(H3ErrorCode(code), H3ErrorCode::EXCESSIVE_LOAD);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(first.get("/a").text(), "/a");
        assert_eq!(second.get("/b").text(), "/b");
        first.close();
        server
            .server
            .wait_for("the end of the first", |totals| totals.connections < 2);
        assert_eq!(server.open().get("/c").text(), "/c");
    }
}

#[test]
fn an_idle_connection_makes_room_for_a_new_one() {
    let server = H3Server::run(
        Limits {
            worker_connections: 2,
            ..Limits::default()
        },
        paths(),
        |plan| EnginePlan { ..plan },
    );
    let mut first = server.open();
    assert_eq!(first.get("/a").text(), "/a");
    let mut second = server.open();
    assert_eq!(second.get("/b").text(), "/b");
    let mut third = server.open();
    assert_eq!(third.get("/c").text(), "/c");
    first.assert_closed_with(H3ErrorCode::NO_ERROR);
    assert_eq!(server.server.totals().evicted, 1);
}
