//! Reload and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use apus_h3::H3ErrorCode;
use apus_http::ServiceFactory;
use apus_net::{EnginePlan, Limits, ListenerPlan};
use apus_testkit::CertificateAuthority;

use super::{H3Client, H3ClientOptions, H3Request, H3Server, h3_listener};
use crate::harness::{Server, ok, paths, plan, service, tcp, waiting_for};
use crate::refused_clients::{LastingRequests, OneClient, lasting};
use crate::tls::client_of;

#[test]
fn a_stop_lets_open_requests_end_and_closes_the_connection() {
    let go = Arc::new(AtomicBool::new(false));
    let server = H3Server::start(waiting_for(&go));
    let mut client = server.open();
    let id = client.request(&H3Request::get("/"));
    client.wait("the request", |_| server.server.totals().requests == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| server.server.stop(Duration::from_secs(20)));
        client.wait("GOAWAY", |connection| connection.go_away.is_some());
        go.store(true, Ordering::SeqCst);
        assert_eq!(client.response(id).text(), "finished");
        client.assert_closed_with(H3ErrorCode::NO_ERROR);
    });
}

#[test]
fn a_stop_ends_idle_connections_soon() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    assert_eq!(client.get("/a").text(), "/a");
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| server.server.stop(Duration::from_secs(20)));
        client.assert_closed_with(H3ErrorCode::NO_ERROR);
    });
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn requests_that_do_not_end_in_time_are_cut_by_a_stop() {
    let never = Arc::new(AtomicBool::new(false));
    let server = H3Server::start(waiting_for(&never));
    let mut client = server.open();
    client.request(&H3Request::get("/"));
    client.wait("the request", |_| server.server.totals().requests == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| server.server.stop(Duration::from_secs(1)));
        client.assert_closed_with(H3ErrorCode::NO_ERROR);
    });
}

fn versioned(version: &'static str) -> Arc<dyn ServiceFactory> {
    service(move |_| ok(version).into())
}

#[test]
fn connections_survive_a_reload_and_get_the_new_service() {
    let authority = CertificateAuthority::generate();
    let first = h3_listener(&authority, versioned("one"));
    let server = Server::run(EnginePlan {
        workers: 2.try_into().unwrap(),
        ..plan(vec![first.clone()])
    });
    let options = H3ClientOptions::new(client_of(&authority));
    let mut client = H3Client::open(server.address(), &options);
    assert_eq!(client.get("/").text(), "one");
    for version in ["two", "three"] {
        let mut next = h3_listener(&authority, versioned(version));
        next.address = first.address.clone();
        server.engine.reload(plan(vec![next])).unwrap();
        assert_eq!(client.get("/").text(), version);
        let mut other = H3Client::open(server.address(), &options);
        assert_eq!(other.get("/").text(), version);
    }
    assert_eq!(client.state().go_away, None);
}

#[test]
fn a_reload_ends_and_begins_http_3_on_a_listener() {
    let authority = CertificateAuthority::generate();
    let with = h3_listener(&authority, paths());
    let mut without = with.clone();
    without.http3 = None;
    let server = Server::run(plan(vec![without.clone()]));
    let options = H3ClientOptions::new(client_of(&authority));
    for _ in 0..3 {
        server.engine.reload(plan(vec![with.clone()])).unwrap();
        let mut client = H3Client::open(server.address(), &options);
        assert_eq!(client.get("/a").text(), "/a");
        server.engine.reload(plan(vec![without.clone()])).unwrap();
        client.wait("GOAWAY", |connection| connection.go_away.is_some());
        client.assert_closed_with(H3ErrorCode::NO_ERROR);
    }
}

#[test]
fn a_reload_that_removes_a_listener_lets_its_requests_end() {
    let authority = CertificateAuthority::generate();
    let go = Arc::new(AtomicBool::new(false));
    let removed = h3_listener(&authority, waiting_for(&go));
    let stays = ListenerPlan::new(tcp("127.0.0.2:0"), paths());
    let server = Server::run(plan(vec![removed, stays.clone()]));
    let options = H3ClientOptions::new(client_of(&authority));
    let mut client = H3Client::open(server.address(), &options);
    let id = client.request(&H3Request::get("/"));
    client.wait("the request", |_| server.totals().requests == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| server.engine.reload(plan(vec![stays])).unwrap());
        client.wait("GOAWAY", |connection| connection.go_away.is_some());
        go.store(true, Ordering::SeqCst);
        assert_eq!(client.response(id).text(), "finished");
        client.assert_closed_with(H3ErrorCode::NO_ERROR);
    });
}

#[test]
fn a_connection_ends_after_its_last_request() {
    let limits = Limits {
        h2_requests_per_connection: 3,
        ..Limits::default()
    };
    let server = H3Server::with_limits(limits, paths());
    let mut client = server.open();
    for _ in 0..3 {
        assert_eq!(client.get("/a").text(), "/a");
    }
    client.wait("GOAWAY", |connection| connection.go_away.is_some());
    client.assert_closed_with(H3ErrorCode::NO_ERROR);
}

#[test]
fn all_streams_of_a_refused_client_are_closed() {
    let requests = LastingRequests::default();
    let filter = OneClient::new("127.0.0.1".parse().unwrap());
    let in_plan = Arc::clone(&filter);
    let server = H3Server::run(Limits::default(), lasting(&requests), |plan| EnginePlan {
        client_filter: Some(in_plan),
        ..plan
    });
    let mut client = server.open();
    client.wait("SETTINGS", |connection| {
        connection.allows_extended_connect()
    });
    let events = client.request(&H3Request::get("/events"));
    client.wait("the beginning", |connection| {
        connection.body_bytes(events) == 5
    });
    client.request(&H3Request::get("/waits"));
    let tunnel = client.request(&H3Request {
        protocol: Some("echo"),
        has_body: true,
        ..H3Request::get("/tunnel")
    });
    client.send_data(tunnel, "hello", false);
    client.wait("the echo", |connection| connection.body_bytes(tunnel) == 5);

    filter.refuse();
    client.assert_closed_with(H3ErrorCode::NO_ERROR);
    requests.wait_for("the end of the events", &requests.events);
    requests.wait_for("the end of the waiting request", &requests.waits);
    requests.wait_for("the end of the tunnel", &requests.tunnel);
    assert_eq!(server.server.totals().banned, 1);
}
