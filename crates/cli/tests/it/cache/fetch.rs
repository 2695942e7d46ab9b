//! An answer that is read while it is fetched: by many at once, in parts, by some who stand still, and
//! without the one who caused it. What breaks off is completed, or looks cut.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use super::{MINUTE, asked, cached_on_disk, configured, get, is_hit, large};
use crate::harness::{Home, free_port, wait_until};
use crate::proxy::Front;
use crate::proxy::scripted_origin::{ScriptedOrigin, Stage};
use crate::wire::Wire;

/// What becomes of an answer after its first half.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicU8>);

const HELD: u8 = 0;
const GOES_ON: u8 = 1;
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

/// Says that the answer may be completed by parts, which it can be only with a strong validator.
const RESUMABLE: &str = "ETag: \"one\"\r\nAccept-Ranges: bytes\r\n";

/// An origin that sends half of its content, with these field lines, and then what the gate says. Parts
/// it sends at once.
fn halting(content: &[u8], fields: &'static str, gate: &Gate) -> ScriptedOrigin {
    halting_at(([127, 0, 0, 1], 0).into(), content, fields, gate)
}

fn halting_at(
    address: SocketAddr,
    content: &[u8],
    fields: &'static str,
    gate: &Gate,
) -> ScriptedOrigin {
    let (content, gate) = (content.to_vec(), gate.clone());
    ScriptedOrigin::start_at(address, move |stage| {
        while let Some(head) = stage.read_request() {
            if let Some(range) = range_of(&head, content.len()) {
                send_part(stage, &content, range, fields);
                continue;
            }
            let length = content.len();
            stage.send(format!(
                "HTTP/1.1 200 OK\r\n{MINUTE}{fields}Content-Length: {length}\r\n\r\n"
            ));
            let (first, second) = content.split_at(length / 2);
            stage.send(first);
            match gate.wait() {
                GOES_ON => stage.send(second),
                RESETS => return stage.reset(),
                FREEZES => return stage.freeze(),
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

fn send_part(stage: &mut Stage, content: &[u8], range: Range<usize>, fields: &str) {
    let part = &content[range.clone()];
    stage.send(format!(
        "HTTP/1.1 206 Partial Content\r\n{MINUTE}{fields}Content-Range: bytes {}-{}/{}\r\n\
         Content-Length: {}\r\n\r\n",
        range.start,
        range.end - 1,
        content.len(),
        part.len()
    ));
    stage.send(part);
}

/// The request of [`readers`] over HTTP/2.
const OVER_HTTP_2: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "/"),
];

/// Clients that all have the first half, while the origin holds back the second.
fn readers(front: &Front, content: &[u8]) -> Vec<Wire> {
    let half = content.len() / 2;
    let wires = (0..5).map(|_| {
        let mut wire = front.connect();
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = wire.read_head();
        assert_eq!(head.status, 200);
        assert_eq!(
            head.field("content-length"),
            Some(&*content.len().to_string())
        );
        assert!(wire.read_bytes(half) == content[..half]);
        wire
    });
    wires.collect()
}

#[test]
fn readers_get_what_is_there_while_another_fills() {
    let (content, gate) = (large(), Gate::default());
    let half = content.len() / 2;
    let origin = halting(&content, RESUMABLE, &gate);
    let front = cached_on_disk(&origin, Home::new(), free_port());
    let mut wires = readers(&front, &content);
    let mut peer = front.open();
    let stream = peer.request(&OVER_HTTP_2, true);
    peer.until("the first half", |peer| {
        peer.received(stream).body.len() >= half
    });
    assert_eq!(asked(&origin), 1);
    // A part that is there, one across what is not, and one that is far from what is fetched now.
    let reply = get(&front, "/", "Range: bytes=10-99\r\n");
    assert_eq!(reply.status, 206);
    assert!(reply.body == content[10..100]);
    assert_eq!(asked(&origin), 1);
    let mut across = front.connect();
    across.send(format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes={}-{}\r\n\r\n",
        half - 100,
        half + 99
    ));
    assert_eq!(across.read_head().status, 206);
    assert!(across.read_bytes(100) == content[half - 100..half]);
    let reply = get(&front, "/", "Range: bytes=-1000\r\n");
    assert_eq!(reply.status, 206);
    assert!(reply.body == content[content.len() - 1000..]);
    assert_eq!(asked(&origin), 2);
    gate.set(GOES_ON);
    for wire in &mut wires {
        assert!(wire.read_bytes(content.len() - half) == content[half..]);
    }
    assert!(across.read_bytes(100) == content[half..half + 100]);
    assert!(peer.response(stream).body == content);
    wait_until("it is kept", || is_hit(&front, "/"));
    assert!(front.get("/").body == content);
    assert_eq!(asked(&origin), 2);
}

#[test]
fn who_leaves_takes_the_answer_from_nobody() {
    for staying in [4, 0] {
        let (content, gate) = (large(), Gate::default());
        let half = content.len() / 2;
        let origin = halting(&content, "", &gate);
        let front = cached_on_disk(&origin, Home::new(), free_port());
        let mut wires = readers(&front, &content);
        // The one who caused it is the first of them.
        wires.drain(..wires.len() - staying);
        wait_until("it is known that the others left", || {
            front.status()["totals"]["connections"] == staying
        });
        gate.set(GOES_ON);
        for wire in &mut wires {
            assert!(wire.read_bytes(content.len() - half) == content[half..]);
        }
        assert!(front.get("/").body == content);
        wait_until("it is kept", || is_hit(&front, "/"));
        assert_eq!(asked(&origin), 1, "{staying} stay");
    }
}

#[test]
fn what_breaks_off_is_completed_where_it_can_be() {
    for how in [CLOSES, RESETS] {
        let (content, gate) = (large(), Gate::default());
        let half = content.len() / 2;
        let origin = halting(&content, RESUMABLE, &gate);
        let front = cached_on_disk(&origin, Home::new(), free_port());
        let mut wires = readers(&front, &content);
        gate.set(how);
        for wire in &mut wires {
            assert!(wire.read_bytes(content.len() - half) == content[half..]);
        }
        assert!(front.get("/").body == content);
        let received = origin.received().to_ascii_lowercase();
        let rest = format!("\r\nrange: bytes={half}-{}\r\n", content.len() - 1);
        assert_eq!(received.matches(&rest).count(), 1, "{received}");
        assert!(received.contains("\r\nif-range: \"one\"\r\n"), "{received}");
        assert_eq!(asked(&origin), 2);
    }
}

#[test]
fn what_breaks_off_for_good_looks_cut_and_is_not_kept() {
    for how in [CLOSES, RESETS, FREEZES] {
        let (content, gate) = (large(), Gate::default());
        let half = content.len() / 2;
        let origin = halting(&content, "", &gate);
        let front = configured(&origin)
            .global("cache = { dir = \"cache\", size = 512 }")
            .group("read_timeout = \"500ms\"")
            .serve();
        let wires = readers(&front, &content);
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
        gate.set(GOES_ON);
        assert!(front.get("/").body == content);
        assert_eq!(asked(&origin), 2);
    }
}

#[test]
fn a_reload_takes_the_answer_from_nobody() {
    let (content, gate) = (large(), Gate::default());
    let half = content.len() / 2;
    let origin = halting(&content, RESUMABLE, &gate);
    let front = cached_on_disk(&origin, Home::new(), free_port());
    let mut wires = readers(&front, &content);
    front.reload();
    // Who comes after it reads along, too.
    wires.extend(readers(&front, &content));
    front.reload();
    gate.set(GOES_ON);
    for wire in &mut wires {
        assert!(wire.read_bytes(content.len() - half) == content[half..]);
    }
    wait_until("it is kept", || is_hit(&front, "/"));
    front.reload();
    assert!(is_hit(&front, "/"));
    assert_eq!(asked(&origin), 1);
}

#[test]
fn half_of_an_answer_is_kept_until_its_origin_is_back() {
    let (content, gate) = (large(), Gate::default());
    let half = content.len() / 2;
    let origin = halting(&content, RESUMABLE, &gate);
    let address = origin.address();
    let front = cached_on_disk(&origin, Home::new(), free_port());
    let wires = readers(&front, &content);
    drop(origin);
    for mut wire in wires {
        let rest = wire.rest();
        assert!(rest.is_empty(), "{} bytes more", rest.len());
    }
    let first = format!("Range: bytes=0-{}\r\n", half - 1);
    let reply = get(&front, "/", &first);
    assert_eq!(reply.status, 206);
    assert!(reply.body == content[..half]);
    let origin = halting_at(address, &content, RESUMABLE, &gate);
    wait_until("it is asked again", || {
        let reply = front.get("/");
        assert!(reply.status == 502 || reply.body == content);
        reply.status == 200
    });
    let received = origin.received().to_ascii_lowercase();
    let rest = format!("\r\nrange: bytes={half}-{}\r\n", content.len() - 1);
    assert!(received.contains(&rest), "{received}");
}

#[test]
fn who_stands_still_holds_up_nobody_else() {
    // More than what the system holds for a connection, and more than memory keeps of one answer, which
    // nobody can tell at first.
    let (first, rest) = (large(), large().repeat(8));
    let first = &first[..500_000];
    let whole = [first, &rest].concat();
    for on_disk in [true, false] {
        let gate = Gate::default();
        let chunk = |content: &[u8]| {
            let size = format!("{:x}\r\n", content.len());
            [size.as_bytes(), content, b"\r\n"].concat()
        };
        let chunks = [chunk(first), chunk(&rest)];
        let may_go_on = gate.clone();
        let origin = ScriptedOrigin::start(move |stage| {
            while stage.read_request().is_some() {
                stage.send(format!(
                    "HTTP/1.1 200 OK\r\n{MINUTE}Transfer-Encoding: chunked\r\n\r\n"
                ));
                stage.send(&chunks[0]);
                may_go_on.wait();
                stage.send(&chunks[1]);
                stage.send("0\r\n\r\n");
            }
        });
        let front = match on_disk {
            true => cached_on_disk(&origin, Home::new(), free_port()),
            false => configured(&origin)
                .global("cache = { shared_lag = 1 }")
                .serve(),
        };
        let mut wires: Vec<_> = (0..4).map(|_| front.connect()).collect();
        for wire in &mut wires {
            wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            wire.wait();
        }
        gate.set(GOES_ON);
        // The first does not read on.
        thread::scope(|scope| {
            for wire in &mut wires[1..] {
                let whole = &whole;
                scope.spawn(move || assert!(wire.read().body == *whole));
            }
        });
        assert_eq!(asked(&origin), 1);
        front.assert_memory_is_bounded();
    }
}
