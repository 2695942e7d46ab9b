//! The attacks on HTTP/2 that are known, with raw frames, against the default limits. Each is
//! stopped within a bound and counted, and a client beside it is served all the while.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus_http::ServiceFactory;
use apus_testkit::h2::{
    FRAME, PREFACE, block, code, data, flag, frame, get, head, indexed_literal, integer, kind,
    literal, ping, priority, priority_update, request, request_with, reset, setting, settings,
    settings_ack, window_update,
};
use apus_testkit::{body_bytes, collect, wait_until};
use bytes::Bytes;

use super::client::{Peer, StreamResponse};
use super::{counted, open, open_with, wait_for_count};
use crate::harness::{Server, connect, ok, service};

/// `/wait` gets no response, `/large` a large one, `/read` one when the whole body has arrived, and other
/// paths get one at once.
fn victim() -> Arc<dyn ServiceFactory> {
    let large = Bytes::from(body_bytes(4 << 20));
    service(move |mut request| match request.path() {
        "/wait" => apus_http::ResponseFuture::later(std::future::pending()),
        "/large" => ok(large.clone()).into(),
        "/read" => apus_http::ResponseFuture::later(async move {
            match collect(request.body_mut()).await {
                Ok(body) => ok(body.len().to_string()),
                Err(_) => std::future::pending().await,
            }
        }),
        path => ok(path.to_owned()).into(),
    })
}

/// An attack, and the most turns of it that are tolerated.
struct Attack<'a> {
    name: &'a str,
    counter: &'a str,
    turns: usize,
}

impl Attack<'_> {
    /// Attacks a server until it ends the connection. Another client gets its responses meanwhile.
    fn is_stopped(&self, turn: impl FnMut(&mut Peer<TcpStream>) -> Vec<u8>) {
        self.is_stopped_with(&[], turn);
    }

    fn is_stopped_with(
        &self,
        settings: &[(u16, u32)],
        mut turn: impl FnMut(&mut Peer<TcpStream>) -> Vec<u8>,
    ) {
        let server = Server::start(victim());
        let mut bystander = open(&server);
        let mut peer = open_with(&server, settings);
        peer.fence();
        let mut turns = 0_usize;
        let (taken, code) = peer.flood(self.turns, |peer| {
            turns += 1;
            if turns.is_multiple_of(500) {
                assert_eq!(bystander.fetch("/beside").text(), "/beside");
            }
            turn(peer)
        });
        assert_eq!(
            code,
            code::ENHANCE_YOUR_CALM,
            "{}: {taken} turns",
            self.name
        );
        drop(peer);
        wait_for_count(&server, self.counter, 1);
        assert_eq!(counted(&server, self.counter), 1, "{}", self.name);
        server.wait_for("its end", |totals| totals.connections == 1);
        assert_eq!(bystander.fetch("/after").text(), "/after");
        assert_eq!(bystander.goaways, []);
        // The work that was begun for it is bounded.
        let requests = server.totals().requests;
        assert!(requests < 4000, "{}: {requests} requests", self.name);
    }
}

fn resets(name: &str) -> Attack<'_> {
    Attack {
        name,
        counter: "stopped_reset_floods",
        turns: 20_000,
    }
}

fn idle(name: &str) -> Attack<'_> {
    Attack {
        name,
        counter: "stopped_idle_floods",
        turns: 100_000,
    }
}

fn acks(name: &str) -> Attack<'_> {
    Attack {
        name,
        counter: "stopped_reply_floods",
        turns: 20_000,
    }
}

fn field_blocks(name: &str) -> Attack<'_> {
    Attack {
        name,
        counter: "stopped_field_block_floods",
        turns: 2000,
    }
}

fn tiny_windows(name: &str) -> Attack<'_> {
    Attack {
        name,
        counter: "stopped_tiny_window_floods",
        turns: 50_000,
    }
}

#[test]
fn rapid_reset_cve_2023_44487() {
    for path in ["/wait", "/large", "/read"] {
        resets(path).is_stopped(|peer| {
            let stream = peer.next_stream();
            [get(stream, path), reset(stream, code::CANCEL)].concat()
        });
    }
}

#[test]
fn rapid_reset_in_large_writes_cve_2023_44487() {
    resets("100 at once").is_stopped(|peer| {
        let pairs = (0..100).flat_map(|_| {
            let stream = peer.next_stream();
            [get(stream, "/large"), reset(stream, code::CANCEL)].concat()
        });
        pairs.collect()
    });
}

#[test]
fn rapid_reset_of_streams_with_bodies_cve_2023_44487() {
    let post = block(&request("POST", "/read"));
    resets("uploads").is_stopped(|peer| {
        let stream = peer.next_stream();
        let upload = [head(stream, &post, false), data(stream, "some", false)];
        [&upload.concat()[..], &reset(stream, code::NO_ERROR)].concat()
    });
}

/// What makes a server reset a stream, that it has opened with this head, by itself.
fn made_to_reset(name: &str, fields: &[(&str, &str)], end: bool, fault: impl Fn(u32) -> Vec<u8>) {
    let fields = block(fields);
    resets(name).is_stopped(|peer| {
        let stream = peer.next_stream();
        [head(stream, &fields, end), fault(stream)].concat()
    });
}

#[test]
fn made_you_reset_by_window_updates_cve_2025_8671() {
    for path in ["/wait", "/large"] {
        let fields = request("GET", path);
        made_to_reset("an increment of 0", &fields, true, |stream| {
            window_update(stream, 0)
        });
        made_to_reset("a window past its end", &fields, true, |stream| {
            window_update(stream, 0x7fff_ffff)
        });
    }
}

#[test]
fn made_you_reset_by_frames_behind_the_end_cve_2025_8671() {
    for path in ["/wait", "/large"] {
        let fields = request("GET", path);
        made_to_reset("DATA", &fields, true, |stream| data(stream, "x", true));
        made_to_reset("HEADERS", &fields, true, |stream| {
            head(stream, &block(&[("x", "y")]), true)
        });
    }
}

#[test]
fn made_you_reset_by_a_malformed_body_cve_2025_8671() {
    let fields = request_with("POST", "/wait", &[("content-length", "5")]);
    made_to_reset("too much", &fields, false, |stream| {
        data(stream, "too much", false)
    });
    made_to_reset("too little", &fields, false, |stream| {
        data(stream, "x", true)
    });
    let fields = request("POST", "/wait");
    made_to_reset("trailers that do not end it", &fields, false, |stream| {
        head(stream, &block(&[("x", "y")]), false)
    });
    made_to_reset(
        "pseudo-header fields in trailers",
        &fields,
        false,
        |stream| head(stream, &block(&[(":path", "/")]), true),
    );
}

#[test]
fn made_you_reset_by_priorities_cve_2025_8671() {
    let fields = request("GET", "/wait");
    made_to_reset("a stream that depends on itself", &fields, true, |stream| {
        priority(stream, stream, 1)
    });
    made_to_reset("a PRIORITY of 4 bytes", &fields, true, |stream| {
        frame(kind::PRIORITY, 0, stream, [0; 4])
    });
}

#[test]
fn reset_flood_by_malformed_requests_cve_2019_9514() {
    for (name, value) in [
        ("X", "y"),
        ("connection", "close"),
        (":unknown", "x"),
        ("x", "y\r\nz"),
    ] {
        let fields = request_with("GET", "/", &[(name, value)]);
        made_to_reset(name, &fields, true, |_| Vec::new());
    }
}

#[test]
fn streams_opened_faster_than_they_are_served() {
    resets("more and more").is_stopped(|peer| get(peer.next_stream(), "/wait"));
}

#[test]
fn reset_flood_on_closed_streams_cve_2019_9514() {
    idle("RST_STREAM of a stream with a response").is_stopped(|peer| {
        match peer.received(1).status {
            0 => {
                let stream = peer.get("/");
                peer.response(stream);
                peer.received(1).status = 200;
                Vec::new()
            }
            _ => reset(1, code::CANCEL),
        }
    });
    // Those are no flood: they end the connection at once.
    let server = Server::start(victim());
    let mut peer = open(&server);
    assert_eq!(peer.fetch("/").status, 200);
    peer.send(head(1, &block(&request("GET", "/")), true).repeat(1000));
    assert_eq!(peer.goaway(), code::STREAM_CLOSED);
    assert_eq!(server.totals().requests, 1);
}

#[test]
fn continuation_flood_cve_2024_27316() {
    let good = block(&request("GET", "/"));
    for (name, part) in [
        ("large", literal("x", "y".repeat(FRAME - 100))),
        ("small", literal("x", "y")),
        ("one byte", vec![0x82]),
        ("empty", vec![]),
    ] {
        let mut first = true;
        field_blocks(name).is_stopped(|_| {
            if std::mem::take(&mut first) {
                frame(kind::HEADERS, flag::END_STREAM, 1, &good)
            } else {
                frame(kind::CONTINUATION, flag::NONE, 1, &part)
            }
        });
    }
    // Behind an open stream, as trailers (CVE-2023-45288).
    let mut first = true;
    field_blocks("trailers").is_stopped(|_| {
        if std::mem::take(&mut first) {
            [
                head(1, &block(&request("POST", "/read")), false),
                frame(kind::HEADERS, flag::END_STREAM, 1, []),
            ]
            .concat()
        } else {
            frame(
                kind::CONTINUATION,
                flag::NONE,
                1,
                literal("x", "y".repeat(1000)),
            )
        }
    });
}

#[test]
fn continuation_flood_of_references_to_the_table_cve_2024_27316() {
    let mut first = true;
    // Each byte stands for 4,000.
    field_blocks("references").is_stopped(|peer| {
        // A WINDOW_UPDATE would interrupt the field block.
        peer.opens_windows = false;
        if std::mem::take(&mut first) {
            [
                head(
                    1,
                    &[
                        block(&request("GET", "/")),
                        indexed_literal("x", "y".repeat(4000)),
                    ]
                    .concat(),
                    true,
                ),
                frame(
                    kind::HEADERS,
                    flag::END_STREAM,
                    3,
                    block(&request("GET", "/")),
                ),
            ]
            .concat()
        } else {
            frame(kind::CONTINUATION, flag::NONE, 3, vec![0x80 | 62; 1000])
        }
    });
}

#[test]
fn compression_bombs_cve_2016_6581() {
    // The largest entry that the table has room for, in one frame a thousand times over.
    let fill = [
        block(&request("GET", "/")),
        indexed_literal("x", "y".repeat(4000)),
    ]
    .concat();
    let bomb = [block(&request("GET", "/")), vec![0x80 | 62; 16_000]].concat();
    let mut first = true;
    field_blocks("a large entry").is_stopped(|peer| {
        let stream = peer.next_stream();
        if std::mem::take(&mut first) {
            head(stream, &fill, true)
        } else {
            head(stream, &bomb, true)
        }
    });
    // Small fields, each of which costs its overhead (CVE-2026-49975): even without a bomb they are too
    // large.
    for (name, value) in [("x", ""), ("cookie", ""), ("cookie", "a=b")] {
        let server = Server::start(victim());
        let mut peer = open(&server);
        let fill = [block(&request("GET", "/")), indexed_literal(name, value)].concat();
        let stream = peer.next_stream();
        peer.send(head(stream, &fill, true));
        assert_eq!(peer.response(stream).status, 200);
        let many = [block(&request("GET", "/")), vec![0x80 | 62; 5000]].concat();
        for _ in 0..100 {
            let stream = peer.next_stream();
            peer.send(head(stream, &many, true));
            assert_eq!(peer.response(stream).status, 431);
        }
        let more = [block(&request("GET", "/")), vec![0x80 | 62; 100_000]].concat();
        let stream = peer.next_stream();
        let _ = peer.try_send(head(stream, &more, true));
        assert_eq!(peer.goaway(), code::ENHANCE_YOUR_CALM);
        assert_eq!(counted(&server, "stopped_field_block_floods"), 1);
        let totals = server.totals();
        assert_eq!((totals.requests, totals.bad_requests), (1, 100));
    }
}

#[test]
fn zero_length_names_cve_2019_9516() {
    for (name, field) in [("plain", &[0_u8, 0, 0][..]), ("Huffman", &[0, 0x80, 0x80])] {
        let bomb = [block(&request("GET", "/")), field.repeat(5000)].concat();
        resets(name).is_stopped(|peer| head(peer.next_stream(), &bomb, true));
        // One by one.
        let one = [block(&request("GET", "/")), field.to_vec()].concat();
        resets(name).is_stopped(|peer| head(peer.next_stream(), &one, true));
    }
}

#[test]
fn table_sizes_that_change_without_end() {
    // Each costs two bytes at least, so a block holds few.
    let sizes = [0x20, 0x3f, 0xe1, 0x1f].repeat(4000);
    let server = Server::start(victim());
    let mut peer = open(&server);
    let block = [sizes, block(&request("GET", "/"))].concat();
    peer.send(head(1, &block, true));
    peer.until("a response or an end", |peer| {
        peer.received(1).ended || !peer.goaways.is_empty()
    });
    server.assert_serves();
}

#[test]
fn ping_flood_cve_2019_9512() {
    acks("one by one").is_stopped(|_| ping(1));
    acks("many at once").is_stopped(|_| ping(1).repeat(100));
}

#[test]
fn settings_flood_cve_2019_9515() {
    acks("empty").is_stopped(|_| settings(&[]));
    let mut window = 0;
    acks("windows that change").is_stopped(|_| {
        window = (window + 1) % 1000;
        settings(&[(setting::INITIAL_WINDOW_SIZE, window)])
    });
    acks("tables that change").is_stopped(|_| {
        window = (window + 1) % 4096;
        settings(&[
            (setting::HEADER_TABLE_SIZE, window),
            (setting::HEADER_TABLE_SIZE, 4096),
        ])
    });
    // Streams whose windows all have to move.
    let mut first = true;
    acks("with streams").is_stopped(|peer| {
        if std::mem::take(&mut first) {
            (0..200)
                .flat_map(|_| get(peer.next_stream(), "/large"))
                .collect()
        } else {
            window ^= 1;
            settings(&[(setting::INITIAL_WINDOW_SIZE, window)])
        }
    });
}

#[test]
fn unmatched_acknowledgements() {
    let server = Server::start(victim());
    let mut peer = open(&server);
    peer.fence();
    peer.send(settings_ack().repeat(3));
    assert_eq!(peer.goaway(), code::PROTOCOL_ERROR);
    idle("of a PING that was not sent").is_stopped(|_| frame(kind::PING, flag::ACK, 0, [7; 8]));
    // On a stream with one body, because data makes the server measure the round trip.
    let mut payload = Vec::new();
    idle("of a PING that was acknowledged before").is_stopped(|peer| {
        if !payload.is_empty() {
            return frame(kind::PING, flag::ACK, 0, &payload);
        }
        let stream = peer.request(&request("POST", "/read"), false);
        peer.upload(stream, &body_bytes(300_000), true);
        peer.response(stream);
        while payload.is_empty() {
            let more = peer.request(&request("POST", "/read"), false);
            peer.upload(more, &body_bytes(60_000), true);
            let frame = peer.read().unwrap();
            if frame.kind == kind::PING && !frame.has(flag::ACK) {
                payload = frame.payload;
            }
        }
        Vec::new()
    });
}

#[test]
fn data_dribble_cve_2019_9511() {
    // The window grows by one byte whenever the last one has arrived.
    let mut got = 0;
    tiny_windows("one stream").is_stopped_with(&[(setting::INITIAL_WINDOW_SIZE, 1)], |peer| {
        peer.opens_windows = false;
        if got == 0 {
            peer.get("/large");
        }
        got += 1;
        let _ = peer.read_until(|peer| peer.received(1).body.len() >= got);
        window_update(1, 1)
    });
}

#[test]
fn data_dribble_on_many_streams_cve_2019_9511() {
    let mut got = 0;
    tiny_windows("many streams").is_stopped_with(&[(setting::INITIAL_WINDOW_SIZE, 1)], |peer| {
        peer.opens_windows = false;
        if got == 0 {
            for _ in 0..50 {
                peer.get("/large");
            }
        }
        got += 1;
        let _ = peer.read_until(|peer| {
            let has_more = |response: &StreamResponse| response.body.len() >= got;
            peer.responses.len() == 50 && peer.responses.values().all(has_more)
        });
        (0..50)
            .flat_map(|index| window_update(index * 2 + 1, 1))
            .collect()
    });
}

#[test]
fn one_byte_windows_of_the_connection_cve_2019_9511() {
    let mut got = 0;
    tiny_windows("the connection").is_stopped_with(
        &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)],
        |peer| {
            peer.opens_windows = false;
            if got == 0 {
                peer.get("/large");
                got = apus_testkit::h2::WINDOW - 1;
            }
            got += 1;
            let _ = peer.read_until(|peer| peer.received(1).body.len() >= got);
            window_update(0, 1)
        },
    );
}

#[test]
fn updates_of_windows_that_add_nothing_worth_a_frame() {
    // The updates come faster than the bytes leave, so that either flood may be counted.
    let server = Server::start(victim());
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1)]);
    peer.opens_windows = false;
    peer.get("/large");
    let (_, code) = peer.flood(50_000, |_| window_update(1, 1).repeat(100));
    assert_eq!(code, code::ENHANCE_YOUR_CALM);
    wait_until("it is counted", || {
        counted(&server, "stopped_tiny_window_floods") + counted(&server, "stopped_idle_floods")
            == 1
    });
    server.assert_serves();
}

#[test]
fn resource_loop_cve_2019_9513() {
    let mut number = 0_u32;
    idle("PRIORITY").is_stopped(|_| {
        number += 1;
        priority(number % 1000 * 2 + 1, number % 77 * 2, number as u8)
    });
    idle("PRIORITY_UPDATE").is_stopped(|_| {
        number += 1;
        priority_update(
            number % 1000 * 2 + 1,
            ["u=0", "u=7, i"][number as usize % 2],
        )
    });
    // The updates are for streams that wait to be sent.
    let mut first = true;
    idle("PRIORITY_UPDATE of streams").is_stopped(|peer| {
        peer.opens_windows = false;
        if std::mem::take(&mut first) {
            for _ in 0..200 {
                peer.get("/large");
            }
            peer.head(1);
        }
        number += 1;
        priority_update(number % 200 * 2 + 1, ["u=0", "u=7, i"][number as usize % 2])
    });
}

#[test]
fn empty_frames_cve_2019_9518() {
    let opened = |peer: &mut Peer<TcpStream>| match peer.next_stream() {
        1 => head(1, &block(&request("POST", "/read")), false),
        _ => Vec::new(),
    };
    idle("DATA").is_stopped(|peer| [opened(peer), data(1, "", false)].concat());
    let padding = [&[255][..], &[0; 255]].concat();
    let padded = frame(kind::DATA, flag::PADDED, 1, padding);
    idle("DATA with padding alone").is_stopped(|peer| {
        let opening = opened(peer);
        // It may have been stopped meanwhile.
        let _ = peer.read_until(|peer| peer.window().min(peer.window_of(1)) >= 256);
        peer.spend(1, 256);
        [opening, padded.clone()].concat()
    });
    idle("unknown frames").is_stopped(|_| frame(0xbe, 0, 0, []));
    idle("WINDOW_UPDATE of the connection").is_stopped(|_| window_update(0, 1));
    idle("WINDOW_UPDATE of a stream").is_stopped(|peer| {
        let opening = opened(peer);
        [opening, window_update(1, 1)].concat()
    });
    // Without an open request, the first GOAWAY ends the connection.
    idle("GOAWAY").is_stopped(|peer| {
        let opening = opened(peer);
        [opening, frame(kind::GOAWAY, 0, 0, [0; 8])].concat()
    });
}

#[test]
fn requests_in_between_do_not_allow_a_flood() {
    // The budget that honest requests give back is small.
    let mut number = 0;
    acks("PING").is_stopped(|peer| {
        number += 1;
        let request = match number % 50 {
            0 => get(peer.next_stream(), "/"),
            _ => Vec::new(),
        };
        [request, ping(1)].concat()
    });
    idle("PRIORITY").is_stopped(|peer| {
        number += 1;
        let request = match number % 50 {
            0 => get(peer.next_stream(), "/"),
            _ => Vec::new(),
        };
        [request, priority(1, 0, 1)].concat()
    });
}

/// Sends without reading until the server takes no more, or has taken this much.
fn send_unread(peer: &mut Peer<TcpStream>, most: usize, mut bytes: impl FnMut() -> Vec<u8>) {
    let patience = std::time::Duration::from_millis(300);
    peer.stream.set_write_timeout(Some(patience)).unwrap();
    let mut sent = 0;
    while sent < most {
        let bytes = bytes();
        if peer.try_send(&bytes).is_err() {
            return;
        }
        sent += bytes.len();
    }
}

#[test]
fn a_client_that_never_reads_makes_the_server_hold_little_cve_2019_9517() {
    let started = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&started);
    let large = Bytes::from(vec![b'x'; 4 << 20]);
    let server = Server::start(service(move |request| match request.path() {
        "/large" => {
            counter.fetch_add(1, Ordering::Relaxed);
            ok(large.clone()).into()
        }
        path => ok(path.to_owned()).into(),
    }));
    let mut bystander = open(&server);
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
    peer.send(window_update(0, 0x7fff_0000));
    for _ in 0..200 {
        peer.get("/large");
    }
    // Not all: while nothing more can be sent, no further requests are read.
    wait_until("requests were seen", || started.load(Ordering::Relaxed) > 0);
    let mut taken = server.totals().bytes_out;
    wait_until("it is stuck", || {
        assert_eq!(bystander.fetch("/beside").text(), "/beside");
        let now = server.totals().bytes_out;
        let is_stuck = now - taken < 1000;
        taken = now;
        is_stuck
    });
    assert!(taken < 32 << 20, "{taken} bytes");
    assert_eq!(bystander.fetch("/after").text(), "/after");
}

#[test]
fn responses_to_small_requests_are_not_gathered_for_a_client_that_never_reads_cve_2019_9517() {
    let server = Server::start(service(|_| ok(vec![b'x'; 4000]).into()));
    let mut bystander = open(&server);
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
    peer.send(window_update(0, 0x7fff_0000));
    let mut stream = 1;
    send_unread(&mut peer, 64 << 20, || {
        let requests = (0..100).flat_map(|_| {
            stream += 2;
            get(stream, "/")
        });
        requests.collect()
    });
    // The server discards what follows a GOAWAY and does not parse it.
    let totals = server.totals();
    assert!(
        totals.bytes_in < 2 << 20 && totals.requests < 4000,
        "{totals:?}"
    );
    assert_eq!(bystander.fetch("/after").body.len(), 4000);
}

#[test]
fn acknowledgements_of_pings_do_not_gather_for_a_client_that_never_reads_cve_2019_9512() {
    let server = Server::start(victim());
    let mut bystander = open(&server);
    let mut peer = open(&server);
    send_unread(&mut peer, 64 << 20, || ping(1).repeat(1000));
    assert_eq!(peer.goaway(), code::ENHANCE_YOUR_CALM);
    let totals = server.totals();
    assert!(
        totals.bytes_in < 1 << 20 && totals.bytes_out < 1 << 20,
        "{totals:?}"
    );
    assert_eq!(bystander.fetch("/after").text(), "/after");
}

#[test]
fn window_overflow_ends_the_connection_rfc_9113_section_6_9_1() {
    let server = Server::start(victim());
    let mut peer = open(&server);
    let (_, code) = peer.flood(10, |_| window_update(0, 0x7000_0000));
    assert_eq!(code, code::FLOW_CONTROL_ERROR);
    assert_eq!(server.totals().bad_requests, 1);
}

#[test]
fn an_attacker_is_disconnected_at_once_and_can_read_the_reason() {
    let server = Server::start(victim());
    let mut peer = Peer::new(connect(server.address()).unwrap());
    // Far more than is read of it, and none of it is lost for the client.
    let mut flood = [PREFACE, &settings(&[])].concat();
    flood.extend(ping(1).repeat(50_000));
    let _ = peer.try_send(flood);
    assert_eq!(peer.goaway(), code::ENHANCE_YOUR_CALM);
    drop(peer);
    server.wait_for("its end", |totals| totals.connections == 0);
    assert_eq!(counted(&server, "stopped_reply_floods"), 1);
}

#[test]
fn integers_without_end_take_no_memory() {
    let server = Server::start(victim());
    for bad in [
        integer(0x40, 6, usize::MAX >> 1),
        [vec![0x00], integer(0, 7, 1 << 40)].concat(),
        [vec![0x00, 0x01, b'x'], integer(0, 7, usize::MAX >> 2)].concat(),
        [vec![0x3f], vec![0xff; 1000]].concat(),
    ] {
        let mut peer = open(&server);
        let stream = peer.next_stream();
        peer.send(head(
            stream,
            &[block(&request("GET", "/")), bad].concat(),
            true,
        ));
        assert_eq!(peer.goaway(), code::COMPRESSION_ERROR);
    }
    server.assert_serves();
}
