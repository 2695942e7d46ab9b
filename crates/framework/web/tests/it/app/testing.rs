//! `TestClient` and `TestServer`, in process and over sockets.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apus::extract::Cookies;
use apus::layers::RequestIds;
use apus::sse::{Event, Sse};
use apus::testing::{TestClient, TestServer};
use apus::websocket::{WebSocket, WebSocketUpgrade};
use apus::{
    App, Body, Form, Headers, IntoResponse, Json, Method, Next, Path, Redirect, Request, Response,
};
use bytes::Bytes;
use serde_json::{Value, json};

use apus_testkit::PieceStream;

async fn echo(mut socket: WebSocket) {
    while let Some(message) = socket.recv().await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

fn app() -> App {
    App::new()
        .get("/hello/{name}", async |Path(name): Path<String>| {
            format!("Hello, {name}!")
        })
        .any("/method", async |method: Method| method.to_string())
        .post("/json", async |Json(value): Json<Value>| Json(value))
        .post(
            "/form",
            async |Form(fields): Form<BTreeMap<String, String>>| Json(fields),
        )
        .post("/bytes", async |body: Bytes| body.len().to_string())
        .get("/fields", async |headers: Headers| {
            let line = |name| headers.get_str(name).unwrap_or("").to_owned();
            Json([line("authorization"), line("accept"), line("cookie")])
        })
        .get("/login", async || {
            ([("set-cookie", "user=7; Path=/")], Redirect::to("/fields"))
        })
        .get("/logout", async || {
            ([("set-cookie", "user=; Path=/; Max-Age=0")], "bye")
        })
        .get("/pieces", async || {
            Body::stream(PieceStream::of(&["one", "two", "three"]))
        })
        .get("/chat", async |upgrade: WebSocketUpgrade| {
            upgrade.protocols(["echo"]).run(echo)
        })
}

/// Runs a test with both kinds of clients.
fn both(test: impl Fn(TestClient)) {
    test(TestClient::new(app()));
    let server = TestServer::start(app());
    test(server.client());
}

#[test]
fn requests_get_the_same_responses_in_process_and_over_sockets() {
    both(|client| {
        let mut reply = client.get("/hello/a%20b").send();
        reply.assert_ok().assert_text("Hello, a b!");
        assert_eq!(
            reply.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let method: Method = method.parse().unwrap();
            let mut reply = client.request(method.clone(), "/method").send();
            reply.assert_ok().assert_text(method.as_str());
        }
        client.head("/method").send().assert_ok().assert_text("");
        let value = json!({"a": [1, null, "é"]});
        client
            .post("/json")
            .json(&value)
            .send()
            .assert_ok()
            .assert_json(&value);
        client
            .post("/form")
            .form([("a", "1 & 2"), ("é", "=")])
            .send()
            .assert_ok()
            .assert_json(json!({"a": "1 & 2", "é": "="}));
        client
            .post("/bytes")
            .body(Body::stream(PieceStream::of(&["one", "two"])))
            .send()
            .assert_ok()
            .assert_text("6");
        client.post("/json").body("?").send().assert_status(415);
        client
            .get("/nowhere")
            .header("accept", "application/json")
            .send()
            .assert_status(404)
            .assert_header("content-type", "application/problem+json");
    });
}

#[test]
fn a_client_keeps_cookies_until_they_expire() {
    both(|client| {
        let mut reply = client.get("/login").send();
        reply.assert_status(303).assert_redirect("/fields");
        assert_eq!(client.cookie("user").as_deref(), Some("7"));
        let next = reply.location().to_owned();
        client
            .get(&next)
            .header("cookie", "own=1")
            .send()
            .assert_json(["", "", "own=1; user=7"]);
        client.get("/logout").send().assert_ok();
        client.get("/fields").send().assert_json(["", "", ""]);
        client.set_cookie("a", "b");
        client.get("/fields").send().assert_json(["", "", "a=b"]);
        client.clear_cookies();
        client.get("/fields").send().assert_json(["", "", ""]);
    });
}

#[test]
fn fields_can_be_set_for_all_requests_or_one() {
    both(|client| {
        let client = client.header("accept", "text/plain");
        client
            .get("/fields")
            .basic("Aladdin", "open sesame")
            .send()
            .assert_json(["Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "text/plain", ""]);
        client
            .get("/fields")
            .bearer("t")
            .send()
            .assert_json(["Bearer t", "text/plain", ""]);
    });
}

#[test]
fn a_body_can_be_read_in_pieces() {
    let client = TestClient::new(app());
    let mut reply = client.get("/pieces").send();
    assert_eq!(reply.chunk().as_deref(), Some(&b"one"[..]));
    assert_eq!(reply.chunk().as_deref(), Some(&b"two"[..]));
    reply.assert_text("three");
    assert_eq!(reply.chunk(), None);
    let server = TestServer::start(app());
    server
        .client()
        .get("/pieces")
        .send()
        .assert_text("onetwothree");
}

#[test]
fn websockets_exchange_messages_and_close() {
    both(|client| {
        let request = client.get("/chat").header("sec-websocket-protocol", "echo");
        let mut socket = request.websocket();
        assert_eq!(socket.protocol(), Some("echo"));
        socket.send("hello");
        socket.assert_text("hello");
        socket.send(b"bytes".to_vec());
        assert_eq!(socket.recv().unwrap().as_bytes(), b"bytes");
        assert_eq!(socket.close().unwrap().code().get(), 1000);
    });
}

#[test]
fn observers_run_when_the_body_was_read() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let app = app().layer(move |request: Request, next: Next| {
        let counted = counted.clone();
        async move {
            let mut response: Response = next.run(request).await;
            response.on_complete(move |completion| {
                counted.store(completion.body_bytes, Ordering::Relaxed);
            });
            response
        }
    });
    let client = TestClient::new(app);
    let mut reply = client.get("/pieces").send();
    assert_eq!(sent.load(Ordering::Relaxed), 0);
    reply.assert_text("onetwothree");
    drop(reply);
    assert_eq!(sent.load(Ordering::Relaxed), 11);
}

#[test]
fn spawned_tasks_run_while_a_test_waits() {
    let app = App::new().get("/", async || {
        let has_run = Rc::new(RefCell::new(false));
        let flag = has_run.clone();
        let task = tokio::task::spawn_local(async move { *flag.borrow_mut() = true });
        task.await.unwrap();
        has_run.borrow().to_string().into_response()
    });
    TestClient::new(app).get("/").send().assert_text("true");
}

#[test]
fn a_failed_assertion_shows_the_response() {
    let client = TestClient::new(app());
    let failure = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.get("/hello/you").send().assert_status(201);
    }));
    let message = failure.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    for part in ["expected 201", "GET /hello/you", "200 OK", "Hello, you!"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn several_workers_serve_one_server() {
    let server = TestServer::with_workers(app(), 2);
    for _ in 0..8 {
        server.client().get("/hello/x").send().assert_ok();
    }
    assert!(server.url("/a").starts_with("http://127.0.0.1:"));
    let address = server.address();
    drop(server);
    #[expect(clippy::disallowed_methods, reason = "a test may block")]
    let connection = std::net::TcpStream::connect(address);
    assert!(connection.is_err());
}

#[test]
fn a_snapshot_has_what_is_the_same_each_time() {
    let app = || {
        App::new()
            .layer(RequestIds::new())
            .get("/json", async |mut cookies: Cookies| {
                cookies.add(("id", "random"));
                (cookies, Json(json!({ "b": [1], "a": null })))
            })
            .get("/text", async || "text")
    };
    let expected = "200 OK\ncontent-length: 18\ncontent-type: application/json\n\
                    set-cookie: id=...; HttpOnly; SameSite=Lax; Path=/\nx-request-id: ...\n\n\
                    {\n  \"a\": null,\n  \"b\": [\n    1\n  ]\n}";
    let server = TestServer::start(app());
    assert_eq!(server.client().get("/json").send().snapshot(), expected);
    let mut text = TestClient::new(app()).get("/text").send();
    assert!(text.snapshot().ends_with("\n\ntext"), "{}", text.snapshot());
}

#[test]
fn events_are_read_one_by_one() {
    let app = App::new()
        .get("/events", async || {
            Sse::run(async |mut events| {
                events
                    .send(Event::new().data("1").event("price").id("7"))
                    .await;
                events.send("two\nlines").await;
            })
        })
        .get("/text", async || "data: 1");
    let server = TestServer::start(app);
    let mut response = server.client().get("/events").send();
    let event = response.event().unwrap();
    assert_eq!(
        (&*event.name, &*event.data, &*event.id),
        ("price", "1", "7")
    );
    response.assert_event("two\nlines");
    assert_eq!(response.event(), None);
    let text = std::panic::AssertUnwindSafe(|| server.client().get("/text").send().event());
    assert!(std::panic::catch_unwind(text).is_err());
}
