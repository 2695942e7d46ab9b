//! `Etag`: entity tags, conditions (RFC 9110 section 13), and compression around them.

use apus_compress::Compression;
use apus_handler::IntoResponse;
use apus_http::{Body, Response, StatusCode};
use apus_layers::Etag;
use apus_testkit::{LocalClient, PieceStream, SocketClient, request_text};

use crate::harness::{Routes, Server, get, head, request};

fn app(etag: Etag) -> Routes {
    Routes::new()
        .layer(etag)
        .get("/", async || "the same every time")
        .post("/", async || "the same every time")
        .get("/other", async || "another text")
        .get("/own", async || {
            ([("etag", "\"own\"")], "with a tag of its own")
        })
        .get("/error", async || (StatusCode::NOT_FOUND, "nothing"))
}

fn tag_of(path: &str, etag: Etag) -> String {
    let reply = get(app(etag), path, &[]);
    reply.field("etag").unwrap().to_owned()
}

#[test]
fn the_same_body_has_the_same_tag_and_a_304() {
    let server = Server::start(app(Etag::new()));
    let mut client = SocketClient::connect(server.address());
    let first = client.request(&request_text("GET", "/", &[]));
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
            let again = client.request(&request_text(method, "/", &[&condition]));
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
        let again = client.request(&request_text("GET", "/", &[condition]));
        assert_eq!((again.status, again.field("etag")), (200, Some(tag)));
    }
    let reply = client.request(&request_text("GET", "/", &["If-Match: \"x\""]));
    assert_eq!((reply.status, reply.text()), (412, ""));
    let reply = client.request(&request_text("GET", "/", &[&format!("If-Match: {tag}")]));
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
    let client = LocalClient::of(&app);
    for (method, path) in [
        ("GET", "/"),
        ("POST", "/other"),
        ("GET", "/error"),
        ("GET", "/stream"),
    ] {
        let reply = client.send(head(method, path, &["If-None-Match: \"x\""]));
        assert_eq!(reply.field("etag"), None, "{method} {path}");
    }
    assert!(
        client
            .send(head("GET", "/other", &[]))
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
    let reply = request(app(Etag::new()), head("POST", "/", &["If-None-Match: *"]));
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
    let app = Routes::new()
        .layer(Compression::default())
        .layer(Etag::new())
        .get("/", text);
    let client = LocalClient::of(&app);
    let plain = client.send(head("GET", "/", &[]));
    assert_eq!(plain.content.len(), 4900);
    let strong = plain.field("etag").unwrap();
    let small = client.send(head("GET", "/", &["Accept-Encoding: gzip"]));
    assert_eq!(small.field("content-encoding"), Some("gzip"));
    assert!(small.content.len() < 1000, "{}", small.content.len());
    assert_eq!(small.members("vary"), ["accept-encoding"]);
    let weak = small.field("etag").unwrap();
    assert_eq!(weak, format!("W/{strong}"));
    let lines = ["Accept-Encoding: gzip", &format!("If-None-Match: {weak}")];
    let again = client.send(head("GET", "/", &lines));
    assert_eq!((again.status, again.content.len()), (304, 0));
    // A 304 has the entity tag and the `Vary` of the 200 response.
    assert_eq!(again.field("etag"), Some(weak));
    assert_eq!(again.members("vary"), ["accept-encoding"]);
    let again = client.send(head("GET", "/", &[&format!("If-None-Match: {strong}")]));
    assert_eq!((again.status, again.field("etag")), (304, Some(strong)));
}
