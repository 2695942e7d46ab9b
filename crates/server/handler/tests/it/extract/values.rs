//! Extractors of values: parameters of paths, queries, forms, JSON, bodies and state.

use apus_handler::{Form, Json, Path, Query, State};
use apus_http::{Body, ResponseFuture, ServiceFactory};
use apus_testkit::{PieceStream, ask, get};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::harness::Routes;

#[derive(Debug, Deserialize, Serialize, PartialEq)]
struct User {
    id: u32,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Search {
    q: Option<String>,
    #[serde(default)]
    tag: Vec<String>,
    page: Option<u32>,
}

#[test]
fn path_parameters_are_values_tuples_and_structs() {
    let app = Routes::new()
        .get(
            "/t/{id}/{name}",
            async |Path((id, name)): Path<(u32, String)>| format!("{id} {name}"),
        )
        .get("/s/{id}/{name}", async |Path(user): Path<User>| Json(user))
        .get("/l/{a}/{b}", async |Path(all): Path<Vec<String>>| {
            all.join("+")
        });
    let service = app.service();
    assert_eq!(get("/t/1/ann").of(&service).text(), "1 ann");
    assert_eq!(
        get("/s/2/b%C3%A9").of(&service).text(),
        r#"{"id":2,"name":"bé"}"#
    );
    assert_eq!(get("/l/x/y").of(&service).text(), "x+y");
    assert_eq!(get("/t/x/ann").of(&service).status, 404);
}

#[test]
fn query_and_form_are_decoded() {
    fn show(search: Search) -> String {
        format!("{:?} {} {:?}", search.q, search.tag.join("+"), search.page)
    }
    let app = Routes::new()
        .get("/", async |Query(search): Query<Search>| show(search))
        .post("/", async |Form(search): Form<Search>| show(search));
    let service = app.service();
    let text = "Some(\"a b&c\") x+y Some(2)";
    assert_eq!(
        get("/?q=a+b%26c&tag=x&tag=y&page=2").of(&service).text(),
        text
    );
    assert_eq!(get("/").of(&service).text(), "None  None");
    assert_eq!(get("/?page=x").of(&service).status, 400);
    assert_eq!(get("/?page=1&page=2").of(&service).status, 400);
    assert_eq!(get("/?q=%ff").of(&service).status, 400);
    let form = |content_type: &str| {
        ask("POST", "/")
            .with("content-type", content_type)
            .body("q=a+b%26c&tag=x&tag=y&page=2")
    };
    let reply = form("application/x-www-form-urlencoded; charset=utf-8").of(&service);
    assert_eq!(reply.text(), text);
    assert_eq!(form("text/plain").of(&service).status, 415);
}

#[test]
fn json_is_read_and_written() {
    let app = Routes::new().post("/", async |Json(user): Json<User>| Json(user));
    let service = app.service();
    let post = |content_type: &str, body: &str| {
        ask("POST", "/")
            .with("content-type", content_type)
            .body(body.to_owned())
            .of(&service)
    };
    let reply = post("application/json", r#"{"id": 1, "name": "ann"}"#);
    assert_eq!(reply.text(), r#"{"id":1,"name":"ann"}"#);
    assert_eq!(reply.field("content-type"), Some("application/json"));
    assert_eq!(
        post("application/vnd.x+json", r#"{"id":1,"name":""}"#).status,
        200
    );
    assert_eq!(post("text/plain", "{}").status, 415);
    assert_eq!(post("application/json", "{").status, 400);
    assert_eq!(post("application/json", r#"{"id":1}"#).status, 422);
}

#[test]
fn bodies_are_read_up_to_the_limit() {
    let app = Routes::new()
        .body_limit(8)
        .post("/bytes", async |body: Bytes| body.len().to_string())
        .post("/text", async |body: String| body);
    let service = app.service();
    assert_eq!(
        ask("POST", "/bytes").body("12345678").of(&service).text(),
        "8"
    );
    assert_eq!(
        ask("POST", "/bytes").body("123456789").of(&service).status,
        413
    );
    let pieces = |pieces: &[&str]| Body::stream(PieceStream::of(pieces));
    let reply = ask("POST", "/text")
        .body(pieces(&["123", "456"]))
        .of(&service);
    assert_eq!(reply.text(), "123456");
    let reply = ask("POST", "/text")
        .body(pieces(&["12345", "6789"]))
        .of(&service);
    assert_eq!(reply.status, 413);
    assert_eq!(
        ask("POST", "/text").body(vec![0xff]).of(&service).status,
        400
    );
}

#[test]
fn missing_state_is_a_500() {
    let app = Routes::new().get("/", async |State(_): State<u64>| "never");
    assert_eq!(get("/").to(&app).status, 500);
}

#[test]
fn a_handler_without_async_needs_no_future() {
    let app = Routes::new()
        .get("/plain/{x}", |Path(x): Path<String>| x)
        .get("/async", async || "later");
    let service = app.service();
    assert!(matches!(
        service.call(get("/plain/a").request()),
        ResponseFuture::Now(_)
    ));
    assert!(matches!(
        service.call(get("/async").request()),
        ResponseFuture::Later(_)
    ));
}
