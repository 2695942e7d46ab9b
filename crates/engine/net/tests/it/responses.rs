//! The bodies of responses: files by `sendfile` and over TLS, streams, and the reports of observers.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;

use apus_http::{
    Body, BodyError, Completion, FileRange, Frame, Headers, Response, ResponseOutcome,
    SealedMemory, StatusCode,
};
use apus_testkit::{frames, ready_frames};
use bytes::Bytes;

use crate::harness::{PATIENCE, Server, ok, paths, service};

fn body_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 253) as u8).collect()
}

fn file(bytes: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

fn range(file: &Arc<File>, offset: u64, len: u64) -> Body {
    Body::File(FileRange {
        file: Arc::clone(file),
        offset,
        len,
    })
}

fn data(text: &'static str) -> Result<Frame, BodyError> {
    Ok(Frame::Data(Bytes::from_static(text.as_bytes())))
}

fn broken() -> Result<Frame, BodyError> {
    Err(BodyError::Source("the disk is gone".into()))
}

/// A server whose responses report how they ended.
fn observed(
    body: impl Fn(&str) -> Body + Clone + Send + Sync + 'static,
) -> (Server, Receiver<Completion>) {
    let (sender, completions): (Sender<Completion>, _) = channel();
    let server = Server::start(service(move |request| {
        let sender = sender.clone();
        let mut response = Response::new(StatusCode::OK).with_body(body(request.path()));
        response.on_complete(move |completion| sender.send(completion.clone()).unwrap());
        response.into()
    }));
    (server, completions)
}

fn next_outcome(completions: &Receiver<Completion>) -> (u64, ResponseOutcome) {
    let completion = completions.recv_timeout(PATIENCE).unwrap();
    (completion.body_bytes, completion.outcome)
}

#[test]
fn sends_files_of_every_size_byte_by_byte() {
    let sizes = [0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 5_000_000];
    let whole = body_bytes(5_000_000);
    let shared = file(&whole);
    let server = Server::start(service(move |request| {
        let len = request.path()[1..].parse().unwrap();
        Response::new(StatusCode::OK)
            .with_body(range(&shared, 0, len))
            .into()
    }));
    let mut client = server.connect();
    for size in sizes {
        let received = client.get(&format!("/{size}"));
        assert_eq!(
            received.field("content-length"),
            Some(size.to_string().as_str())
        );
        assert!(received.body == whole[..size], "{size}");
    }
}

#[test]
fn sends_a_part_of_a_file() {
    let whole = body_bytes(300_000);
    let shared = file(&whole);
    let server = Server::start(service(move |_| {
        Response::new(StatusCode::PARTIAL_CONTENT)
            .with_body(range(&shared, 12_345, 200_000))
            .into()
    }));
    let mut client = server.connect();
    assert!(client.get("/").body == whole[12_345..212_345]);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3));
    for _ in 0..3 {
        assert!(client.read_response().body == whole[12_345..212_345]);
    }
}

#[test]
fn sends_sealed_memory_whole_and_in_parts() {
    let whole = body_bytes(3_000_000);
    let sealed = SealedMemory::gather(std::iter::once(&whole[..])).unwrap();
    let (server, completions) = observed(move |path| match path {
        "/" => sealed.clone().into(),
        "/part" => sealed.slice(12_345..212_345).into(),
        _ => sealed.slice(12..12).into(),
    });
    let mut client = server.connect();
    // More than the kernel takes, so that some is sent as the client reads.
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3));
    client.send("GET /part HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..3 {
        let received = client.read_response();
        assert_eq!(received.field("content-length"), Some("3000000"));
        assert!(received.body == whole);
        assert_eq!(
            next_outcome(&completions),
            (3_000_000, ResponseOutcome::Complete)
        );
    }
    assert!(client.read_response().body == whole[12_345..212_345]);
    assert_eq!(client.read_response().body, b"");
}

#[test]
fn sealed_memory_that_the_client_does_not_take_is_not_reported_as_sent() {
    let sealed = SealedMemory::gather(std::iter::once(&body_bytes(30_000_000)[..])).unwrap();
    let (server, completions) = observed(move |_| sealed.clone().into());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.read_head_response();
    assert_eq!(head.field("content-length"), Some("30000000"));
    drop(client);
    assert_eq!(next_outcome(&completions).1, ResponseOutcome::ClientGone);
    server.assert_serves();
}

#[test]
fn a_file_that_became_shorter_cuts_the_connection() {
    let (server, completions) = observed({
        let shared = file(&body_bytes(100_000));
        move |_| range(&shared, 0, 200_000)
    });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.read_head_response();
    assert_eq!(head.field("content-length"), Some("200000"));
    assert_eq!(client.rest().unwrap().len(), 100_000);
    assert_eq!(
        next_outcome(&completions),
        (100_000, ResponseOutcome::SourceFailed)
    );
    server.wait_for("the count", |totals| totals.broken_responses == 1);
}

#[test]
fn sends_no_body_to_head_whatever_its_kind() {
    let shared = file(&body_bytes(70_000));
    let sealed = SealedMemory::gather(std::iter::once(&body_bytes(80_000)[..])).unwrap();
    let (server, completions) = observed(move |path| match path {
        "/file" => range(&shared, 0, 70_000),
        "/sealed" => sealed.clone().into(),
        "/stream" => ready_frames(None, vec![data("12345")]),
        _ => Body::from("text"),
    });
    let mut client = server.connect();
    for (path, length) in [
        ("/file", Some("70000")),
        ("/sealed", Some("80000")),
        ("/stream", None),
        ("/text", Some("4")),
    ] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.read_head_response();
        assert_eq!(head.field("content-length"), length, "{path}");
        assert_eq!(next_outcome(&completions), (0, ResponseOutcome::Complete));
    }
    assert_eq!(client.get("/text").text(), "text");
}

#[test]
fn streams_frames_and_trailers_in_chunks() {
    let shared = file(b"from a file ");
    let server = Server::start(service(move |_| {
        let mut trailers = Headers::new();
        trailers.try_append("x-sum", "12").unwrap();
        trailers.try_append("content-length", "3").unwrap();
        let whole = FileRange {
            file: Arc::clone(&shared),
            offset: 0,
            len: 12,
        };
        ok(ready_frames(
            None,
            vec![
                data("one "),
                Ok(Frame::Data(Bytes::new())),
                Ok(Frame::File(whole)),
                data("two"),
                Ok(Frame::Trailers(trailers)),
            ],
        ))
        .into()
    }));
    let mut client = server.connect();
    for _ in 0..2 {
        let received = client.get("/");
        assert_eq!(received.field("transfer-encoding"), Some("chunked"));
        assert_eq!(
            (received.text().as_str(), received.trailers.as_str()),
            ("one from a file two", "x-sum: 12\r\n")
        );
    }
}

#[test]
fn streams_to_http_1_0_until_the_connection_ends() {
    let server = Server::start(service(|_| {
        ok(ready_frames(None, vec![data("one "), data("two")])).into()
    }));
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let received = client.read_response();
    assert_eq!(received.field("transfer-encoding"), None);
    assert_eq!(received.field("connection"), Some("close"));
    assert_eq!(received.text(), "one two");
}

#[test]
fn a_stream_that_breaks_is_no_complete_response_to_http_1_0_either() {
    let server = Server::start(service(|_| {
        ok(ready_frames(None, vec![data("half"), broken()])).into()
    }));
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    // An orderly close would be the end of the body.
    let error = match client.try_response(false) {
        Ok(received) => panic!("it looks whole: {}", received.text()),
        Err(error) => error,
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_stream_that_breaks_cuts_the_connection() {
    for (length, len) in [(None, "chunked"), (Some(100), "length")] {
        let (server, completions) =
            observed(move |_| ready_frames(length, vec![data("half"), broken()]));
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.try_response(false).is_err(), "{len}");
        assert_eq!(
            next_outcome(&completions),
            (4, ResponseOutcome::SourceFailed)
        );
        server.wait_for("the count", |totals| totals.broken_responses == 1);
        assert_eq!(server.totals().requests, 1);
    }
}

#[test]
fn a_stream_of_another_length_than_announced_is_never_a_complete_response() {
    let (server, completions) = observed(|path| match path {
        "/short" => {
            let mut all = vec![data("short")].into_iter();
            Body::stream(MisstatedStream(10, move || all.next()))
        }
        _ => {
            let mut all = vec![data("12345"), data("67890")].into_iter();
            Body::stream(MisstatedStream(7, move || all.next()))
        }
    });
    for (path, sent) in [("/short", 5), ("/long", 5)] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.try_response(false).is_err(), "{path}");
        assert_eq!(
            next_outcome(&completions),
            (sent, ResponseOutcome::SourceFailed),
            "{path}"
        );
    }
    server.wait_for("the count", |totals| totals.broken_responses == 2);
}

/// A stream that announces this many bytes and produces what the function returns.
struct MisstatedStream<F>(u64, F);

impl<F: FnMut() -> Option<Result<Frame, BodyError>>> apus_http::BodyStream for MisstatedStream<F> {
    fn poll_frame(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready((self.1)())
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.0)
    }
}

#[test]
fn a_frame_is_sent_before_the_next_is_there() {
    let (go, gone) = tokio::sync::mpsc::unbounded_channel();
    let gone = Arc::new(std::sync::Mutex::new(Some(gone)));
    let server = Server::start(service(move |_| {
        let mut words: tokio::sync::mpsc::UnboundedReceiver<&'static str> =
            gone.lock().unwrap().take().unwrap();
        let next =
            move |cx: &mut std::task::Context<'_>| words.poll_recv(cx).map(|word| word.map(data));
        ok(frames(None, next)).into()
    }));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head_response();
    for word in ["first", "other"] {
        go.send(word).unwrap();
        assert_eq!(
            client.exactly(10).unwrap(),
            format!("5\r\n{word}\r\n").as_bytes()
        );
    }
    drop(go);
    assert_eq!(client.exactly(5).unwrap(), b"0\r\n\r\n");
}

#[test]
fn observers_get_a_report_of_every_response_in_a_pipeline() {
    let shared = file(&body_bytes(70_000));
    let (server, completions) = observed(move |path| match path {
        "/file" => range(&shared, 0, 70_000),
        "/stream" => ready_frames(None, vec![data("12345"), data("678")]),
        "/large" => Body::from(body_bytes(20_000)),
        "/empty" => Body::Empty,
        path => path.to_owned().into(),
    });
    let mut client = server.connect();
    let all = ["/small", "/file", "/stream", "/large", "/empty", "/end"];
    let requests: String = all
        .iter()
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    client.send(format!("{requests}HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n"));
    let mut heads = 0;
    for _ in all {
        let received = client.read_response();
        heads += received.head.len() as u64;
    }
    heads += client.read_head_response().head.len() as u64;
    let mut reported_heads = 0;
    for expected in [6, 70_000, 8, 20_000, 0, 4, 0] {
        let completion = completions.recv_timeout(PATIENCE).unwrap();
        assert_eq!(
            (completion.body_bytes, completion.outcome),
            (expected, ResponseOutcome::Complete)
        );
        let framing = if expected == 8 {
            "5\r\n\r\n3\r\n\r\n0\r\n\r\n".len() as u64
        } else {
            0
        };
        reported_heads += completion.bytes - completion.body_bytes - framing;
    }
    assert_eq!(reported_heads, heads);
    server.wait_for("the bytes", |totals| {
        totals.bytes_out == heads + 6 + 70_000 + 8 + 15 + 20_000 + 4
    });
}

#[test]
fn observers_get_a_report_of_a_client_that_disconnected() {
    let (server, completions) = observed(|path| match path {
        "/endless" => frames(None, |_| {
            Poll::Ready(Some(Ok(Frame::Data(vec![0; 60_000].into()))))
        }),
        path => path.to_owned().into(),
    });
    let mut client = server.connect();
    client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head_response();
    drop(client);
    let completion = completions.recv_timeout(PATIENCE).unwrap();
    assert_eq!(completion.outcome, ResponseOutcome::ClientGone);
    assert!(completion.duration < PATIENCE);
    assert_eq!(server.totals().broken_responses, 0);
}

#[test]
fn writes_the_server_field_and_a_date_once() {
    let plan = apus_net::EnginePlan {
        server_field: Some("Apus".into()),
        ..crate::harness::plan(vec![apus_net::ListenerPlan::new(
            crate::harness::local(),
            paths(),
        )])
    };
    let server = Server::run(plan);
    let received = server.connect().get("/");
    assert_eq!(received.field("server"), Some("Apus"));
    let date = received.field("date").unwrap();
    assert!(date.ends_with(" GMT") && date.len() == 29, "{date}");
}

#[test]
fn an_unsent_response_closes_the_connection_behind_what_was_sent_before() {
    let reports: (Sender<Completion>, Receiver<Completion>) = channel();
    let (sender, receiver) = reports;
    let server = Server::start(service(move |request| match request.path() {
        "/none" => {
            let mut response = Response::unsent();
            let sender = sender.clone();
            response.on_complete(move |completion| sender.send(completion.clone()).unwrap());
            response.into()
        }
        path => ok(path.to_owned()).into(),
    }));
    for (before, request) in [
        (0, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"),
        (
            1,
            "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            0,
            "POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        ),
    ] {
        let mut client = server.connect();
        client.send(request);
        for _ in 0..before {
            assert_eq!(client.read_response().text(), "/a", "{request}");
        }
        client.assert_cut();
        let completion = receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!(completion.status.as_u16(), 444, "{request}");
        assert_eq!(
            (completion.bytes, completion.outcome),
            (0, ResponseOutcome::Complete),
            "{request}"
        );
    }
}
