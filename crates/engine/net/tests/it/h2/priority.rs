//! Priorities (RFC 9218): urgency, incremental responses, changes in progress; and that neither a large
//! download nor a greedy client delays the others.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use apus_http::ServiceFactory;
use apus_testkit::h2::{
    FRAME, WINDOW, code, kind, priority, priority_update, request, request_with, reset, setting,
    window_update,
};
use apus_testkit::{body_bytes, wait_until};
use bytes::Bytes;

use super::client::Peer;
use super::{open, open_narrow, open_with};
use crate::harness::{EndFlag, Server, ok, service};

/// Responds with the number of bytes in the path.
fn sized() -> Arc<dyn ServiceFactory> {
    let whole = Bytes::from(body_bytes(64 << 20));
    service(move |request| {
        let len: usize = request.path()[1..].parse().unwrap();
        ok(whole.slice(..len)).into()
    })
}

const LARGE: usize = 10 * FRAME;

/// A client whose streams have room, but whose connection has none left.
fn shut(server: &Server) -> Peer<TcpStream> {
    let mut peer = open_with(server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
    peer.opens_windows = false;
    assert_eq!(peer.fetch(&format!("/{WINDOW}")).body.len(), WINDOW);
    peer
}

/// Requests a large response with this `priority`.
fn request_large(peer: &mut Peer<TcpStream>, priority: Option<&str>) -> u32 {
    let path = format!("/{LARGE}");
    let priority: Vec<_> = priority
        .map(|value| ("priority", value))
        .into_iter()
        .collect();
    peer.request(&request_with("GET", &path, &priority), true)
}

/// Opens the connection's window. Returns the streams of the DATA frames that arrive.
fn order(peer: &mut Peer<TcpStream>, streams: &[u32]) -> Vec<u32> {
    peer.fence();
    for stream in streams {
        assert_eq!(peer.head(*stream).body.len(), 0);
    }
    peer.send(window_update(0, 1 << 30));
    let mut order = Vec::new();
    while !streams.iter().all(|stream| peer.received(*stream).ended) {
        let frame = peer.read().unwrap();
        if frame.kind == kind::DATA && !frame.payload.is_empty() {
            order.push(frame.stream);
        }
    }
    for stream in streams {
        assert_eq!(peer.received(*stream).body.len(), LARGE);
    }
    order
}

/// The order of turns without repetitions.
fn turns(order: &[u32]) -> Vec<u32> {
    let mut turns = order.to_vec();
    turns.dedup();
    turns
}

#[test]
fn the_most_urgent_goes_first_rfc_9218_section_4_1() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let values = ["u=7", "u=3", "u=0", "u=5, i", "u=1, i"];
    let streams = values.map(|value| request_large(&mut peer, Some(value)));
    let expected = [2, 4, 1, 3, 0].map(|index: usize| streams[index]);
    assert_eq!(turns(&order(&mut peer, &streams)), expected);
}

#[test]
fn responses_that_are_not_incremental_are_sent_one_after_another_rfc_9218_section_4_2() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let streams = ["u=2", "u=2, i=?0", "u=2"].map(|value| request_large(&mut peer, Some(value)));
    assert_eq!(turns(&order(&mut peer, &streams)), streams);
}

/// No stream is ever ahead of another by more than two frames before one has ended.
fn assert_fair(order: &[u32], streams: &[u32]) {
    let mut frames = vec![0_usize; streams.len()];
    for stream in order {
        let index = streams.iter().position(|other| other == stream).unwrap();
        frames[index] += 1;
        if frames.contains(&(LARGE / FRAME)) {
            break;
        }
        let (least, most) = (frames.iter().min().unwrap(), frames.iter().max().unwrap());
        assert!(most - least <= 2, "{order:?}");
    }
}

#[test]
fn incremental_responses_take_turns_rfc_9218_section_4_2() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let streams = ["i", "u=3, i", "i=?1"].map(|value| request_large(&mut peer, Some(value)));
    assert_fair(&order(&mut peer, &streams), &streams);
}

#[test]
fn requests_without_a_priority_take_turns() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let streams = [(); 5].map(|()| request_large(&mut peer, None));
    assert_fair(&order(&mut peer, &streams), &streams);
}

#[test]
fn a_priority_may_change_rfc_9218_section_7_1() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let streams = ["u=1", "u=2", "u=3"].map(|value| request_large(&mut peer, Some(value)));
    peer.send(priority_update(streams[2], "u=0"));
    peer.send(priority_update(streams[0], "u=6"));
    assert_eq!(
        turns(&order(&mut peer, &streams)),
        [streams[2], streams[1], streams[0]]
    );
}

#[test]
fn a_priority_may_change_while_data_is_sent_rfc_9218_section_7_1() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let [first, second] = ["u=1", "u=3"].map(|value| request_large(&mut peer, Some(value)));
    peer.send(window_update(0, 2 * FRAME as u32));
    peer.fence();
    assert_eq!(peer.received(first).body.len(), 2 * FRAME);
    peer.send(priority_update(first, "u=6"));
    peer.fence();
    peer.send(window_update(0, LARGE as u32));
    assert_eq!(peer.response(second).body.len(), LARGE);
    assert_eq!(peer.received(first).body.len(), 2 * FRAME);
    peer.send(reset(first, code::CANCEL));
}

#[test]
fn the_old_tree_of_priorities_changes_nothing_rfc_9113_section_5_3() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    peer.send(priority(1001, 0, 255));
    let streams = ["u=2", "u=1"].map(|value| request_large(&mut peer, Some(value)));
    peer.send(priority(streams[1], 0x8000_0000 | streams[0], 0));
    peer.send(priority(streams[0], 1001, 255));
    assert_eq!(turns(&order(&mut peer, &streams)), [streams[1], streams[0]]);
}

#[test]
fn a_priority_that_cannot_be_read_is_the_default_one_rfc_9218_section_5() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let values = ["u=4, i", "u=9, i", "nonsense, i", "u=2, i"];
    let streams = values.map(|value| request_large(&mut peer, Some(value)));
    let order = turns(&order(&mut peer, &streams));
    assert_eq!(order.first(), Some(&streams[3]));
    assert_eq!(order.last(), Some(&streams[0]));
}

#[test]
fn an_urgent_response_overtakes_one_in_progress() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let slow = peer.request(
        &request_with("GET", "/10000000", &[("priority", "u=6")]),
        true,
    );
    peer.send(window_update(0, 3 * FRAME as u32));
    peer.fence();
    assert_eq!(peer.received(slow).body.len(), 3 * FRAME);
    let urgent = request_large(&mut peer, Some("u=0"));
    peer.fence();
    assert_eq!(peer.head(urgent).body.len(), 0);
    peer.send(window_update(0, LARGE as u32));
    assert_eq!(peer.response(urgent).body.len(), LARGE);
    assert_eq!(peer.received(slow).body.len(), 3 * FRAME);
    peer.send(reset(slow, code::CANCEL));
}

/// The bytes in the kernel that this client and the server have still to read.
fn bytes_in_kernel(peer: &Peer<TcpStream>) -> (usize, usize) {
    let here = peer.stream.local_addr().unwrap().port();
    let server = peer.stream.peer_addr().unwrap().port();
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(&address[9..], 16).unwrap();
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let (mut to_client, mut to_server) = (0, 0);
    for line in table.lines().skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (sending, receiving) = columns[4].split_once(':').unwrap();
        let (sending, receiving) = (number(sending), number(receiving));
        match (port(columns[1]), port(columns[2])) {
            ends if ends == (server, here) => {
                (to_client, to_server) = (to_client + sending, to_server + receiving)
            }
            ends if ends == (here, server) => {
                (to_client, to_server) = (to_client + receiving, to_server + sending)
            }
            _ => {}
        }
    }
    (to_client, to_server)
}

/// The most bytes that the server takes from its streams for one write, and one more write that the kernel
/// may have taken meanwhile.
const ONE_WRITE: usize = 2 * 128 * 1024;

/// The most bytes of a response that the kernel may hold on both sides, for a client with a small buffer.
const MAX_KERNEL: usize = 768 * 1024;

/// Waits until the server can send no more.
fn wait_until_full(peer: &Peer<TcpStream>) -> usize {
    let mut last = (0, 0);
    wait_until("the socket is full", || {
        let (now, _) = bytes_in_kernel(peer);
        last = if now == last.0 && now > 0 {
            (now, last.1 + 1)
        } else {
            (now, 0)
        };
        last.1 > 20
    });
    last.0
}

#[test]
fn a_large_download_delays_a_small_response_by_no_more_than_one_write() {
    let server = Server::start(sized());
    let mut peer = open_narrow(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
    peer.send(window_update(0, 1 << 30));
    for download_priority in [None, Some("u=3"), Some("u=3, i")] {
        let field: Vec<_> = download_priority
            .map(|value| ("priority", value))
            .into_iter()
            .collect();
        let download = peer.request(&request_with("GET", "/60000000", &field), true);
        peer.head(download);
        let full = wait_until_full(&peer);
        // The kernel, too, holds little that it cannot send: by itself it would take megabytes.
        assert!(full <= MAX_KERNEL, "{full} bytes in the kernel");
        // The small response is requested without a priority, or with one, as browsers do.
        for small in [None, Some("u=0, i")] {
            let field: Vec<_> = small.map(|value| ("priority", value)).into_iter().collect();
            if download_priority == Some("u=3") && small.is_none() {
                // The client has prioritised the download as not incremental.
                continue;
            }
            let before = peer.received(download).body.len();
            let queued = wait_until_full(&peer);
            let small = peer.request(&request_with("GET", "/12", &field), true);
            // The server has it before anything is read.
            wait_until("the request is read", || bytes_in_kernel(&peer).1 == 0);
            assert_eq!(peer.response(small).body.len(), 12);
            let overtaken = peer.received(download).body.len() - before;
            assert!(
                overtaken <= queued + ONE_WRITE,
                "{overtaken} bytes of the download came before the response, {queued} of {full} were queued"
            );
        }
        peer.send(reset(download, code::CANCEL));
        peer.fence();
    }
}

#[test]
fn a_client_with_many_streams_does_not_starve_another_on_the_same_worker() {
    let server = Server::start(sized());
    let (ended, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut progress = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut greedy = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
            greedy.send(window_update(0, (1 << 30) - 1));
            for _ in 0..100 {
                greedy.get("/60000000");
            }
            let mut streams = 100;
            while !ended.load(Ordering::Relaxed) {
                let frame = greedy.read().unwrap();
                taken.fetch_add(frame.payload.len(), Ordering::Relaxed);
                greedy.received(frame.stream).body.clear();
                if greedy.received(frame.stream).ended && frame.kind == kind::DATA {
                    greedy.get("/60000000");
                    streams += 1;
                }
                assert!(streams < 100_000);
            }
        });
        let _over = EndFlag(&ended);
        wait_until("the greedy client is at it", || {
            taken.load(Ordering::Relaxed) > 1 << 20
        });
        let mut modest = open(&server);
        modest.fence();
        for _ in 0..100 {
            let before = taken.load(Ordering::Relaxed);
            assert_eq!(modest.fetch("/12").body.len(), 12);
            progress.push(taken.load(Ordering::Relaxed) - before);
        }
    });
    progress.sort_unstable();
    // The modest client waits for a turn or two of the greedy one, and for its own two wake-ups.
    assert!(progress[50] < 4 << 20, "{progress:?}");
    assert!(progress[99] < 64 << 20, "{progress:?}");
}

#[test]
fn a_response_to_head_waits_for_no_window() {
    let server = Server::start(sized());
    let mut peer = shut(&server);
    let download = request_large(&mut peer, Some("u=0"));
    let stream = peer.request(&request("HEAD", "/100"), true);
    assert_eq!(peer.response(stream).field("content-length"), Some("100"));
    assert!(!peer.received(download).ended);
}
