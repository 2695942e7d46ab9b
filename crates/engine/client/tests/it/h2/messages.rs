//! Messages to and from an origin of the `h2` crate.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::task::Poll;

use apus_client::{Origin, ResponseRules, Timeouts, connect};
use apus_http::{Body, FileRange, Frame, Headers, Method, StatusCode, Version};
use apus_testkit::{body_bytes, frames, ready_frames};
use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, HeaderValue, Response};

use super::origin::serve;
use super::{fetch, get, head, open, post, read_body, request};
use crate::harness::text;

async fn read(mut body: RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    (all, body.trailers().await.unwrap())
}

#[test]
fn an_origin_gets_the_request_and_no_fields_of_another_connection() {
    super::run(async {
        let address = serve(|request, mut respond| async move {
            let (head, body) = request.into_parts();
            let (body, _) = read(body).await;
            let mut lines: Vec<String> = head
                .headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", text(value.as_bytes())))
                .collect();
            lines.sort();
            let description = format!(
                "{} {}\n{}\n{}",
                head.method,
                head.uri,
                lines.join("\n"),
                text(&body)
            );
            let response = Response::builder().header("x-told", "1").body(()).unwrap();
            let mut stream = respond.send_response(response, false).unwrap();
            stream.send_data(description.into(), true).unwrap();
        })
        .await;
        let connection = open(address).await;
        let mut fields = head(Method::PUT, "/a%20b?c=d");
        for (name, value) in [
            ("host", "other"),
            ("x-a", "1"),
            ("connection", "x-a"),
            ("keep-alive", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            ("content-length", "7"),
            ("expect", "100-continue"),
            ("x-b", "2"),
        ] {
            fields.headers.try_append(name, value).unwrap();
        }
        fields.te_trailers = true;
        let mut response = connection.send(request(fields, "hello")).await.unwrap();
        assert_eq!(
            (response.status, response.version),
            (StatusCode::OK, Version::HTTP_2)
        );
        assert_eq!(response.headers.wire(), b"x-told: 1\r\n");
        // Data that arrived with the head is not a stream.
        assert!(matches!(response.body, Body::Bytes(_) | Body::Stream(_)));
        assert_eq!(
            text(&read_body(&mut response).await),
            "PUT http://example.com/a%20b?c=d\ncontent-length: 5\nte: trailers\nx-a: 1\nx-b: 2\nhello"
        );
        assert_eq!(connection.requests(), 1);
        super::eventually("the end of the stream", || connection.open_streams() == 0).await;
    });
}

#[test]
fn responses_without_a_body_have_none() {
    super::run(async {
        let address = serve(|request, mut respond| async move {
            let status: u16 = request.uri().path()[1..].parse().unwrap();
            let mut response = Response::builder().status(status);
            if status != 204 {
                response = response.header("content-length", "5");
            }
            respond
                .send_response(response.body(()).unwrap(), true)
                .unwrap();
        })
        .await;
        let connection = open(address).await;
        for (method, target, length) in [
            (Method::HEAD, "/200", Some("5")),
            (Method::GET, "/204", None),
            (Method::GET, "/304", Some("5")),
        ] {
            let client_request = request(head(method, target), Body::Empty);
            let response = connection.send(client_request).await.unwrap();
            assert_eq!(response.headers.get_str("content-length"), length);
            assert!(matches!(response.body, Body::Empty), "{target}");
        }
    });
}

/// Sends every message back as it comes, as a gRPC service may, and a status in the end.
async fn echo(request: http::Request<RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let mut body = request.into_body();
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return };
        body.flow_control().release_capacity(data.len()).unwrap();
        let mut rest = data;
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                return;
            };
            stream
                .send_data(rest.split_to(room.min(rest.len())), false)
                .unwrap();
        }
    }
    let got = body.trailers().await.unwrap().unwrap_or_default();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.extend(got);
    stream.send_trailers(trailers).unwrap();
}

#[test]
fn both_directions_stream_at_once_and_end_with_trailers() {
    super::run(async {
        let connection = open(serve(echo).await).await;
        let (send, mut messages) = tokio::sync::mpsc::unbounded_channel::<Frame>();
        let body = frames(None, move |cx| {
            messages.poll_recv(cx).map(|frame| frame.map(Ok))
        });
        let mut response = connection
            .send(post("/service/method", body))
            .await
            .unwrap();
        for message in ["one", "two", "three"] {
            send.send(Frame::Data(Bytes::from_static(message.as_bytes())))
                .unwrap();
            let Some(Ok(Frame::Data(back))) = response.body.frame().await else {
                panic!("no response to {message}");
            };
            assert_eq!(back, message);
        }
        let mut trailers = Headers::new();
        trailers.try_append("x-sum", "7").unwrap();
        send.send(Frame::Trailers(trailers)).unwrap();
        assert_eq!(
            text(&read_body(&mut response).await),
            "[grpc-status=0][x-sum=7]"
        );
    });
}

#[test]
fn a_response_of_trailers_only_keeps_its_status_and_ends_the_sending() {
    super::run(async {
        let (reset, was_reset) = tokio::sync::oneshot::channel();
        let reset = std::cell::RefCell::new(Some(reset));
        let address = serve(move |request, mut respond| {
            let reset = reset.borrow_mut().take();
            async move {
                let response = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", "12")
                    .body(())
                    .unwrap();
                respond.send_response(response, true).unwrap();
                let end = request.into_body().data().await;
                let code = end
                    .and_then(|end| end.err())
                    .and_then(|error| error.reason());
                reset.unwrap().send(code).unwrap();
            }
        })
        .await;
        let connection = open(address).await;
        let endless = frames(None, |_| Poll::Pending);
        let response = connection.send(post("/", endless)).await.unwrap();
        assert_eq!(response.headers.get_str("grpc-status"), Some("12"));
        assert!(matches!(response.body, Body::Empty));
        assert_eq!(was_reset.await.unwrap(), Some(h2::Reason::CANCEL));
    });
}

#[test]
fn large_bodies_flow_in_both_directions_at_once() {
    super::run(async {
        let connection = open(serve(echo).await).await;
        let sent = body_bytes(8_000_000);
        let mut response = connection.send(post("/", sent.clone())).await.unwrap();
        let got = read_body(&mut response).await;
        assert!(got.ends_with(b"[grpc-status=0]"));
        assert!(got[..got.len() - 15] == sent);
    });
}

#[test]
fn many_requests_share_a_connection() {
    super::run(async {
        let address = serve(echo).await;
        let connection = open(address).await;
        let all = (0..100).map(|number| {
            let connection = connection.clone();
            tokio::task::spawn_local(async move {
                let sent = format!("number {number} ").repeat(2000);
                let (status, got) = fetch(&connection, post("/", sent.clone())).await;
                assert_eq!(status, 200);
                assert_eq!(got, format!("{sent}[grpc-status=0]"));
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(connection.requests(), 100);
    });
}

#[test]
fn files_are_sent_as_they_are() {
    super::run(async {
        let mut file = tempfile::tempfile().unwrap();
        let whole = body_bytes(300_000);
        file.write_all(&whole).unwrap();
        let range = FileRange {
            file: Arc::<File>::new(file),
            offset: 1000,
            len: 200_000,
        };
        let connection = open(serve(echo).await).await;
        let body = Body::File(range.clone());
        let got = fetch_bytes(&connection, post("/", body)).await;
        assert!(got[..200_000] == whole[1000..201_000]);
        let framed = vec![
            Ok(Frame::Data(Bytes::from_static(b"before "))),
            Ok(Frame::File(range)),
            Ok(Frame::Data(Bytes::new())),
            Ok(Frame::Data(Bytes::from_static(b" behind"))),
        ];
        let body = ready_frames(None, framed);
        let got = fetch_bytes(&connection, post("/", body)).await;
        assert!(got[7..200_007] == whole[1000..201_000]);
        assert_eq!(&got[200_007..], b" behind[grpc-status=0]");
    });
}

async fn fetch_bytes(
    connection: &apus_client::MultiplexedClient,
    request: apus_client::ClientRequest,
) -> Vec<u8> {
    read_body(&mut connection.send(request).await.unwrap()).await
}

#[test]
fn a_body_that_breaks_off_cancels_its_request() {
    super::run(async {
        let (sender, outcome) = tokio::sync::oneshot::channel();
        let sender = std::cell::RefCell::new(Some(sender));
        let address = serve(move |request, respond| {
            let sender = sender.borrow_mut().take();
            async move {
                let _respond = respond;
                let mut body = request.into_body();
                assert_eq!(body.data().await.unwrap().unwrap(), "half");
                let is_reset = body.data().await.unwrap().is_err();
                if let Some(sender) = sender {
                    sender.send(is_reset).unwrap();
                }
            }
        })
        .await;
        let connection = open(address).await;
        for (length, second) in [
            (None, Some(Err(apus_http::BodyError::Disconnected))),
            (Some(10), None),
        ] {
            let mut all = vec![Ok(Frame::Data(Bytes::from_static(b"half")))];
            all.extend(second);
            let failure = super::failure(&connection, post("/", ready_frames(length, all))).await;
            assert!(
                matches!(failure.cause, apus_client::FailureCause::Source(_)),
                "{failure}"
            );
            assert!(failure.body.is_none());
        }
        assert!(outcome.await.unwrap());
        assert!(!connection.is_closed());
    });
}

#[test]
fn a_source_that_panics_costs_its_request_only() {
    super::run(async {
        let connection = open(serve(echo).await).await;
        let body = frames(None, |_| panic!("on purpose"));
        let failure = super::failure(&connection, post("/", body)).await;
        assert!(
            matches!(failure.cause, apus_client::FailureCause::Source(_)),
            "{failure}"
        );
        assert_eq!(fetch(&connection, get("/")).await.1, "[grpc-status=0]");
    });
}

#[test]
fn the_last_handle_ends_the_connection_when_the_last_response_was_read() {
    super::run(async {
        let ended = std::rc::Rc::new(std::cell::Cell::new(false));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = std::rc::Rc::clone(&ended);
        tokio::task::spawn_local(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(accepted) = connection.accept().await {
                let (request, respond) = accepted.unwrap();
                tokio::task::spawn_local(echo(request, respond));
            }
            seen.set(true);
        });
        let connection = open(address).await;
        let second = connection.clone();
        drop(connection);
        let sent = body_bytes(1_000_000);
        let mut response = second.send(post("/", sent.clone())).await.unwrap();
        drop(second);
        assert!(read_body(&mut response).await[..sent.len()] == sent);
        super::eventually("the end of the connection", || ended.get()).await;
    });
}

#[test]
fn the_limits_of_a_head_are_those_of_the_group() {
    super::run(async {
        // `:status: 200`, `a: b` and `c: d`, with 32 bytes each.
        let bytes = 10 + 2 + 2 + 3 * 32;
        for (head_bytes, fields, is_accepted) in [
            (bytes + 1, 256, true),
            (bytes, 256, true),
            (bytes - 1, 256, false),
            (1024, 3, true),
            (1024, 2, true),
            (1024, 1, false),
        ] {
            let address = serve(|_, mut respond| async move {
                let response = Response::builder().header("a", "b").header("c", "d");
                let _ = respond.send_response(response.body(()).unwrap(), true);
            })
            .await;
            let origin = Origin {
                responses: ResponseRules {
                    head_bytes,
                    fields,
                    is_lenient: false,
                },
                ..super::origin_at(address)
            };
            let opened = connect(&origin, None, &Timeouts::default()).await.unwrap();
            let result = opened.send(get("/")).await;
            assert_eq!(result.is_ok(), is_accepted, "{head_bytes} {fields}");
        }
    });
}
