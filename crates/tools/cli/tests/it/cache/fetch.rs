//! A response that clients read while it is fetched: many at once, ranges of it, slow readers, and after the
//! client that caused the fetch has left. An interrupted fetch is completed, or clients see it truncated.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use super::{MINUTE, cached_on_disk, configured, get, is_hit, large, requests_to};
use crate::harness::{Home, free_port, wait_until};
use crate::proxy::Front;
use crate::proxy::scripted_origin::{ScriptedConnection, ScriptedOrigin};
use crate::wire::Wire;

/// Holds the origin after the first half of a response and decides how it continues.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicU8>);

const HELD: u8 = 0;
const CONTINUES: u8 = 1;
const CLOSES: u8 = 2;
const RESETS: u8 = 3;
const FREEZES: u8 = 4;

impl Gate {
    fn set(&self, what: u8) {
        self.0.store(what, Ordering::SeqCst);
    }

    fn wait(&self) -> u8 {
        loop {
            match self.0.load(Ordering::SeqCst) {
                HELD => thread::park_timeout(Duration::from_millis(5)),
                what => return what,
            }
        }
    }
}

/// The fields that permit the completion by range requests, which requires a strong validator.
const RESUMABLE: &str = "ETag: \"one\"\r\nAccept-Ranges: bytes\r\n";

/// An origin that sends these field lines and half of its body, and then continues as the gate says. It
/// sends ranges at once.
fn halting(body: &[u8], fields: &'static str, gate: &Gate) -> ScriptedOrigin {
    halting_at(([127, 0, 0, 1], 0).into(), body, fields, gate)
}

fn halting_at(
    address: SocketAddr,
    body: &[u8],
    fields: &'static str,
    gate: &Gate,
) -> ScriptedOrigin {
    let (body, gate) = (body.to_vec(), gate.clone());
    ScriptedOrigin::start_at(address, move |connection| {
        while let Some(head) = connection.read_request() {
            if let Some(range) = range_of(&head, body.len()) {
                send_part(connection, &body, range, fields);
                continue;
            }
            let length = body.len();
            connection.send(format!(
                "HTTP/1.1 200 OK\r\n{MINUTE}{fields}Content-Length: {length}\r\n\r\n"
            ));
            let (first, second) = body.split_at(length / 2);
            connection.send(first);
            match gate.wait() {
                CONTINUES => connection.send(second),
                RESETS => return connection.reset(),
                FREEZES => return connection.freeze(),
                _ => return,
            };
        }
    })
}

fn range_of(head: &str, length: usize) -> Option<Range<usize>> {
    let lower = head.to_ascii_lowercase();
    let range = lower.split("\r\nrange: bytes=").nth(1)?.lines().next()?;
    let (first, last) = range.split_once('-')?;
    Some(match (first.parse().ok(), last.parse::<usize>().ok()) {
        (Some(first), last) => first..last.map_or(length, |last| last + 1),
        (None, last) => length - last?..length,
    })
}

fn send_part(connection: &mut ScriptedConnection, body: &[u8], range: Range<usize>, fields: &str) {
    let part = &body[range.clone()];
    connection.send(format!(
        "HTTP/1.1 206 Partial Content\r\n{MINUTE}{fields}Content-Range: bytes {}-{}/{}\r\n\
         Content-Length: {}\r\n\r\n",
        range.start,
        range.end - 1,
        body.len(),
        part.len()
    ));
    connection.send(part);
}

/// The request of [`readers`] over HTTP/2.
const OVER_HTTP_2: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "/"),
];

/// Clients that have read the first half while the origin holds the second.
fn readers(front: &Front, body: &[u8]) -> Vec<Wire> {
    let half = body.len() / 2;
    let wires = (0..5).map(|_| {
        let mut wire = front.connect();
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = wire.read_head();
        assert_eq!(head.status, 200);
        assert_eq!(head.field("content-length"), Some(&*body.len().to_string()));
        assert!(wire.read_bytes(half) == body[..half]);
        wire
    });
    wires.collect()
}

#[test]
fn readers_get_the_first_half_while_the_rest_is_fetched() {
    let (body, gate) = (large(), Gate::default());
    let half = body.len() / 2;
    let origin = halting(&body, RESUMABLE, &gate);
    let front = cached_on_disk(&origin, Home::new(), free_port());
    let mut wires = readers(&front, &body);
    let mut peer = front.open();
    let stream = peer.request(&OVER_HTTP_2, true);
    peer.until("the first half", |peer| {
        peer.received(stream).body.len() >= half
    });
    assert_eq!(requests_to(&origin), 1);
    // Three ranges: one that is stored, one that is stored in part, and one far after the position of the
    // fetch.
    let reply = get(&front, "/", "Range: bytes=10-99\r\n");
    assert_eq!(reply.status, 206);
    assert!(reply.body == body[10..100]);
    assert_eq!(requests_to(&origin), 1);
    let mut across = front.connect();
    across.send(format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes={}-{}\r\n\r\n",
        half - 100,
        half + 99
    ));
    assert_eq!(across.read_head().status, 206);
    assert!(across.read_bytes(100) == body[half - 100..half]);
    let reply = get(&front, "/", "Range: bytes=-1000\r\n");
    assert_eq!(reply.status, 206);
    assert!(reply.body == body[body.len() - 1000..]);
    assert_eq!(requests_to(&origin), 2);
    gate.set(CONTINUES);
    for wire in &mut wires {
        assert!(wire.read_bytes(body.len() - half) == body[half..]);
    }
    assert!(across.read_bytes(100) == body[half..half + 100]);
    assert!(peer.response(stream).body == body);
    wait_until("it is stored", || is_hit(&front, "/"));
    assert!(front.get("/").body == body);
    assert_eq!(requests_to(&origin), 2);
}

#[test]
fn a_client_that_leaves_does_not_stop_the_fetch_for_others() {
    for staying in [4, 0] {
        let (body, gate) = (large(), Gate::default());
        let half = body.len() / 2;
        let origin = halting(&body, "", &gate);
        let front = cached_on_disk(&origin, Home::new(), free_port());
        let mut wires = readers(&front, &body);
        // The first of them caused the fetch.
        wires.drain(..wires.len() - staying).for_each(Wire::reset);
        wait_until("the connections of the others are closed", || {
            front.status()["totals"]["connections"] == staying
        });
        gate.set(CONTINUES);
        for wire in &mut wires {
            assert!(wire.read_bytes(body.len() - half) == body[half..]);
        }
        assert!(front.get("/").body == body);
        wait_until("it is stored", || is_hit(&front, "/"));
        assert_eq!(requests_to(&origin), 1, "{staying} stay");
    }
}

#[test]
fn an_interrupted_fetch_is_completed_by_a_range_request() {
    for how in [CLOSES, RESETS] {
        let (body, gate) = (large(), Gate::default());
        let half = body.len() / 2;
        let origin = halting(&body, RESUMABLE, &gate);
        let front = cached_on_disk(&origin, Home::new(), free_port());
        let mut wires = readers(&front, &body);
        gate.set(how);
        for wire in &mut wires {
            assert!(wire.read_bytes(body.len() - half) == body[half..]);
        }
        assert!(front.get("/").body == body);
        let received = origin.received().to_ascii_lowercase();
        let rest = format!("\r\nrange: bytes={half}-{}\r\n", body.len() - 1);
        assert_eq!(received.matches(&rest).count(), 1, "{received}");
        assert!(received.contains("\r\nif-range: \"one\"\r\n"), "{received}");
        assert_eq!(requests_to(&origin), 2);
    }
}

#[test]
fn a_fetch_that_cannot_be_completed_looks_truncated_and_is_not_stored() {
    for how in [CLOSES, RESETS, FREEZES] {
        let (body, gate) = (large(), Gate::default());
        let half = body.len() / 2;
        let origin = halting(&body, "", &gate);
        let front = configured(&origin)
            .global("cache = { dir = \"cache\", size = 512 }")
            .group("read_timeout = \"500ms\"")
            .serve();
        let wires = readers(&front, &body);
        let mut peer = front.open();
        let stream = peer.request(&OVER_HTTP_2, true);
        peer.until("the first half", |peer| {
            peer.received(stream).body.len() >= half
        });
        gate.set(how);
        for mut wire in wires {
            let rest = wire.rest();
            assert!(rest.is_empty(), "{} bytes more", rest.len());
        }
        peer.reset_of(stream);
        assert!(peer.received(stream).body.len() == half);
        gate.set(CONTINUES);
        assert!(front.get("/").body == body);
        assert_eq!(requests_to(&origin), 2);
    }
}

#[test]
fn a_reload_does_not_stop_a_fetch() {
    let (body, gate) = (large(), Gate::default());
    let half = body.len() / 2;
    let origin = halting(&body, RESUMABLE, &gate);
    let front = cached_on_disk(&origin, Home::new(), free_port());
    let mut wires = readers(&front, &body);
    front.reload();
    // Clients that connect after the reload read the same fetch.
    wires.extend(readers(&front, &body));
    front.reload();
    gate.set(CONTINUES);
    for wire in &mut wires {
        assert!(wire.read_bytes(body.len() - half) == body[half..]);
    }
    wait_until("it is stored", || is_hit(&front, "/"));
    front.reload();
    assert!(is_hit(&front, "/"));
    assert_eq!(requests_to(&origin), 1);
}

#[test]
fn half_of_a_response_stays_stored_until_the_origin_is_back() {
    let (body, gate) = (large(), Gate::default());
    let half = body.len() / 2;
    let origin = halting(&body, RESUMABLE, &gate);
    let address = origin.address();
    let front = cached_on_disk(&origin, Home::new(), free_port());
    let wires = readers(&front, &body);
    drop(origin);
    for mut wire in wires {
        let rest = wire.rest();
        assert!(rest.is_empty(), "{} bytes more", rest.len());
    }
    let first = format!("Range: bytes=0-{}\r\n", half - 1);
    let reply = get(&front, "/", &first);
    assert_eq!(reply.status, 206);
    assert!(reply.body == body[..half]);
    let origin = halting_at(address, &body, RESUMABLE, &gate);
    wait_until("the response is completed", || {
        let reply = front.get("/");
        assert!(reply.status == 502 || reply.body == body);
        reply.status == 200
    });
    let received = origin.received().to_ascii_lowercase();
    let rest = format!("\r\nrange: bytes={half}-{}\r\n", body.len() - 1);
    assert!(received.contains(&rest), "{received}");
}

#[test]
fn a_client_that_stops_reading_does_not_delay_others() {
    // The body is larger than the buffers of a connection and than an object in memory may be. Its length is
    // not known at first.
    let (first, rest) = (large(), large().repeat(8));
    let first = &first[..500_000];
    let whole = [first, &rest].concat();
    for on_disk in [true, false] {
        let gate = Gate::default();
        let chunk = |data: &[u8]| {
            let size = format!("{:x}\r\n", data.len());
            [size.as_bytes(), data, b"\r\n"].concat()
        };
        let chunks = [chunk(first), chunk(&rest)];
        let origin_gate = gate.clone();
        let origin = ScriptedOrigin::start(move |connection| {
            while connection.read_request().is_some() {
                connection.send(format!(
                    "HTTP/1.1 200 OK\r\n{MINUTE}Transfer-Encoding: chunked\r\n\r\n"
                ));
                connection.send(&chunks[0]);
                origin_gate.wait();
                connection.send(&chunks[1]);
                connection.send("0\r\n\r\n");
            }
        });
        let front = if on_disk {
            cached_on_disk(&origin, Home::new(), free_port())
        } else {
            configured(&origin)
                .global("cache = { shared_lag = 1 }")
                .serve()
        };
        let mut wires: Vec<_> = (0..4).map(|_| front.connect()).collect();
        for wire in &mut wires {
            wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            wire.wait();
        }
        gate.set(CONTINUES);
        // The first client does not read.
        thread::scope(|scope| {
            for wire in &mut wires[1..] {
                let whole = &whole;
                scope.spawn(move || assert!(wire.read().body == *whole));
            }
        });
        assert_eq!(requests_to(&origin), 1);
        front.assert_memory_is_bounded();
    }
}
