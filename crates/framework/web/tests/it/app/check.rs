//! `App::check`: mistakes of the program that are found before a server listens.

use std::collections::HashMap;
use std::net::TcpListener;

use apus::auth::{Csrf, CsrfToken};
use apus::extract::Multipart;
use apus::layers::{CspNonce, RequestId, RequestIds, SecurityHeaders};
use apus::session::{Key, MemoryStore, Session, Sessions};
use apus::template::{Renderer, Templates};
use apus::{App, HandlerExt, Layered, Path, Server, ServiceFactory, StartError, State};
use serde::Deserialize;

#[derive(Deserialize)]
struct Item {
    #[expect(dead_code, reason = "only its name matters")]
    shop: String,
    #[expect(dead_code, reason = "only its name matters")]
    id: u32,
}

/// The one mistake of an application.
#[track_caller]
fn mistake(app: App) -> String {
    let errors = app.check().unwrap_err();
    assert_eq!(errors.iter().len(), 1, "{errors}");
    let text = errors.to_string();
    assert!(text.contains("tests/it/app/check.rs:"), "{text}");
    text
}

#[test]
fn a_path_of_another_shape_than_the_route_is_found() {
    async fn pair(Path((_, _)): Path<(u32, u32)>) {}
    async fn item(Path(_): Path<Item>) {}
    async fn one(Path(_): Path<u32>) {}
    for (app, texts) in [
        (
            App::new().get("/a/{id}", pair),
            [
                "GET /a/{id}",
                "Path<(u32, u32)>",
                "takes 2 parameters",
                "has {id}",
            ],
        ),
        (
            App::new().post("/a/{id}", item),
            ["POST /a/{id}", "Item>", "has a field \"shop\"", "has {id}"],
        ),
        (
            App::new().get("/a", one),
            [
                "GET /a",
                "Path<u32>",
                "takes one parameter",
                "has no parameters",
            ],
        ),
        (
            App::new().any("/{a}/{b}", one),
            [
                "/{a}/{b}",
                "Path<u32>",
                "takes one parameter",
                "has {a}, {b}",
            ],
        ),
        (
            App::new().fallback(one),
            [
                "the fallback of /",
                "Path<u32>",
                "takes one parameter",
                "has no parameters",
            ],
        ),
        (
            App::new().group("/g", |group| {
                group.get(
                    "/x",
                    (async |Path(_): Path<u32>, _: Multipart| ()).with(SecurityHeaders::new()),
                )
            }),
            [
                "GET /g/x",
                "Path<u32>",
                "takes one parameter",
                "has no parameters",
            ],
        ),
    ] {
        let told = mistake(app);
        for text in texts {
            assert!(told.contains(text), "{text}: {told}");
        }
    }
    let app = App::new()
        .get("/a/{x}/{y}", pair)
        .get("/b/{id}/{shop}", item)
        .group("/c/{shop}", |group| group.get("/{id}", item))
        .get("/d/{id:[0-9]+}", one)
        .get("/e", async |Path(()): Path<()>| ())
        .get(
            "/f/{a}",
            async |_: Path<HashMap<String, String>>, _: Option<Path<Item>>| (),
        );
    app.check().unwrap();
}

#[test]
fn a_state_and_templates_that_are_missing_are_found() {
    async fn number(State(_): State<u64>) {}
    async fn page(_: Renderer) {}
    let told = mistake(App::new().get("/", number));
    assert!(
        told.contains("GET /: the handler takes State<u64>"),
        "{told}"
    );
    let told = mistake(App::new().get("/page", page));
    assert!(
        told.contains("takes a Renderer") && told.contains("no Templates"),
        "{told}"
    );
    // The application around a group does not have the group's state.
    let told = mistake(
        App::new()
            .get("/", number)
            .group("/in", |group| group.state(1u64).get("/", number)),
    );
    assert!(told.contains("GET /:"), "{told}");
    let folder = tempfile::tempdir().unwrap();
    App::new()
        .state(1u64)
        .state(Templates::folder(folder.path()).load().unwrap())
        .group("/in", |group| group.get("/", number).get("/page", page))
        .get("/maybe", async |_: Option<State<u8>>| ())
        .check()
        .unwrap();
}

#[test]
fn layers_that_handlers_need_are_found() {
    async fn visits(_: Session) {}
    async fn form(_: CsrfToken) {}
    async fn id(_: RequestId) {}
    async fn nonce(_: CspNonce) {}
    let sessions = || Sessions::new(MemoryStore::new());
    for (app, text) in [
        (
            App::new().get("/", visits),
            "takes a Session, and no layer `Sessions`",
        ),
        (
            App::new().get("/", form),
            "takes a CsrfToken, and no layer `Csrf`",
        ),
        (
            App::new().get("/", nonce),
            "takes CspNonce, and no layer `SecurityHeaders`",
        ),
        // The layers of a group are not around other routes.
        (
            App::new()
                .group("/in", |group| group.layer(sessions()).get("/", visits))
                .get("/out", visits),
            "GET /out: ",
        ),
        // Tokens are kept in sessions, whose layer has to be further out; this is told once.
        (
            App::new()
                .layer(Csrf::new())
                .layer(sessions())
                .get("/", form)
                .post("/", form),
            "keeps tokens in sessions",
        ),
        (
            App::new().layer(Csrf::new()).get("/", form),
            "keeps tokens in sessions",
        ),
    ] {
        let told = mistake(app);
        assert!(told.contains(text), "{text}: {told}");
    }
    let key = || Key::new([1; 32]).unwrap();
    App::new()
        .layer(RequestIds::new())
        .get("/id", id)
        .group("/a", |group| {
            group
                .layer(sessions())
                .layer(Csrf::new())
                .get("/", form)
                .post("/", visits)
        })
        .group("/b", |group| {
            group.get("/", form.with(Csrf::with_cookie(key())))
        })
        .get("/c", async |_: Option<Session>| ())
        .check()
        .unwrap();
}

/// Layers around a mounted application may provide what its handlers need.
#[test]
fn a_mounted_application_is_not_checked_for_layers() {
    let inner = || App::new().get("/", async |_: Session| ());
    let sessions = || Sessions::new(MemoryStore::new());
    App::new()
        .layer(sessions())
        .mount("/in", inner())
        .check()
        .unwrap();
    ServiceFactory::check(&Layered::new(inner()).layer(sessions())).unwrap();
    // Its other mistakes are found.
    let wrong = App::new().get("/", async |_: State<u8>| ());
    let told = mistake(App::new().mount("/in", wrong));
    assert!(told.contains("State<u8>"), "{told}");
}

#[test]
fn routes_that_never_match_are_found() {
    for (path, why) in [
        ("/a/:id", "`{id}`, not `:id`"),
        ("/:id/b", "`{id}`, not `:id`"),
        ("/files/*path", "`{*path}`, not `*path`"),
        ("/a%20b", "`%20`"),
        ("/a/%7Bid%7D", "`%7B`"),
        ("/a//b", "empty segments"),
        ("/a/./b", "`.` is resolved"),
        ("/a/..", "`..` is resolved"),
        ("/a\u{7}", "control characters"),
        ("/{a}/:b", "`{b}`, not `:b`"),
    ] {
        let told = mistake(App::new().get(path, async || ""));
        assert!(told.contains(why), "{path}: {told}");
    }
    for path in [
        "/",
        "/a/",
        "/a b",
        "/v1/users:batch",
        "/100%",
        "/.well-known",
        "/{name}.json",
        "/..a",
    ] {
        App::new().get(path, async || "").check().unwrap();
    }
}

#[test]
fn a_server_that_does_not_start_tells_the_mistakes_in_words() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let app = App::new()
        .get("/a/:id", async || "")
        .get("/visits", async |_: Session| ());
    // The address is in use, so it did not listen before.
    let error = app.serve(taken.local_addr().unwrap()).unwrap_err();
    assert!(matches!(error, StartError::Application(_)));
    let told = format!("{error:?}");
    assert!(
        told.starts_with("the application has 2 mistakes\n\n"),
        "{told}"
    );
    assert_eq!(
        told.matches("\n  at crates/framework/web/tests/it/app/check.rs:")
            .count(),
        2,
        "{told}"
    );
    assert_eq!(told, error.to_string());
    let error = Server::new(App::new()).listen("nowhere").unwrap_err();
    let told = format!("{error:?}");
    assert!(
        told.starts_with("the address to listen on is not valid: "),
        "{told}"
    );
    assert!(!told.contains("Custom"), "{told}");
    // Errors of a `main` are told with their causes, each once.
    let cause = std::io::Error::other("the disk is full");
    let outer = std::io::Error::other(cause);
    assert_eq!(
        format!("{:?}", StartError::other(outer)),
        "the disk is full"
    );
}
