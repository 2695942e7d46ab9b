//! `tower` services in an application, and an application as a `tower` service.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use apus::testing::{TestClient, TestServer};
use apus::tower::TowerMount;
use apus::websocket::{CloseCode, Message};
use apus::{App, Body, Files, Json, Next, Peer, Request, State, StatusCode};
use apus_websocket::codec::{CodecSettings, WebSocketConnection, WebSocketEvent};
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::{Bytes, BytesMut};
use tempfile::TempDir;
use tower::{Service, ServiceExt};

use apus_testkit::{PieceStream, block_on};

#[derive(Clone)]
struct Attached(&'static str);

/// A router of axum whose responses describe its requests.
fn router() -> Router {
    Router::new()
        .route("/", get(async || "root"))
        .route(
            "/hello/{name}",
            get(async |axum::extract::Path(name): axum::extract::Path<String>| name),
        )
        .route(
            "/seen",
            get(
                async |uri: http::Uri,
                       headers: http::HeaderMap,
                       Extension(peer): Extension<Peer>,
                       Extension(Attached(attached)): Extension<Attached>| {
                    let host = headers["host"].to_str().unwrap().len() > 3;
                    format!("{uri} {host} {} {attached}", peer.ip().unwrap())
                },
            ),
        )
        .route(
            "/echo",
            post(async |body: axum::body::Body| axum::body::Body::new(body)),
        )
        .route("/length", post(async |body: Bytes| body.len().to_string()))
        .route("/json", get(async || axum::Json([1, 2])))
        .route(
            "/chat",
            get(async |upgrade: WebSocketUpgrade| {
                upgrade.on_upgrade(async |mut socket| {
                    while let Some(Ok(message)) = socket.recv().await {
                        // axum responds to a close when the next message is read.
                        let is_close = matches!(message, axum::extract::ws::Message::Close(_));
                        if !is_close && socket.send(message).await.is_err() {
                            break;
                        }
                    }
                })
            }),
        )
}

fn mounted() -> App {
    App::new()
        .get("/", async || "apus")
        .mount("/axum", TowerMount::new(router()))
        .layer(|mut request: Request, next: Next| {
            request.extensions_mut().insert(Attached("by a layer"));
            next.call(request)
        })
}

fn both(test: impl Fn(TestClient)) {
    test(TestClient::new(mounted()));
    let server = TestServer::start(mounted());
    test(server.client());
}

#[test]
fn an_axum_router_can_be_mounted() {
    both(|client| {
        client.get("/").send().assert_text("apus");
        client.get("/axum/").send().assert_text("root");
        let mut reply = client.get("/axum/hello/you").send();
        reply.assert_ok().assert_text("you");
        reply.assert_header("content-length", "3");
        client
            .get("/axum/seen?a=b")
            .send()
            .assert_ok()
            .assert_text("/seen?a=b true 127.0.0.1 by a layer");
        client
            .get("/axum/json")
            .send()
            .assert_header("content-type", "application/json")
            .assert_json([1, 2]);
        client.get("/axum/nowhere").send().assert_status(404);
        client.post("/axum/json").send().assert_status(405);
        client.head("/axum/hello/you").send().assert_ok();
    });
}

#[test]
fn bodies_are_streamed_in_both_directions() {
    both(|client| {
        let pieces = Body::stream(PieceStream::of(&["one", "two", "three"]));
        client
            .post("/axum/echo")
            .body(pieces)
            .send()
            .assert_ok()
            .assert_text("onetwothree");
        let long = "x".repeat(1 << 20);
        client
            .post("/axum/echo")
            .body(long.clone())
            .send()
            .assert_text(&long);
        client
            .post("/axum/length")
            .body(long)
            .send()
            .assert_text("1048576");
    });
}

#[test]
fn websockets_of_axum_work_when_mounted() {
    both(|client| {
        let mut socket = client.get("/axum/chat").websocket();
        socket.send("hello");
        socket.assert_text("hello");
        let long = "y".repeat(300_000);
        socket.send(long.clone());
        socket.assert_text(&long);
        socket.send(vec![1, 2]);
        assert_eq!(socket.recv().unwrap(), Message::binary(vec![1, 2]));
        socket.close();
        client.get("/axum/chat").send().assert_status(400);
    });
}

#[test]
fn websockets_of_axum_work_over_http2() {
    let server = TestServer::start(mounted());
    let address = server.address();
    block_on(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        // RFC 8441 section 5.
        let mut request = http::Request::builder()
            .method(http::Method::CONNECT)
            .uri("https://example.com/axum/chat")
            .header("sec-websocket-version", "13")
            .body(())
            .unwrap();
        let protocol = h2::ext::Protocol::from_static("websocket");
        request.extensions_mut().insert(protocol);
        let (response, mut sending) = client.send_request(request, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("sec-websocket-accept"));
        let mut receiving = response.into_body();
        let mut ours = WebSocketConnection::client(&CodecSettings::default(), || [4, 3, 2, 1]);
        ours.send("over HTTP/2".into()).unwrap();
        ours.close_with(CloseCode::NORMAL).unwrap();
        let output = ours.output().to_vec();
        sending.send_data(output.into(), false).unwrap();
        let mut input = BytesMut::new();
        let mut events = Vec::new();
        while let Some(data) = receiving.data().await {
            input.extend_from_slice(&data.unwrap());
            while let Some(event) = ours.handle_input(&mut input) {
                events.push(event);
            }
        }
        assert_eq!(
            events.remove(0),
            WebSocketEvent::Message("over HTTP/2".into())
        );
        assert!(
            matches!(events[..], [WebSocketEvent::Close(Some(_))]),
            "{events:?}"
        );
    });
}

/// A service that is ready at the second poll, and whose call fails.
#[derive(Clone, Default)]
struct Failing {
    was_polled: bool,
}

impl<B> Service<http::Request<B>> for Failing {
    type Response = http::Response<String>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if std::mem::replace(&mut self.was_polled, true) {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: http::Request<B>) -> Self::Future {
        assert!(self.was_polled);
        std::future::ready(Err(std::io::Error::other("secret")))
    }
}

#[test]
fn a_service_is_called_when_ready_and_its_error_is_a_500() {
    let client = TestClient::new(App::new().mount("/", TowerMount::new(Failing::default())));
    let mut reply = client.get("/x").send();
    reply.assert_status(500);
    assert!(!reply.text().contains("secret"));
}

/// An application that another server serves.
fn app(folder: &TempDir) -> App {
    std::fs::write(folder.path().join("long.txt"), "z".repeat(600_000)).unwrap();
    App::new()
        .state("state")
        .get("/state", async |State(text): State<&'static str>| text)
        .post("/json", async |Json(numbers): Json<Vec<u32>>| {
            Json(numbers.len())
        })
        .get("/pieces", async || {
            Body::stream(PieceStream::of(&["one", "two"]))
        })
        .mount("/files", Files::new(folder.path()))
}

fn request(method: &str, uri: &str, body: &str) -> http::Request<axum::body::Body> {
    http::Request::builder()
        .method(method)
        .uri(uri)
        .header("host", "example.com")
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body.to_owned()))
        .unwrap()
}

async fn text<B>(response: http::Response<B>) -> (StatusCode, String)
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let (parts, body) = response.into_parts();
    let mut body = Box::pin(body);
    let mut text = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        text.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    (parts.status, String::from_utf8(text).unwrap())
}

#[test]
fn an_application_is_a_tower_service() {
    let folder = TempDir::new().unwrap();
    block_on(async {
        let app = app(&folder);
        let reply = app.clone().oneshot(request("GET", "/state", "")).await;
        assert_eq!(text(reply.unwrap()).await, (StatusCode::OK, "state".into()));
        let mut service = app.into_tower();
        for (method, uri, body, status, expected) in [
            ("POST", "/json", "[1,2]", 200, "2"),
            ("POST", "/json", "[", 400, ""),
            ("GET", "/pieces", "", 200, "onetwo"),
            ("GET", "http://example.com/state", "", 200, "state"),
            ("GET", "/nowhere", "", 404, ""),
        ] {
            let ready = ServiceExt::<http::Request<axum::body::Body>>::ready(&mut service).await;
            let response = ready.unwrap().call(request(method, uri, body)).await;
            let (found, received) = text(response.unwrap()).await;
            assert_eq!(found.as_u16(), status, "{method} {uri}");
            if !expected.is_empty() {
                assert_eq!(received, expected, "{method} {uri}");
            }
        }
        let response = service.call(request("GET", "/files/long.txt", "")).await;
        let (_, received) = text(response.unwrap()).await;
        assert_eq!(received.len(), 600_000);
    });
}

#[test]
fn an_application_can_be_part_of_an_axum_router() {
    fn is_send<T: Send + Sync + Clone>(_: &T) {}
    let folder = TempDir::new().unwrap();
    let service = app(&folder).into_send_tower().unwrap();
    is_send(&service);
    let router = Router::new()
        .route("/axum", get(async || "axum"))
        .fallback_service(service);
    block_on(async {
        for (method, uri, body, expected) in [
            ("GET", "/axum", "", "axum"),
            ("GET", "/state", "", "state"),
            ("POST", "/json", "[1,2,3]", "3"),
            ("GET", "/pieces", "", "onetwo"),
        ] {
            let response = router.clone().oneshot(request(method, uri, body)).await;
            let found = text(response.unwrap()).await;
            assert_eq!(found, (StatusCode::OK, expected.into()), "{method} {uri}");
        }
        let response = router.oneshot(request("GET", "/files/long.txt", "")).await;
        assert_eq!(text(response.unwrap()).await.1.len(), 600_000);
    });
}

#[test]
fn an_invalid_application_cannot_become_a_service() {
    assert!(
        App::new()
            .get("no-slash", async || "")
            .into_send_tower()
            .is_err()
    );
}

/// The response body of a service: it is not `Send`, and has trailers.
struct Local(VecDeque<http_body::Frame<Bytes>>, std::rc::Rc<()>);

impl http_body::Body for Local {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let _ = &self.1;
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[test]
fn responses_of_mounted_services_need_not_be_send() {
    let service = tower::service_fn(async |_: http::Request<apus::tower::SendBody>| {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("checksum", "1".parse().unwrap());
        let frames = [
            http_body::Frame::data(Bytes::from("text")),
            http_body::Frame::trailers(trailers),
        ];
        Ok::<_, Infallible>(http::Response::new(Local(
            frames.into(),
            std::rc::Rc::new(()),
        )))
    });
    let client = TestClient::new(App::new().mount("/", TowerMount::new(service)));
    let mut reply = client.get("/").send();
    reply.assert_ok().assert_text("text");
    assert_eq!(reply.trailers().unwrap().get_str("checksum"), Some("1"));
}
