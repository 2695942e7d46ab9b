//! Applications: routes, extractors, responses, middleware, mounts.

mod attributes;
mod blocking;
mod check;
mod error_form;
mod errors;
mod invalid_paths;
mod openapi;
mod routing;
mod testing;
mod tower;

use std::sync::Arc;

use apus::{
    App, Extension, Files, HeaderMap, IntoResponse, Method, Next, Path, Peer, Request, Response,
    ServiceFactory, State, StatusCode,
};

use apus_testkit::{ask, echo, get};

#[test]
fn routes_by_method_and_path() {
    let app = App::new()
        .get("/", async || "home")
        .get("/users/{id}", async |Path(id): Path<u32>| {
            format!("user {id}")
        })
        .post("/users/{id}", async |Path(id): Path<u32>| {
            (StatusCode::CREATED, format!("made {id}"))
        })
        .get("/users/me", async || "me")
        .get("/files/{*rest}", async |Path(rest): Path<String>| rest)
        .any("/any", async |method: Method| method.to_string());
    let service = app.service();
    for (method, path, status, text) in [
        ("GET", "/", 200, "home"),
        ("GET", "/users/7", 200, "user 7"),
        ("GET", "/users/%37", 200, "user 7"),
        ("GET", "//users/./7", 200, "user 7"),
        ("POST", "/users/7", 201, "made 7"),
        ("GET", "/users/me", 200, "me"),
        ("GET", "/files/a/b%20c", 200, "a/b c"),
        ("DELETE", "/any", 200, "DELETE"),
    ] {
        let reply = ask(method, path).of(&service);
        assert_eq!(
            (reply.status, reply.text()),
            (status, text),
            "{method} {path}"
        );
    }
    for (path, status) in [
        ("/nope", 404),
        ("/users/x", 404),
        ("/%2f", 400),
        ("/%ff", 400),
    ] {
        assert_eq!(get(path).of(&service).status, status, "{path}");
    }
}

#[test]
fn methods_without_a_handler_are_405_and_options_lists_the_others() {
    let app = App::new().get("/a", async || "a").post("/a", async || "b");
    let service = app.service();
    let reply = ask("DELETE", "/a").of(&service);
    assert_eq!(reply.status, 405);
    assert_eq!(reply.field("allow"), Some("GET, POST, HEAD, OPTIONS"));
    let reply = ask("OPTIONS", "/a").of(&service);
    assert_eq!(reply.status, 204);
    assert_eq!(reply.field("allow"), Some("GET, POST, HEAD, OPTIONS"));
    assert_eq!(ask("HEAD", "/a").of(&service).status, 200);
    assert_eq!(ask("OPTIONS", "*").of(&service).status, 204);
}

#[test]
fn a_method_that_no_route_has_is_501_rfc_9110_section_9_1() {
    let purge = Method::from_bytes(b"PURGE").unwrap();
    let app = App::new()
        .get("/a", async || "a")
        .route(purge, "/b", async || "purged");
    let service = app.service();
    assert_eq!(ask("BREW", "/a").of(&service).status, 501);
    assert_eq!(ask("PATCH", "/a").of(&service).status, 405);
    assert_eq!(ask("PURGE", "/b").of(&service).text(), "purged");
    // A route knows it, but not this one.
    let reply = ask("PURGE", "/a").of(&service);
    assert_eq!(
        (reply.status, reply.field("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    // The path decides first.
    assert_eq!(ask("BREW", "/nowhere").of(&service).status, 404);
}

#[test]
fn handlers_can_take_parts_of_the_request() {
    let app = App::new().state(Arc::<str>::from("shared")).get(
        "/{x}",
        async |method: Method,
               Path(x): Path<String>,
               State(state): State<Arc<str>>,
               headers: HeaderMap,
               peer: Peer,
               extension: Option<Extension<u8>>,
               request: Request| {
            format!(
                "{method} {x} {state} {} {peer} {:?} {}",
                headers["host"].to_str().unwrap(),
                extension.map(|Extension(value)| value),
                request.path(),
            )
        },
    );
    assert_eq!(
        get("/a").extension(5u8).to(&app).text(),
        "GET a shared example.com 192.0.2.7:50000 Some(5) /a"
    );
}

async fn stamp(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response
        .headers_mut()
        .try_append("x-layer", "outer")
        .unwrap();
    response
}

#[test]
fn the_first_layer_is_the_outermost() {
    let app = App::new()
        .layer(stamp)
        .layer(async |mut request: Request, next: Next| {
            if request.path() == "/closed" {
                return StatusCode::FORBIDDEN.into_response();
            }
            request.extensions_mut().insert(7u8);
            let mut response = next.run(request).await;
            response
                .headers_mut()
                .try_append("x-layer", "inner")
                .unwrap();
            response
        })
        .get("/", async |Extension(number): Extension<u8>| {
            number.to_string()
        });
    let service = app.service();
    let reply = get("/").of(&service);
    assert_eq!(reply.text(), "7");
    let layers: Vec<_> = reply.headers.get_all("x-layer").collect();
    assert_eq!(layers, [b"inner", b"outer"]);
    let reply = get("/closed").of(&service);
    assert_eq!((reply.status, reply.field("x-layer")), (403, Some("outer")));
    let reply = get("/nope").of(&service);
    assert_eq!((reply.status, reply.field("x-layer")), (404, Some("inner")));
}

#[test]
fn services_are_mounted_under_a_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("a b.txt"), "file").unwrap();
    let app = App::new()
        .get("/static/special", async || "route")
        .mount("/static", Files::new(folder.path()))
        .mount("/echo/", echo("echo"))
        .mount("/echo/deep", echo("deep"));
    let service = app.service();
    for (path, text) in [
        ("/static/a%20b.txt", "file"),
        ("/static/special", "route"),
        ("/echo/x?y", "echo /x?y"),
        ("/echo/", "echo /"),
        ("/echo/deep/x", "deep /x"),
        ("/echo/deeper", "echo /deeper"),
        ("/echo/a%3Fb", "echo /a%3Fb"),
    ] {
        assert_eq!(get(path).of(&service).text(), text, "{path}");
    }
    let reply = get("/echo?x").of(&service);
    assert_eq!(
        (reply.status, reply.field("location")),
        (308, Some("/echo/?x"))
    );
    let reply = get("/static/sub").of(&service);
    assert_eq!(reply.field("location"), Some("/static/sub/"));
    assert_eq!(get("/echoes").of(&service).status, 404);
}

#[test]
fn a_mounted_service_gets_the_rest_of_the_path_as_the_client_sent_it() {
    let mount = || {
        App::new()
            .mount("/x", echo("x"))
            .mount("/a b", echo("encoded"))
    };
    let closed = mount().service();
    let open = mount().allow_encoded_slashes().service();
    for (path, text) in [
        ("/x/a%3Bb%2Bc%7E+;d", "x /a%3Bb%2Bc%7E+;d"),
        ("/x/%c3%A4?%2F", "x /%c3%A4?%2F"),
        ("/%78/a", "x /a"),
        ("/a%20b/%61", "encoded /%61"),
        ("/x/b/../a", "x /a"),
        ("/b/../x/a", "x /a"),
        ("/x//a", "x /a"),
        ("//x/a//b", "x /a//b"),
    ] {
        assert_eq!(get(path).of(&closed).text(), text, "{path}");
        assert_eq!(get(path).of(&open).text(), text, "{path}");
    }
    for path in ["/x/a%2Fb", "/x/a%2f%2Fb%2F", "/x/%2Fa"] {
        assert_eq!(get(path).of(&closed).status, 400, "{path}");
        let rest = path.strip_prefix("/x").unwrap();
        assert_eq!(get(path).of(&open).text(), format!("x {rest}"), "{path}");
    }
    for path in ["/x%2Fa", "/%2Fx/a%2Fb", "/b%2F..%2Fx%2Fa", "/x/..%2F..%2Fa"] {
        assert_eq!(get(path).of(&open).status, 400, "{path}");
    }
}

#[test]
fn applications_can_be_nested() {
    let inner = App::new()
        .get("/", async || "inner home")
        .get("/users/{id}", async |Path(id): Path<u32>| id.to_string())
        .mount("/echo", echo("echo"));
    let app = App::new()
        .nest("/api", App::new().nest("/v1", inner))
        .fallback(async |request: Request| format!("no {}", request.path()));
    let service = app.service();
    assert_eq!(get("/api/v1").of(&service).text(), "inner home");
    assert_eq!(get("/api/v1/").of(&service).text(), "inner home");
    assert_eq!(get("/api/v1/users/3").of(&service).text(), "3");
    let reply = get("/api/v1/echo").of(&service);
    assert_eq!(reply.field("location"), Some("/api/v1/echo/"));
    assert_eq!(get("/api/nope").of(&service).text(), "no /api/nope");
    assert_eq!(get("/nope").of(&service).text(), "no /nope");
}

#[test]
fn a_slash_redirect_never_names_another_host() {
    let app = App::new().mount("/x", echo("x"));
    let reply = get("//x").to(&app);
    assert_eq!(reply.field("location"), Some("/x/"));
}

#[test]
fn invalid_routes_are_errors() {
    for app in [
        App::new().get("no-slash", async || ""),
        App::new().get("/{", async || ""),
        App::new().get("/a", async || "").get("/a", async || ""),
        App::new().get("/{a}", async || "").get("/{b}", async || ""),
        App::new().mount("x", echo("x")),
        App::new().mount("/x/../y", echo("x")),
        App::new().mount("/x", echo("x")).mount("/x/", echo("y")),
    ] {
        let error = app.check().unwrap_err();
        assert!(!error.to_string().is_empty());
        let started = app.serve("127.0.0.1:0").unwrap_err();
        assert!(
            matches!(started, apus::StartError::Application(_)),
            "{started}"
        );
    }
    assert!(
        App::new()
            .get("/a", async || "")
            .post("/a", async || "")
            .check()
            .is_ok()
    );
}
