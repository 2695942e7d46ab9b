//! Paths without a normal form: they pass the outermost layers, and get 400 with the reason.

use std::sync::{Arc, Mutex};

use apus::layers::{RequestIds, SecurityHeaders};
use apus::testing::TestServer;
use apus::{App, ErrorFormat, Next, Path, Request, Response};
use serde_json::Value;

const INVALID: [(&str, &str); 5] = [
    ("/a%2Fb", "encoded slash"),
    ("/a%00", "control character"),
    ("/%zz", "two hexadecimal digits"),
    ("/../x", "out of the root"),
    ("/%ff", "not UTF-8"),
];

#[test]
fn invalid_paths_pass_the_outermost_layers_and_on_error() {
    let (layer_saw, hook_saw) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (seen, details) = (layer_saw.clone(), hook_saw.clone());
    let app = App::new()
        .on_error(move |error, _| {
            let detail = error.detail().unwrap_or_default().to_owned();
            details.lock().unwrap().push(detail);
            None
        })
        .layer(RequestIds::new())
        .layer(SecurityHeaders::new())
        .layer(move |request: Request, next: Next| {
            *seen.lock().unwrap() += 1;
            async move { next.run(request).await }
        })
        .get("/{*path}", async |Path(path): Path<String>| path);
    let server = TestServer::start(app);
    for (path, reason) in INVALID {
        let mut response = server.client().get(path).send();
        response.assert_status(400).assert_contains(reason);
        assert!(response.header("x-request-id").is_some(), "{path}");
        assert!(
            response.header("x-content-type-options").is_some(),
            "{path}"
        );
        let detail = hook_saw.lock().unwrap().pop().unwrap();
        assert!(detail.contains(reason), "{path}: {detail}");
    }
    assert_eq!(*layer_saw.lock().unwrap(), INVALID.len());
    assert!(hook_saw.lock().unwrap().is_empty());
}

#[test]
fn invalid_paths_in_a_group_have_its_format() {
    let app = App::new().group("/api", |api| {
        api.error_format(ErrorFormat::Json)
            .get("/users", async || "all")
    });
    let server = TestServer::start(app);
    let mut response = server.client().get("/api/a%2Fb").send();
    response
        .assert_status(400)
        .assert_header("content-type", "application/problem+json");
    let problem: Value = response.json();
    assert_eq!(problem["detail"], "the path holds an encoded slash");
}

#[test]
fn encoded_slashes_are_allowed_in_the_rest_of_a_path() {
    async fn key(Path(key): Path<String>) -> String {
        key
    }
    let app = App::new()
        .get("/closed/{*key}", key)
        .group("/objects", |objects| {
            objects
                .allow_encoded_slashes()
                .get("/", async || "all")
                .get("/one/{key}", key)
                .get(
                    "/{bucket}/{*key}",
                    async |Path((bucket, key)): Path<(String, String)>| format!("{bucket}: {key}"),
                )
        });
    let server = TestServer::start(app);
    let client = server.client();
    for (path, text) in [
        (
            "/objects/photos/2026%2Fmay%20day.jpg",
            "photos: 2026/may day.jpg",
        ),
        ("/objects/photos/a/b%2fc", "photos: a/b/c"),
        ("/objects/photos/plain", "photos: plain"),
    ] {
        client.get(path).send().assert_ok().assert_text(text);
    }
    for path in [
        "/closed/a%2Fb",
        "/objects%2Fphotos/key",
        "/objects/photos%2Fkey/x",
        "/objects/photos%2Fkey",
        "/objects/one/a%2Fb%00",
        "/objects/photos/..%2F..%2F..%2Fx",
    ] {
        client.get(path).send().assert_status(400);
    }
}

/// The other forms of a target have no path.
#[test]
fn options_of_the_server_and_connect_are_no_errors_of_the_path() {
    async fn marked(request: Request, next: Next) -> Response {
        let mut response = next.run(request).await;
        let _ = response.headers_mut().try_insert("x-mark", "1");
        response
    }
    let server = TestServer::start(App::new().layer(marked).get("/", async || "home"));
    let address = server.address();
    for (line, status) in [("OPTIONS *", 204), ("CONNECT example.com:443", 501)] {
        let mut client = crate::harness::Client::connect(address);
        let reply = client.request(&format!("{line} HTTP/1.1\r\nHost: example.com:443\r\n\r\n"));
        assert_eq!(reply.status, status, "{line}");
        assert_eq!(reply.field("x-mark"), Some("1"), "{line}");
    }
}
