//! What honest clients do that looks like an attack: none of it meets a limit.

use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_testkit::body_bytes;
use apus_testkit::h2::{
    FRAME, block, code, data, flag, frame, get, head, kind, ping, priority, request, request_with,
    reset, setting, window_update,
};
use bytes::Bytes;

use super::client::Peer;
use super::{described, open, open_with};
use crate::harness::{Server, ok, paths, service};

fn sized() -> Arc<dyn ServiceFactory> {
    let whole = Bytes::from(body_bytes(64 << 20));
    service(move |mut request| match request.path() {
        "/echo" => ok(request.take_body()).into(),
        path => {
            let len: usize = path[1..].parse().unwrap();
            ok(whole.slice(..len)).into()
        }
    })
}

fn assert_well(server: &Server, peer: &mut Peer<std::net::TcpStream>) {
    peer.fence();
    assert_eq!(peer.goaways, []);
    let totals = server.totals();
    let stopped: Vec<_> = totals
        .iter()
        .filter(|(name, count)| name.starts_with("stopped_") && *count > 0)
        .collect();
    assert_eq!(stopped, []);
    assert_eq!((totals.bad_requests, totals.timeouts), (0, 0));
}

#[test]
fn a_browser_may_cancel_two_hundred_images_at_once_and_again() {
    let server = Server::start(sized());
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 6 << 20)]);
    peer.send(window_update(0, 15 << 20));
    for _ in 0..2 {
        let images: Vec<u32> = (0..200).map(|_| peer.get("/300000")).collect();
        peer.head(images[0]);
        let cancels: Vec<u8> = images
            .iter()
            .flat_map(|stream| reset(*stream, code::CANCEL))
            .collect();
        peer.send(cancels);
        // The next page of the browser.
        let streams: Vec<u32> = (0..50).map(|_| peer.get("/10000")).collect();
        for stream in streams {
            assert_eq!(peer.response(stream).body.len(), 10_000);
        }
    }
    assert_well(&server, &mut peer);
}

#[test]
fn a_player_may_seek_three_hundred_times() {
    let server = Server::start(sized());
    let mut peer = open(&server);
    for _ in 0..300 {
        let stream = peer.get("/1000000");
        peer.until("a part", |peer| peer.received(stream).body.len() > 20_000);
        peer.send(reset(stream, code::CANCEL));
    }
    assert_well(&server, &mut peer);
}

#[test]
fn as_many_pings_are_accepted_as_the_data_of_a_connection_explains() {
    let server = Server::start(sized());
    let mut peer = open(&server);
    let download = peer.get("/30000000");
    let mut count = 0;
    while !peer.received(download).ended {
        let frame = peer.read().unwrap();
        count += u64::from(frame.kind == kind::DATA);
        if frame.kind == kind::DATA && count.is_multiple_of(2) {
            peer.send(ping(count));
        }
    }
    assert!(count > 1000);
    let upload = peer.request(&request("POST", "/echo"), false);
    for part in body_bytes(10_000_000).chunks(FRAME) {
        peer.upload(upload, part, false);
        peer.send(ping(7));
    }
    peer.upload(upload, b"", true);
    assert_eq!(peer.response(upload).body.len(), 10_000_000);
    assert_well(&server, &mut peer);
}

#[test]
fn a_client_may_have_a_hundred_and_eighty_cookies() {
    let server = Server::start(described());
    let mut peer = open(&server);
    let cookies: Vec<String> = (0..180)
        .map(|index| format!("cookie_{index}=value-{index}"))
        .collect();
    let cookie_fields: Vec<_> = cookies
        .iter()
        .map(|cookie| ("cookie", cookie.as_str()))
        .collect();
    let stream = peer.request(&request_with("GET", "/", &cookie_fields), true);
    let response = peer.response(stream);
    assert_eq!(response.status, 200);
    assert!(
        response
            .text()
            .contains(&format!("cookie: {}\n", cookies.join("; ")))
    );
    assert_well(&server, &mut peer);
}

#[test]
fn windows_may_be_opened_thousands_of_times_while_much_is_loaded() {
    let server = Server::start(sized());
    let mut peer = open(&server);
    // Two for each frame, and one more that is small.
    let stream = peer.get("/60000000");
    let mut updates = 0;
    while !peer.received(stream).ended {
        let frame = peer.read().unwrap();
        if frame.kind == kind::DATA && !frame.has(flag::END_STREAM) {
            peer.send(window_update(stream, 1));
            updates += 3;
        }
        peer.received(stream).body.clear();
    }
    assert!(updates > 10_000, "{updates}");
    assert_well(&server, &mut peer);
}

#[test]
fn windows_may_be_opened_for_thousands_of_frames_all_at_once() {
    let server = Server::start(sized());
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
    peer.send(window_update(0, 1 << 30));
    peer.opens_windows = false;
    let stream = peer.get("/60000000");
    let mut updates = Vec::new();
    let mut frames = 0;
    while !peer.received(stream).ended {
        let frame = peer.read().unwrap();
        if frame.kind == kind::DATA && !frame.has(flag::END_STREAM) {
            let length = frame.payload.len() as u32;
            updates.extend(window_update(0, length));
            updates.extend(window_update(stream, length));
            frames += 1;
            // Some measure the connection, too.
            if frames % 4 == 0 {
                updates.extend(ping(frames));
            }
        }
    }
    assert!(frames > 3000, "{frames}");
    peer.send(updates);
    assert_well(&server, &mut peer);
}

#[test]
fn small_messages_may_be_exchanged_without_end() {
    let server = Server::start(sized());
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/echo"), false);
    for number in 1..=5000 {
        peer.upload(stream, b"short", false);
        peer.until("the echo", |peer| {
            peer.received(stream).body.len() == number * 5
        });
    }
    assert_well(&server, &mut peer);
}

#[test]
fn a_body_may_arrive_byte_by_byte() {
    let server = Server::start(sized());
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/echo"), false);
    let many: Vec<u8> = (0..20_000).flat_map(|_| data(stream, "x", false)).collect();
    peer.send(many);
    peer.spend(stream, 20_000);
    peer.upload(stream, b"", true);
    assert_eq!(peer.response(stream).body.len(), 20_000);
    assert_well(&server, &mut peer);
}

#[test]
fn many_requests_one_after_the_other_are_no_flood() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    for _ in 0..50 {
        let streams: Vec<u32> = (0..100).map(|_| peer.get("/a")).collect();
        for stream in streams {
            assert_eq!(peer.response(stream).text(), "/a");
        }
    }
    assert_well(&server, &mut peer);
}

#[test]
fn an_old_browser_may_build_its_tree_of_priorities() {
    let server = Server::start(paths());
    let mut peer = open_with(
        &server,
        &[
            (setting::HEADER_TABLE_SIZE, 65_536),
            (setting::INITIAL_WINDOW_SIZE, 131_072),
            (setting::MAX_FRAME_SIZE, 16_384),
        ],
    );
    peer.send(window_update(0, 12_517_377));
    for (stream, weight) in [(3, 200), (5, 100), (7, 0), (9, 0), (11, 0), (13, 240)] {
        peer.send(priority(stream, 0, weight));
    }
    for stream in (15..1015).step_by(2) {
        let mut payload = 13_u32.to_be_bytes().to_vec();
        payload.push(41);
        payload.extend(block(&request("GET", "/a")));
        let flags = flag::END_STREAM | flag::END_HEADERS | flag::PRIORITY;
        peer.send(frame(kind::HEADERS, flags, stream, payload));
        peer.send(priority(stream, 9, 21));
        assert_eq!(peer.response(stream).text(), "/a");
    }
    assert_well(&server, &mut peer);
}

#[test]
fn a_few_mistakes_are_tolerated() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    for _ in 0..50 {
        let stream = peer.request(&request_with("GET", "/", &[("connection", "close")]), true);
        assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR);
    }
    assert_eq!(peer.fetch("/well").text(), "/well");
    assert_eq!(peer.goaways, []);
}

#[test]
fn a_long_head_may_come_in_many_parts() {
    let server = Server::start(described());
    let mut peer = open(&server);
    let value = "v".repeat(25_000);
    let block = block(&request_with("GET", "/", &[("x", &value)]));
    let parts: Vec<&[u8]> = block.chunks(1000).collect();
    let mut bytes = frame(kind::HEADERS, flag::END_STREAM, 1, parts[0]);
    for (index, part) in parts.iter().enumerate().skip(1) {
        let is_last = index + 1 == parts.len();
        bytes.extend(frame(
            kind::CONTINUATION,
            u8::from(is_last) * flag::END_HEADERS,
            1,
            part,
        ));
    }
    peer.send(bytes);
    assert!(peer.response(1).text().contains(&format!("x: {value}\n")));
    peer.send(
        [
            get(3, "/a"),
            head(5, &apus_testkit::h2::block(&request("GET", "/b")), true),
        ]
        .concat(),
    );
    assert_eq!(peer.response(3).status, 200);
    assert_eq!(peer.response(5).status, 200);
    assert_well(&server, &mut peer);
}
