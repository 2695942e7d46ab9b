//! Names of nodes whose addresses change (RFC 1035), resolved by a name server of the test.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Configuration;
use super::scripted_origin::ScriptedOrigin;
use crate::harness::wait_until;

/// A name server that resolves every name to the same addresses with a TTL of one second.
struct NameServer {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    addresses: Mutex<Vec<Ipv4Addr>>,
    silent: AtomicBool,
    ends: AtomicBool,
    queries: AtomicUsize,
}

impl NameServer {
    fn start(addresses: &[Ipv4Addr]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let address = socket.local_addr().unwrap();
        let state = Arc::new(State::default());
        *state.addresses.lock().unwrap() = addresses.to_vec();
        let shared = state.clone();
        thread::spawn(move || {
            let mut query = [0; 1500];
            while !shared.ends.load(Ordering::SeqCst) {
                let Ok((length, client)) = socket.recv_from(&mut query) else {
                    continue;
                };
                shared.queries.fetch_add(1, Ordering::SeqCst);
                if !shared.silent.load(Ordering::SeqCst) {
                    let reply = response(&query[..length], &shared.addresses.lock().unwrap());
                    let _ = socket.send_to(&reply, client);
                }
            }
        });
        Self { address, state }
    }

    fn set(&self, addresses: &[Ipv4Addr]) {
        *self.state.addresses.lock().unwrap() = addresses.to_vec();
    }

    /// From now on, the name server receives queries and does not respond.
    fn stop_responding(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    fn queries(&self) -> usize {
        self.state.queries.load(Ordering::SeqCst)
    }

    /// The lines of a group that uses this name server.
    fn lines(&self) -> String {
        format!(
            "dns = {{ servers = [\"{}\"], timeout = \"500ms\" }}",
            self.address
        )
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::SeqCst);
    }
}

/// The response to a query with one question (RFC 1035 section 4.1).
fn response(query: &[u8], addresses: &[Ipv4Addr]) -> Vec<u8> {
    let mut end = 12;
    while query[end] != 0 {
        end += usize::from(query[end]) + 1;
    }
    let question = &query[12..end + 5];
    let is_a = question[question.len() - 4..] == [0, 1, 0, 1];
    let addresses = if is_a { addresses } else { &[] };
    let mut reply = query[..2].to_vec();
    // An authoritative response, recursion available, no error; one question, and the answers.
    reply.extend([0x85, 0x80, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
    reply.extend_from_slice(question);
    for address in addresses {
        // The name of the question; A, IN, one second, four bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        reply.extend(address.octets());
    }
    reply
}

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Two origins on the same port of two addresses.
fn pair() -> [ScriptedOrigin; 2] {
    let first = ScriptedOrigin::responding("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
    let address = SocketAddr::from((SECOND, first.address().port()));
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";
    let second = ScriptedOrigin::start_at(address, move |connection| {
        while connection.read_request().is_some() {
            connection.send(response);
        }
    });
    [first, second]
}

#[test]
fn requests_go_to_the_new_address_of_a_name() {
    let [first, _second] = pair();
    let names = NameServer::start(&[FIRST]);
    let front = Configuration::of_names([format!("app.test:{}", first.address().port())])
        .group(&names.lines())
        .serve();
    assert_eq!(front.get("/").text(), "first");
    names.set(&[SECOND]);
    wait_until("requests go to the new address", || {
        let reply = front.get("/");
        assert_eq!(reply.status, 200);
        reply.text() == "second"
    });
    for _ in 0..20 {
        assert_eq!(front.get("/").text(), "second");
    }
}

#[test]
fn every_address_of_a_name_is_a_node() {
    let [first, second] = pair();
    let names = NameServer::start(&[FIRST, SECOND]);
    let front = Configuration::of_names([format!("app.test:{}", first.address().port())])
        .global("worker_threads = 1")
        .group(&names.lines())
        .serve();
    for _ in 0..20 {
        assert_eq!(front.get("/").status, 200);
    }
    let count = |origin: &ScriptedOrigin| origin.received().matches("GET / ").count();
    assert_eq!((count(&first), count(&second)), (10, 10));
}

#[test]
fn the_last_addresses_stay_in_use_when_the_name_server_stops_responding() {
    let [first, _second] = pair();
    let names = NameServer::start(&[FIRST]);
    let front = Configuration::of_names([format!("app.test:{}", first.address().port())])
        .group(&names.lines())
        .serve();
    assert_eq!(front.get("/").text(), "first");
    names.stop_responding();
    let before = names.queries();
    wait_until("queries got no response", || names.queries() > before + 3);
    assert_eq!(front.get("/").text(), "first");
    // The same holds after a reload.
    front.reload();
    assert_eq!(front.get("/").text(), "first");
}

#[test]
fn a_name_without_an_address_causes_a_502_or_503_and_does_not_stop_the_server() {
    let names = NameServer::start(&[]);
    let front = Configuration::of_names(["app.test:1".to_owned()])
        .group(&names.lines())
        .serve();
    let status = front.get("/").status;
    assert!([502, 503].contains(&status), "{status}");
}
