//! The chapters of routes, handlers and responses.

use apus::extract::Cookies;
use apus::layers::{Logged, Timeout};
use apus::testing::TestClient;
use apus::{
    App, Extension, Form, HandlerExt, Json, Layered, Path, Query, Redirect, Request, Response,
    Result, StatusCode,
};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use apus_testkit::logged;

#[test]
fn a_value_that_no_layer_added_is_a_500_and_a_line_in_the_log() {
    let app = App::new().get("/", async |Extension(count): Extension<u32>| {
        count.to_string()
    });
    let log = logged(|| {
        TestClient::new(app).get("/").send().assert_status(500);
    });
    assert!(log.contains("a handler takes Extension<u32>"), "{log}");
}

#[test]
fn redirects_have_the_status_of_their_kind() {
    let app = App::new()
        .post("/to", async || Redirect::to("/a"))
        .post("/temporary", async || Redirect::temporary("/b"))
        .post("/permanent", async || Redirect::permanent("/c"));
    let client = TestClient::new(app);
    for (path, status, location) in [
        ("/to", 303, "/a"),
        ("/temporary", 307, "/b"),
        ("/permanent", 308, "/c"),
    ] {
        let response = &mut client.post(path).send();
        response
            .assert_status(status)
            .assert_header("location", location);
    }
}

#[test]
fn a_handler_has_up_to_eight_arguments() {
    type Pairs = HashMap<String, String>;
    let app = App::new().state(7_u8).post(
        "/{id}",
        async |Path(id): Path<u32>,
               Query(query): Query<Pairs>,
               apus::State(state): apus::State<u8>,
               method: apus::Method,
               target: apus::Target,
               cookies: Cookies,
               _peer: Option<apus::Peer>,
               Form(form): Form<Pairs>| {
            let names = format!("{} {}", query["a"], form["b"]);
            let cookie = cookies.get("c").unwrap_or_default().to_owned();
            format!("{method} {} {id} {state} {names} {cookie}", target.path())
        },
    );
    let client = TestClient::new(app);
    client.set_cookie("c", "3");
    let response = &mut client.post("/5?a=1").form([("b", "2")]).send();
    response.assert_ok().assert_text("POST /5 5 7 1 2 3");
}

#[test]
fn values_of_the_table_are_responses() {
    async fn failing() -> Result<&'static str, StatusCode> {
        Err(StatusCode::IM_A_TEAPOT)
    }
    let app = App::new()
        .get("/cow", async || Cow::Borrowed("a text"))
        .get("/vec", async || vec![1_u8, 2])
        .get("/bytes", async || Bytes::from_static(b"\x03"))
        .get("/status", async || StatusCode::CONFLICT)
        .get("/failing", failing);
    let client = TestClient::new(app);
    let text = "text/plain; charset=utf-8";
    client
        .get("/cow")
        .send()
        .assert_header("content-type", text)
        .assert_text("a text");
    assert_eq!(client.get("/vec").send().bytes(), [1, 2][..]);
    assert_eq!(client.get("/bytes").send().bytes(), [3][..]);
    client
        .get("/status")
        .send()
        .assert_status(409)
        .assert_contains("Conflict");
    client.get("/failing").send().assert_status(418);
}

#[test]
fn bodies_of_other_types_and_forms_have_the_statuses_of_the_table() {
    let app = App::new()
        .post("/json", async |Json(number): Json<u32>| number.to_string())
        .post("/form", async |Form(form): Form<HashMap<String, u32>>| {
            form.len().to_string()
        })
        .post("/text", async |text: String| text);
    let client = TestClient::new(app);
    let json = |text: &'static str| {
        client
            .post("/json")
            .header("content-type", "application/json")
            .body(text)
            .send()
    };
    client.post("/json").body("1").send().assert_status(415);
    json("tru").assert_status(400);
    json("\"a\"").assert_status(422);
    client.post("/form").body("a=1").send().assert_status(415);
    client
        .post("/form")
        .form([("a", "x")])
        .send()
        .assert_status(422);
    client
        .post("/text")
        .body(vec![0xff_u8])
        .send()
        .assert_status(400);
    client
        .post("/text")
        .body(vec![b'a'; (2 << 20) + 1])
        .send()
        .assert_status(413);
}

#[test]
fn a_checkbox_is_a_bool_whether_it_has_a_value_or_not() {
    #[derive(serde::Deserialize)]
    struct Entry {
        #[serde(default)]
        remember: bool,
    }
    let app = App::new().post("/", async |Form(entry): Form<Entry>| {
        entry.remember.to_string()
    });
    let client = TestClient::new(app);
    for (body, expected) in [
        ("", "false"),
        ("remember=on", "true"),
        ("remember=true", "true"),
        ("remember=false", "false"),
    ] {
        let request = client
            .post("/")
            .header("content-type", "application/x-www-form-urlencoded");
        request.body(body).send().assert_ok().assert_text(expected);
    }
    let wrong = client.post("/").form([("remember", "yes")]);
    wrong.send().assert_status(422);
}

#[test]
fn a_longer_mount_is_before_a_shorter_one_and_a_route_before_both() {
    let mounted = |text: &'static str| App::new().fallback(move || text);
    let app = App::new()
        .mount("/", mounted("outer"))
        .mount("/shop", mounted("shop"))
        .mount("/shop/old", mounted("old"))
        .get("/shop/old/status", async || "route");
    let client = TestClient::new(app);
    for (path, text) in [
        ("/", "outer"),
        ("/shopping", "outer"),
        ("/shop/a", "shop"),
        ("/shop/old/a", "old"),
        ("/shop/old/status", "route"),
    ] {
        client.get(path).send().assert_text(text);
    }
}

#[test]
fn any_service_can_have_layers_before_it_is_mounted() {
    async fn mark(request: Request, next: apus::Next) -> Response {
        let mut response = next.run(request).await;
        response.headers_mut().try_insert("x-mark", "1").unwrap();
        response
    }
    let inner = App::new().get("/a", async || "a");
    let app = App::new()
        .mount("/in", Layered::new(inner).layer(mark))
        .get(
            "/late",
            (async || std::future::pending::<()>().await)
                .with(Timeout::new(Duration::from_millis(20))),
        )
        .layer(Logged::new());
    let client = TestClient::new(app);
    client
        .get("/in/a")
        .send()
        .assert_header("x-mark", "1")
        .assert_text("a");
    client
        .get("/late")
        .send()
        .assert_status(503)
        .assert_no_header("x-mark");
}
