//! Flow control (RFC 9113 section 5.2): windows are kept to the byte, unread bodies stay with the client, and
//! large bodies arrive whole.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use apus_http::{
    Body, BodyError, BodyStream, FileRange, Frame, Response, ResponseFuture, SealedMemory,
    ServiceFactory, StatusCode,
};
use apus_net::Limits;
use apus_testkit::h2::{
    FRAME, WINDOW, block, code, data, head, request, reset, setting, settings, window_update,
};
use apus_testkit::{body_bytes, collect, eventually};

use super::client::Peer;
use super::{large, open, open_narrow, open_tls, open_with, with_tls};
use crate::harness::{Server, collector, ok, service};

/// How many bytes of a stream the client got, once the server has sent all that it may.
fn got(peer: &mut Peer<std::net::TcpStream>, stream: u32) -> usize {
    peer.fence();
    peer.received(stream).body.len()
}

#[test]
fn a_stream_gets_as_much_as_its_window_holds_rfc_9113_section_6_9_1() {
    let server = Server::start(large(100_000));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1000)]);
    peer.opens_windows = false;
    let stream = peer.get("/");
    assert_eq!(got(&mut peer, stream), 1000);
    let mut so_far = 1000;
    for more in [1, 17, 5000, 16_384, 16_385] {
        peer.send(window_update(stream, more));
        so_far += more as usize;
        assert_eq!(got(&mut peer, stream), so_far);
    }
    // Another stream has its own window.
    let other = peer.get("/");
    assert_eq!(got(&mut peer, other), 1000);
    peer.send(window_update(stream, 1 << 20));
    // The rest of the connection's window.
    assert_eq!(got(&mut peer, stream), WINDOW - 1000);
    peer.send(window_update(0, 1 << 20));
    assert!(peer.response(stream).body == body_bytes(100_000));
    assert_eq!(got(&mut peer, other), 1000);
}

#[test]
fn all_streams_share_the_window_of_the_connection_rfc_9113_section_6_9_1() {
    let server = Server::start(large(100_000));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]);
    peer.opens_windows = false;
    let streams: Vec<u32> = (0..5).map(|_| peer.get("/")).collect();
    let all = |peer: &mut Peer<_>| -> usize {
        streams
            .iter()
            .map(|stream| peer.received(*stream).body.len())
            .sum()
    };
    peer.fence();
    assert_eq!(all(&mut peer), WINDOW);
    let mut so_far = WINDOW;
    for more in [1, 1000, 16_384, 40_000] {
        peer.send(window_update(0, more));
        so_far += more as usize;
        peer.fence();
        assert_eq!(all(&mut peer), so_far);
    }
    peer.send(window_update(0, 1 << 20));
    for stream in streams {
        assert!(peer.response(stream).body == body_bytes(100_000));
    }
}

#[test]
fn settings_move_the_windows_of_open_streams_below_zero_too_rfc_9113_section_6_9_2() {
    let initial = |size| settings(&[(setting::INITIAL_WINDOW_SIZE, size)]);
    let server = Server::start(large(40_000));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1000)]);
    peer.opens_windows = false;
    let stream = peer.get("/");
    assert_eq!(got(&mut peer, stream), 1000);
    peer.send(initial(0));
    // The window is at -1000 now.
    peer.send(window_update(stream, 1000));
    assert_eq!(got(&mut peer, stream), 1000);
    peer.send(window_update(stream, 1));
    assert_eq!(got(&mut peer, stream), 1001);
    peer.send(initial(500));
    assert_eq!(got(&mut peer, stream), 1501);
    peer.send(initial(400));
    peer.send(initial(600));
    assert_eq!(got(&mut peer, stream), 1601);
    // A stream that is opened now has the current window.
    let other = peer.get("/");
    assert_eq!(got(&mut peer, other), 600);
    peer.send(initial(1 << 20));
    // They share the rest of the connection's window.
    let all = got(&mut peer, stream) + got(&mut peer, other);
    assert_eq!(all, WINDOW);
    peer.send(window_update(0, 1 << 20));
    for stream in [stream, other] {
        assert!(peer.response(stream).body == body_bytes(40_000));
    }
}

#[test]
fn a_client_may_begin_with_no_window_at_all() {
    let server = Server::start(large(10_000));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 0)]);
    let streams: Vec<u32> = (0..10).map(|_| peer.get("/")).collect();
    for stream in &streams {
        assert_eq!(peer.head(*stream).field("content-length"), Some("10000"));
        assert_eq!(got(&mut peer, *stream), 0);
    }
    // A body without bytes needs no window.
    let stream = peer.request(&request("HEAD", "/"), true);
    assert_eq!(peer.response(stream).status, 200);
    peer.send(settings(&[(setting::INITIAL_WINDOW_SIZE, 10_000)]));
    for stream in streams {
        assert!(peer.response(stream).body == body_bytes(10_000));
    }
}

#[test]
fn takes_bodies_that_are_larger_than_its_windows() {
    let sent = body_bytes(10_000_000);
    let server = Server::start(collector());
    let mut peer = open(&server);
    let (authority, tls_server) = with_tls(Limits::default(), collector());
    let mut tls_peer = open_tls(&authority, &tls_server);
    for _ in 0..2 {
        let stream = peer.request(&request("POST", "/"), false);
        peer.upload(stream, &sent, true);
        assert!(peer.response(stream).body == sent);
        let stream = tls_peer.request(&request("POST", "/"), false);
        tls_peer.upload(stream, &sent, true);
        assert!(tls_peer.response(stream).body == sent);
    }
    assert_eq!(peer.fetch("/").status, 200);
}

#[test]
fn echoes_a_large_body_in_both_directions_at_once() {
    let server = Server::start(service(|mut request| ok(request.take_body()).into()));
    let mut peer = open(&server);
    let sent = body_bytes(3_000_000);
    let streams: Vec<u32> = (0..3)
        .map(|_| peer.request(&request("POST", "/"), false))
        .collect();
    for (index, part) in sent.chunks(10_000).enumerate() {
        let is_last = (index + 1) * 10_000 >= sent.len();
        for stream in &streams {
            peer.upload(*stream, part, is_last);
        }
    }
    for stream in streams {
        assert!(peer.response(stream).body == sent);
    }
}

/// Reads the body when the flag is set.
fn late_reader(go: &Arc<AtomicBool>) -> Arc<dyn ServiceFactory> {
    let go = Arc::clone(go);
    service(move |mut request| {
        let go = Arc::clone(&go);
        ResponseFuture::later(async move {
            eventually("the test goes on", || go.load(Ordering::Relaxed)).await;
            match collect(request.body_mut()).await {
                Ok(body) => ok(body.len().to_string()),
                Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        })
    })
}

#[test]
fn a_body_that_the_service_does_not_read_stays_with_the_client() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::start(late_reader(&go));
    let mut peer = open(&server);
    peer.fence();
    let stream = peer.request(&request("POST", "/"), false);
    let window = usize::try_from(peer.window_of(stream)).unwrap();
    peer.upload(stream, &vec![b'x'; window], false);
    for _ in 0..5 {
        peer.fence();
        assert_eq!(
            peer.window_of(stream),
            0,
            "a window was opened without a reader"
        );
    }
    go.store(true, Ordering::Relaxed);
    peer.upload(stream, &vec![b'x'; 10 * window], true);
    assert_eq!(peer.response(stream).text(), (11 * window).to_string());
}

#[test]
fn unread_bodies_of_many_services_are_bounded_together() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::start(late_reader(&go));
    let mut peer = open(&server);
    peer.fence();
    let window = peer.window();
    assert!((1..=1 << 20).contains(&window), "{window}");
    let mut streams = Vec::new();
    while peer.window() > 0 {
        let stream = peer.request(&request("POST", "/"), false);
        let part = peer.window().min(10_000);
        peer.upload(stream, &vec![b'x'; part as usize], false);
        streams.push((stream, part));
    }
    for _ in 0..5 {
        peer.fence();
        assert_eq!(peer.window(), 0, "a window was opened without a reader");
    }
    go.store(true, Ordering::Relaxed);
    for (stream, part) in streams {
        peer.upload(stream, b"end", true);
        assert_eq!(peer.response(stream).text(), (part + 3).to_string());
    }
}

#[test]
fn windows_grow_for_a_fast_reader_up_to_a_bound() {
    let server = Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            let mut length = 0;
            while let Some(frame) = request.body_mut().frame().await {
                if let Ok(Frame::Data(bytes)) = frame {
                    length += bytes.len();
                }
            }
            ok(length.to_string())
        })
    }));
    let mut peer = open(&server);
    peer.fence();
    let first = peer.window();
    let stream = peer.request(&request("POST", "/"), false);
    let block = vec![b'x'; 1 << 20];
    let (mut largest, mut largest_of_stream) = (first, peer.window_of(stream));
    for _ in 0..60 {
        peer.upload(stream, &block, false);
        peer.fence();
        largest = largest.max(peer.window());
        largest_of_stream = largest_of_stream.max(peer.window_of(stream));
    }
    peer.upload(stream, b"", true);
    assert_eq!(peer.response(stream).text(), (60 << 20).to_string());
    assert!(largest > first && largest_of_stream > 4 * WINDOW as i64);
    assert!(largest <= 32 << 20, "{largest}");
}

#[test]
fn windows_stay_as_they_are_for_a_reader_that_is_slower_than_its_client() {
    let server = Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            let mut length = 0;
            while let Some(frame) = request.body_mut().frame().await {
                if let Ok(Frame::Data(bytes)) = frame {
                    length += bytes.len();
                }
                // On a busy machine a round trip takes some time, in which it must not read half a window.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            ok(length.to_string())
        })
    }));
    let mut peer = open(&server);
    peer.fence();
    let first = peer.window();
    let stream = peer.request(&request("POST", "/"), false);
    peer.upload(stream, &vec![b'x'; 512 << 10], true);
    assert_eq!(peer.response(stream).text(), (512 << 10).to_string());
    peer.fence();
    assert!(
        peer.window() <= 4 * first,
        "{} after {first}",
        peer.window()
    );
}

/// Uploads the window's size to a stream and resets it, again and again: the windows of data that will not be
/// read are given back.
fn assert_no_window_is_lost(give_up: impl Fn(&mut Peer<std::net::TcpStream>, u32)) {
    let server = Server::start(service(|request| match request.path() {
        "/wait" => ResponseFuture::later(std::future::pending()),
        path => ok(path.to_owned()).into(),
    }));
    let mut peer = open(&server);
    peer.fence();
    let window = peer.window();
    for _ in 0..40 {
        let stream = peer.next_stream();
        give_up(&mut peer, stream);
    }
    peer.fence();
    assert_eq!(peer.goaways, []);
    // Some of it may be given back later, in one frame.
    assert!(peer.window() >= window / 2, "{} of {window}", peer.window());
}

#[test]
fn unread_data_of_a_stream_that_the_client_resets_is_given_back_rfc_9113_section_6_9() {
    assert_no_window_is_lost(|peer, stream| {
        peer.send(head(stream, &block(&request("POST", "/wait")), false));
        peer.upload(stream, &[b'x'; 50_000], false);
        peer.send(reset(stream, code::CANCEL));
    });
}

#[test]
fn the_window_of_an_unread_body_is_given_back_after_the_response() {
    assert_no_window_is_lost(|peer, stream| {
        peer.send(head(stream, &block(&request("POST", "/early")), false));
        peer.upload(stream, &[b'x'; 50_000], false);
        assert_eq!(peer.head(stream).status, 200);
    });
}

#[test]
fn the_body_of_a_refused_request_is_given_back() {
    let long = format!("/{}", "a".repeat(9000));
    assert_no_window_is_lost(|peer, stream| {
        peer.send(head(stream, &block(&request("POST", &long)), false));
        peer.upload(stream, &[b'x'; 50_000], false);
        assert_eq!(peer.head(stream).status, 414);
    });
}

#[test]
fn data_in_flight_to_a_stream_that_was_reset_is_given_back() {
    assert_no_window_is_lost(|peer, stream| {
        // The server resets it for its name, and the body follows in the same write.
        let bad = block(&[&request("POST", "/")[..], &[("X", "y")]].concat());
        let body = vec![b'x'; 3 * FRAME];
        peer.wait_for_window(stream, 3 * FRAME);
        peer.send([head(stream, &bad, false), data(stream, &body, true)].concat());
        peer.spend(stream, 3 * FRAME);
        assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR);
    });
}

/// Responds with the part of a file that the path names.
fn file(whole: &[u8]) -> Arc<dyn ServiceFactory> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(whole).unwrap();
    let shared: Arc<File> = Arc::new(file);
    service(move |request| {
        let (offset, len) = request.path()[1..].split_once('-').unwrap();
        let range = FileRange {
            file: Arc::clone(&shared),
            offset: offset.parse().unwrap(),
            len: len.parse().unwrap(),
        };
        Response::new(StatusCode::OK)
            .with_body(Body::File(range))
            .into()
    })
}

/// Responds with the part of sealed memory that the path names.
fn sealed(whole: &[u8]) -> Arc<dyn ServiceFactory> {
    let sealed = SealedMemory::gather(std::iter::once(whole)).unwrap();
    service(move |request| {
        let (offset, len) = request.path()[1..].split_once('-').unwrap();
        let (offset, len): (usize, usize) = (offset.parse().unwrap(), len.parse().unwrap());
        Response::new(StatusCode::OK)
            .with_body(sealed.slice(offset..offset + len))
            .into()
    })
}

const RANGES: [(usize, usize); 9] = [
    (0, 0),
    (0, 1),
    (0, FRAME - 1),
    (0, FRAME),
    (0, FRAME + 1),
    (12_345, 200_000),
    (0, 512 * 1024),
    (1, 512 * 1024 + 1),
    (0, 5_000_000),
];

#[test]
fn sends_files_byte_by_byte() {
    sends_byte_by_byte(file);
}

#[test]
fn sends_sealed_memory_byte_by_byte() {
    sends_byte_by_byte(sealed);
}

fn sends_byte_by_byte(source: impl Fn(&[u8]) -> Arc<dyn ServiceFactory>) {
    let whole = body_bytes(5_000_000);
    let server = Server::start(source(&whole));
    let mut peer = open(&server);
    let (authority, tls_server) = with_tls(Limits::default(), source(&whole));
    let mut tls_peer = open_tls(&authority, &tls_server);
    for (offset, len) in RANGES {
        let path = format!("/{offset}-{len}");
        let part = &whole[offset..offset + len];
        assert!(peer.fetch(&path).body == part, "{path}");
        assert!(tls_peer.fetch(&path).body == part, "{path} over TLS");
    }
    // All at once.
    let streams: Vec<u32> = RANGES
        .iter()
        .map(|(offset, len)| tls_peer.get(&format!("/{offset}-{len}")))
        .collect();
    for (stream, (offset, len)) in streams.into_iter().zip(RANGES) {
        assert!(
            tls_peer.response(stream).body == whole[offset..offset + len],
            "{offset}-{len}"
        );
    }
}

#[test]
fn a_reader_whose_socket_is_always_full_gets_everything() {
    let whole = body_bytes(2_000_000);
    let server = Server::start(file(&whole));
    let mut peer = open_narrow(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 24)]);
    peer.send(window_update(0, 1 << 24));
    let streams = [
        peer.get("/0-2000000"),
        peer.get("/7-1500000"),
        peer.get("/0-5"),
    ];
    for (stream, part) in streams
        .iter()
        .zip([&whole[..], &whole[7..1_500_007], &whole[..5]])
    {
        assert!(peer.response(*stream).body == part);
    }
}

#[test]
fn small_windows_that_are_opened_again_and_again_carry_everything() {
    let whole = body_bytes(500_000);
    let server = Server::start(file(&whole));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 2000)]);
    let streams = [peer.get("/0-500000"), peer.get("/1-400000")];
    assert!(peer.response(streams[0]).body == whole);
    assert!(peer.response(streams[1]).body == whole[1..400_001]);
    assert_eq!(peer.goaways, []);
}

/// A body that is costly to produce, so that it waits for the client's window. Every other poll is pending
/// and wakes the driver.
struct CostlyBody {
    pieces: std::vec::IntoIter<Vec<u8>>,
    polls: Arc<AtomicUsize>,
    was_pending: bool,
}

impl BodyStream for CostlyBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.was_pending = !self.was_pending;
        if self.was_pending {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = self.pieces.next();
        Poll::Ready(piece.map(|piece| Ok(Frame::Data(piece.into()))))
    }

    fn waits_for_window(&self) -> bool {
        true
    }
}

#[test]
fn a_costly_body_is_not_produced_before_the_window_has_space_for_it() {
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let server = Server::start(service(move |_| {
        let pieces: Vec<_> = body_bytes(100_000).chunks(30_000).map(Vec::from).collect();
        let body = Body::stream(CostlyBody {
            pieces: pieces.into_iter(),
            polls: counted.clone(),
            was_pending: false,
        });
        Response::new(StatusCode::OK).with_body(body).into()
    }));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 0)]);
    peer.opens_windows = false;
    let stream = peer.get("/");
    assert_eq!(peer.head(stream).status, 200);
    peer.fence();
    assert_eq!(polls.load(Ordering::SeqCst), 0);
    peer.send(window_update(stream, 1));
    peer.until("a byte", |peer| peer.received(stream).body.len() == 1);
    assert_eq!(polls.load(Ordering::SeqCst), 2);
    // The rest of the first chunk leaves, and the next is not produced.
    peer.send(window_update(stream, 29_999));
    peer.until("the first piece", |peer| {
        peer.received(stream).body.len() == 30_000
    });
    peer.fence();
    assert_eq!(polls.load(Ordering::SeqCst), 2);
    peer.opens_windows = true;
    peer.send(window_update(stream, 1 << 20));
    peer.send(window_update(0, 1 << 20));
    assert!(peer.response(stream).body == body_bytes(100_000));
}
