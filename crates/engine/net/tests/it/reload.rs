//! Reload under load, and stop: no request is refused or cut.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use apus_http::ServiceFactory;
use apus_net::{EnginePlan, Limits, ListenerPlan};
use apus_testkit::wait_until;

use crate::harness::{
    Client, EndFlag, PATIENCE, Server, connect, local, ok, plan, service, tcp, waiting_for,
};

fn versioned(version: usize) -> Arc<dyn ServiceFactory> {
    service(move |_| ok(version.to_string()).into())
}

fn two_workers(service: Arc<dyn ServiceFactory>) -> EnginePlan {
    EnginePlan {
        workers: NonZeroUsize::new(2).unwrap(),
        ..plan(vec![ListenerPlan::new(local(), service)])
    }
}

#[test]
fn no_request_fails_while_plans_change() {
    let server = Server::run(two_workers(versioned(0)));
    let address = server.address();
    let (ended, responses) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..50 {
            let (ended, responses) = (&ended, &responses);
            scope.spawn(move || {
                let mut last = 0;
                let mut client = Client::new(connect(address).unwrap());
                while !ended.load(Ordering::Relaxed) {
                    let version = client.get("/").text().parse::<usize>().unwrap();
                    assert!(version >= last, "an old plan responds after a new one");
                    last = version;
                    responses.fetch_add(1, Ordering::Relaxed);
                    if number % 5 == 0 {
                        // Some clients reconnect.
                        client = Client::new(connect(address).unwrap());
                        last = 0;
                    }
                }
            });
        }
        let _over = EndFlag(&ended);
        for version in 1..=20 {
            let before = responses.load(Ordering::Relaxed);
            wait_until("responses", || {
                responses.load(Ordering::Relaxed) >= before + 50
            });
            server
                .engine
                .reload(two_workers(versioned(version)))
                .unwrap();
        }
    });
    assert_eq!(server.connect().get("/").text(), "20");
    let totals = server.totals();
    assert_eq!(
        (totals.refused, totals.bad_requests, totals.panics),
        (0, 0, 0)
    );
}

#[test]
fn an_open_connection_gets_the_limits_of_the_new_plan() {
    let server = Server::start(versioned(1));
    let mut client = server.connect();
    assert_eq!(client.get("/").field("connection"), None);
    let limits = Limits {
        requests_per_connection: 1,
        ..Limits::default()
    };
    let new = EnginePlan {
        limits,
        ..plan(vec![ListenerPlan::new(local(), versioned(2))])
    };
    server.engine.reload(new).unwrap();
    let received = client.get("/");
    assert_eq!(
        (received.text().as_str(), received.field("connection")),
        ("2", Some("close"))
    );
    client.assert_closed();
}

#[test]
fn an_open_request_ends_with_the_plan_it_began_with() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::start(waiting_for(&go));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the request", |totals| totals.requests == 1);
    server
        .engine
        .reload(plan(vec![ListenerPlan::new(local(), versioned(2))]))
        .unwrap();
    go.store(true, Ordering::Relaxed);
    assert_eq!(client.read_response().text(), "finished");
    assert_eq!(client.get("/").text(), "2");
}

#[test]
fn a_stop_lets_open_requests_end_and_refuses_new_clients() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::run(two_workers(waiting_for(&go)));
    let address = server.address();
    let mut open = server.connect();
    open.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the request", |totals| totals.requests == 1);
    thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop(PATIENCE));
        wait_until("the port to be closed", || connect(address).is_err());
        assert!(!stopping.is_finished());
        go.store(true, Ordering::Relaxed);
        let received = open.read_response();
        assert_eq!(
            (received.text().as_str(), received.field("connection")),
            ("finished", Some("close"))
        );
        open.assert_closed();
        stopping.join().unwrap();
    });
    assert_eq!(server.totals().connections, 0);
}

#[test]
fn a_stop_closes_idle_connections_at_once() {
    let server = Server::start(versioned(1));
    let mut idle: Vec<_> = (0..10).map(|_| server.connect()).collect();
    idle.iter_mut()
        .for_each(|client| assert_eq!(client.get("/").text(), "1"));
    let start = Instant::now();
    server.stop(PATIENCE);
    assert!(start.elapsed() < PATIENCE / 2);
    idle.iter_mut().for_each(Client::assert_closed);
}

/// A client that uses a kept connection all the time learns of the stop by a response, and loses no request that it must not repeat.
#[test]
fn a_stop_ends_connections_in_use_by_a_response_that_says_so() {
    let is_in_order = || {
        let server = Server::start(versioned(1));
        let mut client = server.connect();
        client.get("/");
        thread::scope(|scope| {
            let stopping = scope.spawn(|| server.stop(PATIENCE));
            let ended = loop {
                // Between two requests, the connection is idle.
                thread::park_timeout(Duration::from_millis(10));
                match client.try_post() {
                    Err(_) => break false,
                    Ok(response) if response.field("connection") == Some("close") => break true,
                    Ok(_) => {}
                }
            };
            stopping.join().unwrap();
            ended
        })
    };
    // Side by side, as each stop waits until its client has closed.
    let in_order = thread::scope(|scope| {
        let stops: Vec<_> = (0..8).map(|_| scope.spawn(is_in_order)).collect();
        let in_order = stops.into_iter().filter_map(|stop| stop.join().ok());
        in_order.filter(|in_order| *in_order).count()
    });
    // The machine may be busy, and a client may come too late.
    assert!(in_order >= 4, "{in_order} of 8");
}

#[test]
fn a_stop_serves_connections_that_were_in_the_queue() {
    let stop_one = || {
        let server = Server::start(versioned(1));
        let mut clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
        clients
            .iter_mut()
            .for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        server.stop(PATIENCE);
        clients
            .iter_mut()
            .for_each(|client| assert_eq!(client.read_response().text(), "1"));
    };
    // Side by side, as each stop waits until its clients have closed.
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(stop_one);
        }
    });
}

#[test]
fn a_stop_cuts_connections_that_do_not_end_in_time() {
    let server = Server::start(waiting_for(&Arc::default()));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the request", |totals| totals.requests == 1);
    let start = Instant::now();
    server.stop(Duration::from_millis(500));
    assert!(start.elapsed() < PATIENCE / 2);
    client.assert_cut();
}

#[test]
fn a_port_moves_to_every_address_by_reload() {
    let server = Server::run(plan(vec![ListenerPlan::new(local(), versioned(1))]));
    let address = server.address();
    let everywhere = tcp(&format!("[::]:{}", address.port()));
    server
        .engine
        .reload(plan(vec![ListenerPlan::new(everywhere, versioned(2))]))
        .unwrap();
    // The old plan still serves clients that connect before the old socket is closed.
    wait_until("the new plan responds", || {
        Client::new(connect(address).unwrap()).get("/").text() == "2"
    });
}

/// A connection that was opened between the last accept and the close of the old socket was reset.
#[test]
fn a_port_moves_by_reload_without_a_reset_connection() {
    let server = Server::run(plan(vec![ListenerPlan::new(local(), versioned(1))]));
    let address = server.address();
    let everywhere = tcp(&format!("[::]:{}", address.port()));
    let (stop, latest, served) = (
        AtomicBool::new(false),
        AtomicUsize::new(1),
        AtomicUsize::new(0),
    );
    thread::scope(|scope| {
        let _ended = EndFlag(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut client = Client::new(connect(address).unwrap());
                    let version: usize = client.get("/").text().parse().unwrap();
                    if version == latest.load(Ordering::Relaxed) {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for version in 2..8 {
            let address = match version % 2 {
                0 => everywhere.clone(),
                _ => tcp(&address.to_string()),
            };
            let listeners = vec![ListenerPlan::new(address, versioned(version))];
            server.engine.reload(plan(listeners)).unwrap();
            latest.store(version, Ordering::Relaxed);
            served.store(0, Ordering::Relaxed);
            wait_until("the new plan responds", || {
                served.load(Ordering::Relaxed) > 10
            });
        }
    });
}
