//! Bodies in both directions: with a length, in chunks, from files, and incomplete.

use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_client::{FailureCause, RequestPhase};
use apus_http::{Body, BodyError, FileRange, Frame, Headers, Method};
use bytes::Bytes;

use crate::harness::{
    ChannelBody, IdleConnections, RawOrigin, collect, get, get_once, head, post, request, run,
};

/// Bytes of which every part differs from the others.
fn body_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_large_body_arrives_complete_however_it_is_framed() {
    let bytes = body_bytes(1_000_000);
    let sent = bytes.clone();
    let origin = RawOrigin::start(move |number, mut connection| {
        connection.read_request().unwrap();
        if number == 0 {
            connection.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                sent.len()
            ));
            connection.send(&sent);
        } else if number == 1 {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in sent.chunks(33_333) {
                connection.send(format!("{:x};ext\r\n", piece.len()));
                connection.send(piece);
                connection.send("\r\n");
            }
            connection.send("0\r\nX-Sum: 7\r\n\r\n");
        } else {
            connection.send("HTTP/1.1 200 OK\r\n\r\n");
            connection.send(&sent);
        }
        connection.end();
        connection.is_closed();
    });
    run(async {
        for (length, trailer) in [(Some(1_000_000), None), (None, Some("7")), (None, None)] {
            let idle = Rc::new(IdleConnections::default());
            let response = idle.send(&origin.origin(), get("/")).await.unwrap();
            assert_eq!(response.body.len(), length);
            let (read, trailers) = collect(response.body).await.unwrap();
            assert!(read == bytes);
            let sum = trailers
                .as_ref()
                .and_then(|trailers| trailers.get_str("x-sum"));
            assert_eq!(sum, trailer);
        }
    });
    origin.check();
}

/// A truncated response must never be taken for a whole one.
#[test]
fn a_response_that_is_cut_off_never_ends_in_order() {
    let whole_response = |last: bool| {
        let whole: &[u8] = if last {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n"
        } else {
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nokok"
        };
        whole.to_vec()
    };
    for (whole, ends) in [
        (whole_response(true), true),
        (whole_response(false), true),
        (whole_response(false), false),
    ] {
        let parts = whole.clone();
        let origin = RawOrigin::start(move |cut, mut connection| {
            connection.read_request().unwrap();
            connection.send(&parts[..cut]);
            if ends {
                connection.end()
            } else {
                return connection.reset();
            }
            connection.is_closed();
        });
        run(async {
            for cut in 0..whole.len() {
                match get_once(&origin.origin()).await {
                    Ok(response) => {
                        let error = collect(response.body).await.unwrap_err();
                        assert!(matches!(error, BodyError::Disconnected), "{cut}: {error}");
                    }
                    Err(failure) => {
                        assert!(
                            matches!(failure.phase, RequestPhase::Head | RequestPhase::Send),
                            "{cut}"
                        );
                        assert!(
                            matches!(failure.cause, FailureCause::Closed | FailureCause::Io(_)),
                            "{cut}: {failure}"
                        );
                    }
                }
            }
        });
    }
}

#[test]
fn the_body_of_a_request_is_sent_without_a_copy() {
    let bytes = body_bytes(300_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"before").unwrap();
    file.write_all(&bytes).unwrap();
    file.write_all(b"after").unwrap();
    let range = FileRange {
        file: Arc::new(file),
        offset: 6,
        len: bytes.len() as u64,
    };
    let expected = bytes.clone();
    let origin = RawOrigin::start(move |_, mut connection| {
        while let Some(head) = connection.read_head() {
            assert!(head.contains("content-length: 300000\r\n"), "{head}");
            assert!(connection.read_exact(300_000) == expected);
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        for body in [Body::File(range), Body::from(bytes)] {
            let put = request(head(Method::PUT, "/"), body);
            let response = idle.send(&origin.origin(), put).await.unwrap();
            assert_eq!(response.status, 200);
        }
        assert_eq!(idle.opened.get(), 1);
        assert_eq!(idle.len(), 1);
    });
    origin.check();
}

#[test]
fn a_body_of_unknown_length_is_sent_in_chunks_with_its_trailers() {
    let origin = RawOrigin::start(|_, mut connection| {
        let head = connection.read_head().unwrap();
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("content-length"), "{head}");
        let chunks = connection.read_until(b"0\r\nx-sum: 1\r\n\r\n").unwrap();
        assert!(
            chunks.starts_with("3\r\none\r\n3\r\ntwo\r\n2710\r\n"),
            "{chunks}"
        );
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let (frames, body) = ChannelBody::pair();
        let mut trailers = Headers::new();
        trailers.try_append("x-sum", "1").unwrap();
        for frame in [
            Frame::Data(Bytes::from_static(b"one")),
            Frame::Data(Bytes::new()),
            Frame::Data(Bytes::from_static(b"two")),
            Frame::Data(Bytes::from(vec![b'x'; 10_000])),
            Frame::Trailers(trailers),
        ] {
            frames.send(Ok(frame)).unwrap();
        }
        drop(frames);
        idle.send(&origin.origin(), post(body)).await.unwrap();
        assert_eq!(idle.len(), 1);
    });
    origin.check();
}

#[test]
fn a_request_whose_body_breaks_off_is_cut_off() {
    let (began, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (ended, is_closed) = std::sync::mpsc::channel();
    let origin = RawOrigin::start(move |_, mut connection| {
        connection.read_head().unwrap();
        connection.read_exact(b"3\r\none\r\n".len());
        began.send(()).unwrap();
        ended.send(connection.is_closed()).unwrap();
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let (frames, body) = ChannelBody::pair();
        frames
            .send(Ok(Frame::Data(Bytes::from_static(b"one"))))
            .unwrap();
        let break_off = async {
            has_begun.recv().await.unwrap();
            frames.send(Err(BodyError::Disconnected)).unwrap();
        };
        let origin = origin.origin();
        let (sent, ()) = tokio::join!(idle.send(&origin, post(body)), break_off);
        let failure = sent.unwrap_err();
        assert!(matches!(
            failure.cause,
            FailureCause::Source(BodyError::Disconnected)
        ));
        assert!(failure.request_sent && failure.body.is_none());
        assert_eq!(idle.len(), 0);
    });
    let is_closed = is_closed.recv_timeout(Duration::from_secs(10));
    assert!(is_closed.unwrap(), "more than the piece was sent");
    origin.check();
}

#[test]
fn both_directions_stream_at_once() {
    let origin = RawOrigin::start(|_, mut connection| {
        connection.read_head().unwrap();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..3 {
            let piece = connection.read_exact(b"4\r\nping\r\n".len());
            connection.send(piece);
        }
        connection.read_until(b"0\r\n\r\n").unwrap();
        connection.send("0\r\n\r\n");
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let (frames, body) = ChannelBody::pair();
        let mut response = idle.send(&origin.origin(), post(body)).await.unwrap();
        for _ in 0..3 {
            frames
                .send(Ok(Frame::Data(Bytes::from_static(b"ping"))))
                .unwrap();
            match response.body.frame().await {
                Some(Ok(Frame::Data(bytes))) => assert_eq!(bytes, "ping"),
                other => panic!("{other:?}"),
            }
        }
        drop(frames);
        assert!(response.body.frame().await.is_none());
        assert_eq!(idle.len(), 1);
    });
    origin.check();
}

#[test]
fn an_early_refusal_ends_the_sending_and_the_connection() {
    let (sender, closed) = std::sync::mpsc::channel();
    let origin = RawOrigin::start(move |_, mut connection| {
        connection.read_head().unwrap();
        connection.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        sender.send(connection.is_closed()).unwrap();
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let (frames, body) = ChannelBody::pair();
        let response = idle.send(&origin.origin(), post(body)).await.unwrap();
        assert_eq!(response.status, 413);
        assert_eq!(collect(response.body).await.unwrap().0, b"no");
        assert!(frames.is_closed());
        assert_eq!(idle.len(), 0);
    });
    assert!(closed.recv().unwrap());
}

#[test]
fn a_refusal_is_read_although_the_origin_closes_while_the_body_is_sent() {
    let origin = RawOrigin::start(|_, mut connection| {
        connection.read_head().unwrap();
        connection.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        // The socket closes with bytes unread: the client's next write gets a reset.
    });
    run(async {
        for _ in 0..20 {
            let idle = Rc::new(IdleConnections::default());
            let (frames, body) = ChannelBody::pair();
            let sends = async {
                // The body has no end until the response arrives or the connection breaks.
                while !frames.is_closed() {
                    let _ = frames.send(Ok(Frame::Data(Bytes::from(vec![0; 5_000]))));
                    tokio::task::yield_now().await;
                }
            };
            let origin = origin.origin();
            let (result, ()) = tokio::join!(idle.send(&origin, post(body)), sends);
            match result {
                Ok(response) => assert_eq!(response.status, 413),
                Err(failure) => assert!(failure.request_sent, "{failure:?}"),
            }
            assert_eq!(idle.len(), 0);
        }
    });
}

#[test]
fn a_body_of_another_length_than_announced_is_never_sent_as_complete() {
    struct ShortBody(Option<Bytes>);
    impl apus_http::BodyStream for ShortBody {
        fn poll_frame(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
            std::task::Poll::Ready(self.0.take().map(|bytes| Ok(Frame::Data(bytes))))
        }

        fn remaining(&self) -> Option<u64> {
            Some(10)
        }
    }
    let origin = RawOrigin::start(|_, mut connection| {
        let _ = connection.read_request();
    });
    run(async {
        for len in [9, 11] {
            let body = Body::stream(ShortBody(Some(Bytes::from(vec![0; len]))));
            let idle = Rc::new(IdleConnections::default());
            let failure = idle.send(&origin.origin(), post(body)).await.unwrap_err();
            assert!(
                matches!(failure.cause, FailureCause::Source(_)),
                "{failure}"
            );
        }
    });
}
