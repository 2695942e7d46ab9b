//! Bodies of all sizes, their windows, and readers that do not read.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use apus_h3::H3ErrorCode;
use apus_http::{Body, BodyError, FileRange, Frame, Method, Response, ResponseFuture, StatusCode};
use apus_net::Limits;
use apus_testkit::{body_bytes, collect, eventually, ready_frames};
use bytes::Bytes;

use super::{H3Request, H3Server};
use crate::harness::{PATIENCE, collector, ok, paths, service};

/// Around the limits of copied chunks, of unread bodies and of chunks, and beyond windows.
const SIZES: [usize; 13] = [
    0, 1, 1023, 1024, 1025, 16_384, 65_535, 65_536, 65_537, 131_072, 262_145, 1_000_000, 10_000_000,
];

fn post(has_length: Option<u64>) -> H3Request<'static> {
    H3Request {
        method: Method::POST,
        has_body: true,
        content_length: has_length,
        ..H3Request::get("/")
    }
}

#[test]
fn bodies_of_all_sizes_come_back_whole() {
    let server = H3Server::start(collector());
    let mut client = server.open();
    for size in SIZES {
        let body = body_bytes(size);
        for length in [Some(size as u64), None] {
            let id = client.request(&post(length));
            client.send_data(id, body.clone(), true);
            let response = client.response(id);
            assert_eq!(response.status, 200, "{size}: {}", response.text());
            assert!(response.body == body, "{size}");
        }
    }
}

#[test]
fn bodies_from_files_and_streams_are_whole() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&body_bytes(10_000_000)).unwrap();
    let file = Arc::new(file);
    let server = H3Server::start(service(move |request| {
        let (kind, size) = request.path()[1..].split_once('/').unwrap();
        let size: usize = size.parse().unwrap();
        let body: Body = match kind {
            "file" => Body::File(FileRange {
                file: Arc::clone(&file),
                offset: 0,
                len: size as u64,
            }),
            _ => {
                let whole = Bytes::from(body_bytes(size));
                let chunk = |at| Ok(Frame::Data(whole.slice(at..size.min(at + 7000))));
                ready_frames(None, (0..size).step_by(7000).map(chunk).collect())
            }
        };
        Response::new(StatusCode::OK).with_body(body).into()
    }));
    let mut client = server.open();
    for size in SIZES {
        for kind in ["file", "stream"] {
            let response = client.get(&format!("/{kind}/{size}"));
            assert!(
                response.body == body_bytes(size),
                "{kind} {size} {}",
                response.body.len()
            );
        }
    }
}

#[test]
fn many_downloads_at_once_are_whole() {
    let body = Bytes::from(body_bytes(300_000));
    let shared = body.clone();
    let server = H3Server::start(service(move |_| ok(shared.clone()).into()));
    let mut client = server.open();
    let ids: Vec<_> = (0..30)
        .map(|_| client.request(&H3Request::get("/")))
        .collect();
    for id in ids {
        assert!(client.response(id).body == body);
    }
}

/// Collects the body when the flag is set.
fn late_reader(go: &Arc<AtomicBool>) -> Arc<dyn apus_http::ServiceFactory> {
    let go = Arc::clone(go);
    service(move |mut request| {
        let go = Arc::clone(&go);
        ResponseFuture::later(async move {
            eventually("the test goes on", || go.load(Ordering::SeqCst)).await;
            let body = collect(&mut request.take_body()).await.unwrap();
            ok(body.len().to_string())
        })
    })
}

#[test]
fn a_body_that_is_not_read_closes_the_window_of_its_client() {
    let go = Arc::new(AtomicBool::new(false));
    let server = H3Server::start(late_reader(&go));
    let mut client = server.open();
    let id = client.request(&post(None));
    client.send_data(id, body_bytes(20_000_000), true);
    client.pause(Duration::from_millis(500));
    // The window of a stream is 8 MB.
    let unsent = client.state().unsent_bytes(id);
    assert!(unsent > 10_000_000, "{unsent}");
    go.store(true, Ordering::SeqCst);
    assert_eq!(client.response(id).text(), "20000000");
}

#[test]
fn an_upload_that_is_not_wanted_is_stopped_and_the_response_is_whole() {
    let server = H3Server::start(service(|_| {
        Response::text(StatusCode::FORBIDDEN, "x".repeat(100_000)).into()
    }));
    let mut client = server.open();
    let id = client.request(&post(None));
    client.send_data(id, body_bytes(20_000_000), true);
    let response = client.response(id);
    assert_eq!((response.status, response.body.len()), (403, 100_000));
    let id = client.request(&post(None));
    client.send_data(id, body_bytes(20_000_000), false);
    client.wait("STOP_SENDING", |connection| {
        let response = connection.response_of(id).unwrap();
        response.is_complete && response.stopped == Some(H3ErrorCode::NO_ERROR.0)
    });
    assert_eq!(client.get("/").status, 403);
}

#[test]
fn a_body_that_differs_from_its_length_is_malformed() {
    let server = H3Server::start(collector());
    let mut client = server.open();
    for (length, sent) in [(4, 5), (6, 5)] {
        let id = client.request(&post(Some(length)));
        client.send_data(id, "hello", true);
        let response = client.response(id);
        let is_refused = response.reset == Some(H3ErrorCode::MESSAGE_ERROR);
        assert!(is_refused, "{length} for {sent}: {response:?}");
    }
    assert_eq!(client.post("/", b"well").text(), "well");
}

#[test]
fn a_response_that_is_not_read_does_not_hold_up_others() {
    let server = H3Server::start(service(|request| match request.path() {
        "/large" => ok(body_bytes(40_000_000)).into(),
        path => ok(path.to_owned()).into(),
    }));
    let mut client = server.open();
    let large = client.request(&H3Request::get("/large"));
    client.leave_unread(large);
    for _ in 0..10 {
        assert_eq!(client.get("/small").text(), "/small");
        client.pause(Duration::from_millis(20));
    }
    client.read_again(large);
    assert_eq!(client.response(large).body.len(), 40_000_000);
}

#[test]
fn a_response_of_which_nothing_is_taken_is_reset_in_the_end() {
    let limits = Limits {
        send_timeout: Duration::from_secs(1),
        ..Limits::default()
    };
    let service = service(|request| match request.path() {
        "/large" => ok(body_bytes(40_000_000)).into(),
        // All of it is passed on at once, but more than the windows take.
        "/whole" => ok(body_bytes(33 * 1024 * 1024)).into(),
        path => ok(path.to_owned()).into(),
    });
    let server = H3Server::with_limits(limits, service);
    let mut client = server.open();
    let ids = ["/large", "/whole"].map(|path| {
        let id = client.request(&H3Request::get(path));
        client.leave_unread(id);
        id
    });
    let begin = Instant::now();
    while server.server.totals().stalled_streams < 2 {
        assert!(begin.elapsed() < PATIENCE, "the streams are not reset");
        client.pause(Duration::from_millis(20));
    }
    for id in ids {
        client.read_again(id);
        assert!(client.response(id).reset.is_some());
    }
    assert_eq!(client.get("/a").text(), "/a");
}

#[test]
fn an_urgent_response_overtakes_a_long_one() {
    let server = H3Server::start(service(|request| match request.path() {
        "/bulk" => ok(body_bytes(30_000_000)).into(),
        path => ok(path.to_owned()).into(),
    }));
    let mut client = server.open();
    let bulk = client.request(&H3Request {
        fields: &[("priority", "u=7")],
        ..H3Request::get("/bulk")
    });
    client.wait("the begin of the response", |connection| {
        connection.body_bytes(bulk) > 0
    });
    let urgent = client.request(&H3Request {
        fields: &[("priority", "u=0")],
        ..H3Request::get("/urgent")
    });
    client.wait("the urgent response", |connection| {
        connection.response_of(urgent).unwrap().is_complete
    });
    let before = client.state().body_bytes(bulk);
    assert!(before < 25_000_000, "{before}");
    assert_eq!(client.response(bulk).body.len(), 30_000_000);
}

#[test]
fn an_unsent_response_resets_its_stream_alone() {
    let server = H3Server::start(service(|request| match request.path() {
        "/none" => Response::unsent().into(),
        path => ok(path.to_owned()).into(),
    }));
    let mut client = server.open();
    let response = client.get("/none");
    assert_eq!(response.reset, Some(H3ErrorCode::REQUEST_CANCELLED));
    assert!(!response.is_complete);
    assert_eq!(client.get("/a").text(), "/a");
}

#[test]
fn a_source_that_fails_resets_its_stream() {
    let server = H3Server::start(service(|request| match request.path() {
        "/broken" => {
            let frames = vec![
                Ok(Frame::Data(Bytes::from("begin"))),
                Err(BodyError::Disconnected),
            ];
            let body = ready_frames(Some(10), frames);
            Response::new(StatusCode::OK).with_body(body).into()
        }
        path => ok(path.to_owned()).into(),
    }));
    let mut client = server.open();
    let response = client.get("/broken");
    assert_eq!(response.reset, Some(H3ErrorCode::INTERNAL_ERROR));
    assert!(!response.is_complete);
    assert_eq!(client.get("/a").text(), "/a");
    assert_eq!(server.server.totals().broken_responses, 1);
}

#[test]
fn requests_that_come_with_others_reset_are_served() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    for round in 0..20 {
        let id = client.request(&H3Request::get("/gone"));
        client.cancel(id);
        let path = format!("/{round}");
        assert_eq!(client.get(&path).text(), path);
    }
}
