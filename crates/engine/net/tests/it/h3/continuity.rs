//! Requests that go on while the server changes its plan, or the client its address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use apus_http::ServiceFactory;
use apus_net::{EnginePlan, ListenAddress};
use apus_testkit::{CertificateAuthority, UdpRelay, block_on, body_bytes, eventually, wait_until};
use bytes::Bytes;

use super::{H3Client, H3ClientOptions, H3Request, H3Server, h3_listener};
use crate::harness::{EndFlag, Server, ok, plan, service};
use crate::tls::client_of;

/// Bytes of a body that takes a while.
const LARGE: usize = 8_000_000;
const CLIENTS: usize = 8;
const RELOADS: usize = 10;

fn versioned(version: usize) -> Arc<dyn ServiceFactory> {
    service(move |_| ok(version.to_string()).into())
}

#[test]
fn no_request_fails_while_plans_change() {
    let authority = CertificateAuthority::generate();
    let plan_of = |version, address: Option<&ListenAddress>| {
        let mut listener = h3_listener(&authority, versioned(version));
        if let Some(address) = address {
            listener.address = address.clone();
        }
        EnginePlan {
            workers: 2.try_into().unwrap(),
            ..plan(vec![listener])
        }
    };
    let first = plan_of(0, None);
    let address = first.listeners[0].address.clone();
    let server = Server::run(first);
    let options = H3ClientOptions::new(client_of(&authority));
    let (ended, responses) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (ended, responses, options) = (&ended, &responses, &options);
            let address = server.address();
            scope.spawn(move || {
                let mut client = H3Client::open(address, options);
                let mut last = 0;
                while !ended.load(Ordering::Relaxed) {
                    let response = client.get("/");
                    assert_eq!((response.status, response.reset), (200, None));
                    let version = response.text().parse::<usize>().unwrap();
                    assert!(version >= last, "an old plan responds after a new one");
                    last = version;
                    responses.fetch_add(1, Ordering::Relaxed);
                    if number % 4 == 0 {
                        // Some clients reconnect.
                        client.close();
                        client = H3Client::open(address, options);
                        last = 0;
                    }
                }
                assert_eq!(client.state().closed, None);
            });
        }
        let _over = EndFlag(&ended);
        for version in 1..=RELOADS {
            let before = responses.load(Ordering::Relaxed);
            wait_until("responses", || {
                responses.load(Ordering::Relaxed) >= before + 2 * CLIENTS
            });
            let next = plan_of(version, Some(&address));
            server.engine.reload(next).unwrap();
        }
    });
    let totals = server.totals();
    assert_eq!(
        (totals.refused, totals.bad_requests, totals.panics),
        (0, 0, 0)
    );
}

/// Changes the address that the server sees after each of these many bytes to the client, and calls the function;
/// returns how often.
fn change_addresses(
    server: SocketAddr,
    after: usize,
    ended: &AtomicBool,
    address: &mpsc::Sender<SocketAddr>,
    changed: impl Fn(),
) -> usize {
    block_on(async {
        let relay = UdpRelay::to(server).await;
        address.send(relay.address).unwrap();
        let mut changes = 0;
        loop {
            let next = (changes + 1) * after;
            let is_over = eventually("packets", || {
                let is_over = ended.load(Ordering::Relaxed);
                (is_over || relay.bytes().1 >= next).then_some(is_over)
            })
            .await;
            if is_over {
                return changes;
            }
            relay.change_address().await;
            changed();
            changes += 1;
        }
    })
}

/// Downloads a large body through a relay that changes its address; the function is called after each change.
fn download_at_changing_addresses(
    server: &Server,
    options: &H3ClientOptions,
    changed: impl Fn() + Send,
) {
    let ended = AtomicBool::new(false);
    let (sender, address) = mpsc::channel();
    thread::scope(|scope| {
        let changing =
            scope.spawn(|| change_addresses(server.address(), 1_000_000, &ended, &sender, changed));
        let over = EndFlag(&ended);
        let mut client = H3Client::open(address.recv().unwrap(), options);
        let id = client.request(&H3Request::get("/"));
        let response = client.response(id);
        assert_eq!((response.status, response.reset), (200, None));
        assert!(response.body == body_bytes(LARGE));
        // The connection is as good as before.
        assert_eq!(client.get("/").body.len(), LARGE);
        assert_eq!(client.state().closed, None);
        drop(over);
        let changes = changing.join().unwrap();
        assert!(changes >= 8, "{changes}");
    });
    assert_eq!(server.totals().requests, 2);
}

fn large() -> Arc<dyn ServiceFactory> {
    let body = Bytes::from(body_bytes(LARGE));
    service(move |_| ok(body.clone()).into())
}

#[test]
fn a_download_goes_on_while_the_address_of_the_client_changes() {
    let server = H3Server::start(large());
    download_at_changing_addresses(&server.server, &server.options, || ());
}

#[test]
fn a_download_goes_on_while_the_address_of_the_client_and_the_plan_change() {
    let authority = CertificateAuthority::generate();
    let plan = EnginePlan {
        workers: 2.try_into().unwrap(),
        ..plan(vec![h3_listener(&authority, large())])
    };
    let server = Server::run(plan.clone());
    let options = H3ClientOptions::new(client_of(&authority));
    download_at_changing_addresses(&server, &options, || {
        server.engine.reload(plan.clone()).unwrap();
    });
}
