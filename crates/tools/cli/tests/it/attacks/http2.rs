//! HTTP/2 attacks with raw frames in clear text, on many connections at once. The tests of the engine check
//! the error of each connection; these check memory, honest clients and the counters.

use std::net::TcpStream;
use std::thread;

use apus_testkit::h2::{
    FRAME, block, code, data, flag, frame, get, head, indexed_literal, kind, literal, ping,
    priority, request, request_with, reset, setting, settings, window_update,
};

use super::{SECRET, Victim};
use crate::h2_client::Peer;
use crate::harness::{connect, wait_until};

/// The number of attackers, each with its own connection.
const ATTACKERS: usize = 10;

impl Victim {
    fn open(&self, settings: &[(u16, u32)]) -> Peer<TcpStream> {
        Peer::open_with(connect(self.apus.address()), settings)
    }

    /// Runs attackers until the server has closed the connection of each, while honest clients of both
    /// versions are served. `frames` makes the frames of a round.
    fn assert_stops(
        &self,
        counter: &str,
        settings: &[(u16, u32)],
        frames: impl Fn(&mut Peer<TcpStream>, usize) -> Vec<u8> + Sync,
    ) {
        const ROUNDS: usize = 50_000;
        thread::scope(|scope| {
            let attackers: Vec<_> = (0..ATTACKERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut peer = self.open(settings);
                        peer.fence();
                        let mut round = 0;
                        let (_, code) = peer.flood(ROUNDS, |peer| {
                            round += 1;
                            frames(peer, round)
                        });
                        assert_eq!(code, code::ENHANCE_YOUR_CALM, "{counter}");
                    })
                })
                .collect();
            let mut honest = self.open(&[]);
            while attackers.iter().any(|attacker| !attacker.is_finished()) {
                self.assert_serves();
                assert_eq!(honest.fetch("/").text(), "<h1>hello</h1>");
            }
            assert_eq!(honest.fetch("/").text(), "<h1>hello</h1>");
        });
        assert_eq!(self.total(counter), ATTACKERS as u64, "{counter}");
        self.assert_healthy();
    }
}

#[test]
fn rapid_reset_is_stopped_cve_2023_44487() {
    let victim = Victim::with_defaults();
    victim.assert_stops("stopped_reset_floods", &[], |peer, _| {
        let stream = peer.next_stream();
        [get(stream, "/large.bin"), reset(stream, code::CANCEL)].concat()
    });
}

#[test]
fn resets_that_the_server_is_made_to_send_are_stopped_cve_2025_8671() {
    let large = block(&request("GET", "/large.bin"));
    let malformed = block(&request_with("GET", "/", &[("connection", "close")]));
    for frames in [
        (|large, _, stream| [head(stream, large, true), window_update(stream, 0)].concat())
            as fn(&[u8], &[u8], u32) -> Vec<u8>,
        |large, _, stream| {
            [
                head(stream, large, true),
                window_update(stream, 0x7fff_ffff),
            ]
            .concat()
        },
        |large, _, stream| [head(stream, large, true), data(stream, "x", true)].concat(),
        |large, _, stream| [head(stream, large, true), priority(stream, stream, 1)].concat(),
        |_, malformed, stream| head(stream, malformed, true),
    ] {
        let victim = Victim::with_defaults();
        victim.assert_stops("stopped_reset_floods", &[], |peer, _| {
            frames(&large, &malformed, peer.next_stream())
        });
    }
}

#[test]
fn streams_that_are_opened_faster_than_they_are_served_are_stopped() {
    let victim = Victim::with_defaults();
    // The server can send no body.
    let closed = [(setting::INITIAL_WINDOW_SIZE, 0)];
    victim.assert_stops("stopped_reset_floods", &closed, |peer, _| {
        get(peer.next_stream(), "/large.bin")
    });
}

#[test]
fn endless_field_blocks_are_stopped_cve_2024_27316() {
    let victim = Victim::with_defaults();
    let start = frame(
        kind::HEADERS,
        flag::END_STREAM,
        1,
        block(&request("GET", "/")),
    );
    let large = frame(
        kind::CONTINUATION,
        0,
        1,
        literal("x", vec![b'y'; FRAME - 100]),
    );
    victim.assert_stops("stopped_field_block_floods", &[], |_, round| match round {
        1 => start.clone(),
        _ => large.clone(),
    });
    let victim = Victim::with_defaults();
    let empty = frame(kind::CONTINUATION, 0, 1, []);
    victim.assert_stops("stopped_field_block_floods", &[], |_, round| match round {
        1 => start.clone(),
        _ => empty.clone(),
    });
}

#[test]
fn compression_bombs_are_stopped_cve_2016_6581() {
    let victim = Victim::with_defaults();
    let get = block(&request("GET", "/"));
    let fill = [get.clone(), indexed_literal("x", "y".repeat(4000))].concat();
    let bomb = [get, vec![0x80 | 62; 16_000]].concat();
    victim.assert_stops("stopped_field_block_floods", &[], |peer, round| {
        let stream = peer.next_stream();
        head(stream, if round == 1 { &fill } else { &bomb }, true)
    });
}

#[test]
fn thousands_of_fields_on_streams_with_closed_windows_take_no_memory_cve_2026_49975() {
    let victim = Victim::with_defaults();
    let get = block(&request("GET", "/large.bin"));
    // Each byte is a cookie. There are as many as the limit of a head allows.
    let fill = [get.clone(), indexed_literal("cookie", "")].concat();
    let many = [get, vec![0x80 | 62; 800]].concat();
    let mut peers: Vec<_> = (0..40)
        .map(|_| victim.open(&[(setting::INITIAL_WINDOW_SIZE, 0)]))
        .collect();
    for peer in &mut peers {
        let mut bytes = head(peer.next_stream(), &fill, true);
        for _ in 1..250 {
            bytes.extend(head(peer.next_stream(), &many, true));
        }
        peer.send(bytes);
    }
    for peer in &mut peers {
        for stream in [1, 499] {
            assert_eq!(peer.head(stream).status, 200);
        }
    }
    victim.assert_healthy();
}

#[test]
fn frames_that_require_a_reply_are_stopped_cve_2019_9512_and_9515() {
    let victim = Victim::with_defaults();
    victim.assert_stops("stopped_reply_floods", &[], |_, _| ping(1));
    let victim = Victim::with_defaults();
    victim.assert_stops("stopped_reply_floods", &[], |_, _| settings(&[]));
}

#[test]
fn pings_of_clients_that_read_nothing_take_no_memory_cve_2019_9512() {
    let victim = Victim::with_defaults();
    let pings = ping(1).repeat(5000);
    let mut peers: Vec<_> = (0..20).map(|_| victim.open(&[])).collect();
    for peer in &mut peers {
        for _ in 0..20 {
            if peer.try_send(&pings).is_err() {
                break;
            }
        }
    }
    victim.assert_healthy();
    wait_until("the connections are stopped", || {
        victim.total("stopped_reply_floods") == 20
    });
}

#[test]
fn tiny_windows_are_stopped_cve_2019_9511() {
    let victim = Victim::with_defaults();
    let one = [(setting::INITIAL_WINDOW_SIZE, 1)];
    victim.assert_stops("stopped_tiny_window_floods", &one, |peer, round| {
        peer.opens_windows = false;
        if round == 1 {
            return get(1, "/large.bin");
        }
        let expected = round - 1;
        let _ = peer.read_until(|peer| peer.received(1).body.len() >= expected);
        window_update(1, 1)
    });
}

#[test]
fn frames_that_carry_nothing_are_stopped_cve_2019_9513_and_9518() {
    let empty_frames: [fn(usize) -> Vec<u8>; 4] = [
        |round| priority(round as u32 % 1000 * 2 + 3, 0, round as u8),
        |_| data(1, "", false),
        |_| frame(0xbe, 0, 0, []),
        |_| window_update(0, 1),
    ];
    for frame in empty_frames {
        let victim = Victim::with_defaults();
        let post = head(1, &block(&request("POST", "/")), false);
        victim.assert_stops("stopped_idle_floods", &[], |_, round| match round {
            // The response is 405, but the stream stays open for the next frames.
            1 => post.clone(),
            _ => frame(round).repeat(20),
        });
    }
}

#[test]
fn frames_that_carry_nothing_on_a_stream_that_was_reset_are_stopped() {
    let empty_frames: [fn() -> Vec<u8>; 2] = [
        || data(1, "", true),
        || head(1, &block(&[("x", "y")]), true),
    ];
    for frame in empty_frames {
        let victim = Victim::with_defaults();
        let mut post = head(1, &block(&request("POST", "/")), false);
        // An increment of 0 makes the server reset the stream.
        post.extend(window_update(1, 0));
        victim.assert_stops("stopped_idle_floods", &[], |_, round| match round {
            1 => post.clone(),
            _ => frame().repeat(20),
        });
    }
}

#[test]
fn large_responses_to_clients_that_read_nothing_take_no_memory_cve_2019_9517() {
    let victim = Victim::with_defaults();
    let open = [(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)];
    let mut peers: Vec<_> = (0..30).map(|_| victim.open(&open)).collect();
    for peer in &mut peers {
        let mut bytes = window_update(0, 0x7fff_0000);
        for _ in 0..200 {
            bytes.extend(get(peer.next_stream(), "/large.bin"));
        }
        peer.send(bytes);
    }
    let mut before = 0;
    wait_until("the server sends no more bytes", || {
        let now = victim.total("bytes_out");
        let is_idle = now - std::mem::replace(&mut before, now) < 100_000;
        is_idle && victim.total("requests") > 30 * 100
    });
    let mut honest = victim.open(&[]);
    assert_eq!(honest.fetch("/").status, 200);
    victim.assert_healthy();
}

#[test]
fn many_idle_connections_take_little_memory() {
    let victim = Victim::with_defaults();
    let _idle: Vec<_> = (0..1000)
        .map(|_| {
            // At once: a connection without a request is closed after a while.
            let mut peer = victim.open(&[]);
            assert_eq!(peer.fetch("/").status, 200);
            peer
        })
        .collect();
    victim.assert_healthy();
    let mut honest = victim.open(&[]);
    assert_eq!(honest.fetch("/").status, 200);
}

#[test]
fn a_window_beyond_the_maximum_closes_the_connection() {
    let victim = Victim::with_defaults();
    let mut peer = victim.open(&[]);
    peer.send(window_update(0, 0x7fff_ffff));
    assert_eq!(peer.goaway(), code::FLOW_CONTROL_ERROR);
    assert_eq!(victim.total("bad_requests"), 1);
    victim.assert_healthy();
}

#[test]
fn slow_prefaces_heads_and_streams_time_out_and_are_counted() {
    let victim = Victim::configured("client_header_timeout = 1\nsend_timeout = 1", "");
    let mut honest = victim.open(&[]);
    let mut silent: Vec<_> = (0..50)
        .map(|_| {
            let mut peer = Peer::new(connect(victim.apus.address()));
            peer.acknowledges = false;
            peer.send(b"PRI * HTTP/2.0\r\n\r\nSM");
            peer
        })
        .collect();
    let half = frame(
        kind::HEADERS,
        flag::END_STREAM,
        1,
        block(&request("GET", "/")),
    );
    for _ in 0..50 {
        let mut peer = victim.open(&[]);
        peer.acknowledges = false;
        peer.send(&half);
        silent.push(peer);
    }
    let mut stalled: Vec<_> = (0..50)
        .map(|_| {
            let mut peer = victim.open(&[(setting::INITIAL_WINDOW_SIZE, 1)]);
            peer.opens_windows = false;
            peer.get("/large.bin");
            peer
        })
        .collect();
    for peer in &mut silent {
        assert_eq!(honest.fetch("/").status, 200);
        assert_eq!(peer.goaway(), code::ENHANCE_YOUR_CALM);
    }
    for peer in &mut stalled {
        assert_eq!(peer.reset_of(1), code::CANCEL);
    }
    assert_eq!(victim.total("timeouts"), 100);
    assert_eq!(victim.total("stalled_streams"), 50);
    victim.assert_healthy();
}

#[test]
fn fields_never_become_other_requests_or_reach_files_outside_the_root() {
    let victim = Victim::with_defaults();
    for target in [
        "/ HTTP/1.1\r\nHost: localhost\r\n\r\nGET /smuggled",
        "/text.txt\r\nx: y",
        "/text.txt\0",
        "text.txt",
        "http://localhost/text.txt",
    ] {
        let mut peer = victim.open(&[]);
        let stream = peer.request(&request("GET", target), true);
        assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR, "{target:?}");
    }
    let mut peer = victim.open(&[]);
    for target in [
        "/../outside/secret.txt",
        "/%2e%2e/outside/secret.txt",
        "/files/..%2f..%2foutside/secret.txt",
        "/.env",
        "/.git/config",
        "/page.php",
    ] {
        let response = peer.fetch(target);
        assert!(
            (400..500).contains(&response.status),
            "{target}: {}",
            response.status
        );
        assert!(!response.text().contains(SECRET), "{target}");
    }
    for (name, value) in [
        (":authority", "localhost"),
        (":path", "/"),
        (":status", "200"),
        ("transfer-encoding", "chunked"),
        ("content-length", "1"),
        ("connection", "close"),
        ("upgrade", "websocket"),
        ("host", "elsewhere"),
    ] {
        let stream = peer.request(&request_with("GET", "/", &[(name, value)]), true);
        assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR, "{name}");
    }
    let late = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        ("x", "y"),
        (":authority", "localhost"),
    ];
    let stream = peer.request(&late, true);
    assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR);
    assert_eq!(peer.fetch("/").text(), "<h1>hello</h1>");
    victim.assert_healthy();
}

#[test]
fn a_browser_that_leaves_a_page_is_not_stopped() {
    let victim = Victim::with_defaults();
    let mut peer = victim.open(&[(setting::INITIAL_WINDOW_SIZE, 6 << 20)]);
    for _ in 0..2 {
        let images: Vec<u32> = (0..200).map(|_| peer.get("/large.bin")).collect();
        peer.head(images[0]);
        let cancels: Vec<u8> = images
            .iter()
            .flat_map(|stream| reset(*stream, code::CANCEL))
            .collect();
        peer.send(cancels);
        assert_eq!(peer.fetch("/").status, 200);
    }
    let cookies: Vec<String> = (0..180).map(|index| format!("c{index}=value")).collect();
    let fields: Vec<_> = cookies
        .iter()
        .map(|cookie| ("cookie", cookie.as_str()))
        .collect();
    let stream = peer.request(&request_with("GET", "/", &fields), true);
    assert_eq!(peer.response(stream).status, 200);
    peer.fence();
    assert_eq!(peer.goaways, []);
    victim.assert_healthy();
}
