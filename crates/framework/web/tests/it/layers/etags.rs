//! `Etag`: entity tags, conditions (RFC 9110 section 13), and compression around them.

use apus::layers::{Compression, Etag};
use apus::{App, Body, IntoResponse, Response};

use crate::harness::{Client, Server, get, head, request};
use apus_testkit::PieceStream;

fn app(etag: Etag) -> App {
    App::new()
        .layer(etag)
        .get("/", async || "the same every time")
        .post("/", async || "the same every time")
        .get("/other", async || "another text")
        .get("/own", async || {
            ([("etag", "\"own\"")], "with a tag of its own")
        })
        .get("/error", async || (apus::StatusCode::NOT_FOUND, "nothing"))
}

fn tag_of(path: &str, etag: Etag) -> String {
    let reply = get(app(etag), path, &[]);
    reply.field("etag").unwrap().to_owned()
}

#[test]
fn the_same_body_has_the_same_tag_and_a_304() {
    let server = Server::start(app(Etag::new()));
    let mut client = Client::connect(server.address());
    let first = client.request(&head("GET", "/", &[]));
    assert_eq!((first.status, first.text()), (200, "the same every time"));
    let tag = first.field("etag").unwrap();
    assert!(tag.starts_with('"') && tag.len() > 20, "{tag}");
    assert_ne!(tag, tag_of("/other", Etag::new()));
    for condition in [
        format!("If-None-Match: {tag}"),
        format!("If-None-Match: \"x\", {tag}"),
        "If-None-Match: *".to_owned(),
    ] {
        for method in ["GET", "HEAD"] {
            let again = client.request(&head(method, "/", &[&condition]));
            assert_eq!(again.status, 304, "{method} {condition}");
            assert_eq!(again.field("etag"), Some(tag));
            assert_eq!(again.field("content-type"), None);
            assert_eq!(again.field("content-length"), None);
        }
    }
    for condition in [
        "If-None-Match: \"x\"",
        "If-None-Match: x",
        "If-None-Match: ",
    ] {
        let again = client.request(&head("GET", "/", &[condition]));
        assert_eq!((again.status, again.field("etag")), (200, Some(tag)));
    }
    let reply = client.request(&head("GET", "/", &["If-Match: \"x\""]));
    assert_eq!((reply.status, reply.text()), (412, ""));
    let reply = client.request(&head("GET", "/", &[&format!("If-Match: {tag}")]));
    assert_eq!(reply.status, 200);
}

#[test]
fn weak_tags_are_marked_as_weak() {
    let tag = tag_of("/", Etag::new().weak());
    assert!(tag.starts_with("W/\""), "{tag}");
    let app = || app(Etag::new().weak());
    let reply = get(app(), "/", &[&format!("If-None-Match: {tag}")]);
    assert_eq!(reply.status, 304);
    let reply = get(app(), "/", &[&format!("If-Match: {tag}")]);
    assert_eq!(reply.status, 412, "weak tags never match strongly");
}

#[test]
fn only_200_responses_with_a_body_in_memory_are_tagged() {
    let app = app(Etag::new().max_bytes(18)).get("/stream", async || {
        Body::stream(PieceStream::of(&["a stream"])).into_response()
    });
    let server = Server::start(app);
    let mut client = Client::connect(server.address());
    for (method, path) in [
        ("GET", "/"),
        ("POST", "/other"),
        ("GET", "/error"),
        ("GET", "/stream"),
    ] {
        let reply = client.request(&head(method, path, &["If-None-Match: \"x\""]));
        assert_eq!(reply.field("etag"), None, "{method} {path}");
    }
    assert!(
        client
            .request(&head("GET", "/other", &[]))
            .field("etag")
            .is_some()
    );
}

#[test]
fn a_tag_of_the_handler_is_kept_and_compared() {
    let reply = get(app(Etag::new()), "/own", &[]);
    assert_eq!((reply.status, reply.field("etag")), (200, Some("\"own\"")));
    let reply = get(app(Etag::new()), "/own", &["If-None-Match: \"own\""]);
    assert_eq!((reply.status, reply.field("etag")), (304, Some("\"own\"")));
    let reply = request(app(Etag::new()), &head("POST", "/", &["If-None-Match: *"]));
    assert_eq!(
        reply.status, 200,
        "conditions of a POST request are not evaluated"
    );
}

#[test]
fn compression_weakens_tags_and_conditions_still_work() {
    async fn text() -> Response {
        "All swifts are birds, and some birds are swifts.\n"
            .repeat(100)
            .into_response()
    }
    let app = App::new()
        .layer(Compression::default())
        .layer(Etag::new())
        .get("/", text);
    let server = Server::start(app);
    let mut client = Client::connect(server.address());
    let plain = client.request(&head("GET", "/", &[]));
    assert_eq!(plain.body.len(), 4900);
    let strong = plain.field("etag").unwrap();
    let small = client.request(&head("GET", "/", &["Accept-Encoding: gzip"]));
    assert_eq!(small.field("content-encoding"), Some("gzip"));
    assert!(small.body.len() < 1000, "{}", small.body.len());
    assert_eq!(small.members("vary"), ["accept-encoding"]);
    let weak = small.field("etag").unwrap();
    assert_eq!(weak, format!("W/{strong}"));
    let lines = ["Accept-Encoding: gzip", &format!("If-None-Match: {weak}")];
    let again = client.request(&head("GET", "/", &lines));
    assert_eq!((again.status, again.body.len()), (304, 0));
    // A 304 has the entity tag and the `Vary` of the 200 response.
    assert_eq!(again.field("etag"), Some(weak));
    assert_eq!(again.members("vary"), ["accept-encoding"]);
    let again = client.request(&head("GET", "/", &[&format!("If-None-Match: {strong}")]));
    assert_eq!((again.status, again.field("etag")), (304, Some(strong)));
}
