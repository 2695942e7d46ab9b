//! Examples of routes: hello, parameters and groups, and an API in JSON.

use crate::harness::{Build, C, Server, curl};

#[test]
fn hello_responds_to_its_path_alone() {
    let server = Server::start("hello.c", C, &[]);
    let reply = server.get("/");
    assert_eq!((reply.status, reply.text()), (200, "Hello, world!\n"));
    assert_eq!(reply.field("content-type"), "text/plain; charset=utf-8");
    assert_eq!(server.get("/other").status, 404);
    assert_eq!(curl(&["--data", "x", &server.url("/")]).status, 405);
    server.stop();
}

#[test]
fn routes_have_typed_parameters_groups_and_a_fallback() {
    let server = Server::start("routes.c", C, &[]);
    assert_eq!(server.get("/users/7").text(), "user 7\n");
    assert_eq!(server.get("/users/seven").status, 404);
    assert_eq!(server.get("/files/a/b%20c.txt").text(), "file a/b c.txt\n");
    assert_eq!(
        server.get("/search?q=common%20swift&limit=3").text(),
        "3 results for common swift\n"
    );
    assert_eq!(server.get("/search").status, 400);
    let unknown = server.get("/nowhere");
    assert_eq!(
        (unknown.status, unknown.text()),
        (404, "There is no /nowhere.\n")
    );
    server.stop();
}

#[test]
fn a_group_of_routes_has_middleware_of_its_own() {
    let server = Server::start("routes.c", C, &[]);
    let denied = server.get("/admin/status");
    assert_eq!(denied.status, 401);
    let allowed = curl(&[
        "-H",
        "Authorization: Bearer swift",
        &server.url("/admin/status"),
    ]);
    assert_eq!((allowed.status, allowed.text()), (200, "all is well\n"));
    for reply in [&denied, &allowed, &server.get("/users/7")] {
        assert_eq!(reply.field("x-served-by"), "routes");
    }
    server.stop();
}

const JSON: Build = Build {
    libraries: &["-lcjson"],
    ..C
};

#[test]
fn json_api_creates_lists_and_deletes_notes() {
    let server = Server::start("json.c", JSON, &[]);
    let notes = server.url("/notes");
    assert_eq!(server.get("/notes").text(), "[]");
    let post = |body: &str| {
        curl(&[
            "-H",
            "Content-Type: application/json",
            "--data",
            body,
            &notes,
        ])
    };
    let created = post(r#"{"text":"fly \"south\""}"#);
    assert_eq!(created.status, 201);
    assert_eq!(created.field("location"), "/notes/1");
    assert_eq!(created.field("content-type"), "application/json");
    assert_eq!(created.text(), r#"{"id":1,"text":"fly \"south\""}"#);
    assert_eq!(server.get("/notes/1").text(), created.text());
    assert_eq!(server.get("/notes").text(), format!("[{}]", created.text()));
    for broken in ["{", "[]", r#"{"text":7}"#, ""] {
        assert_eq!(post(broken).status, 400, "{broken:?}");
    }
    let note = server.url("/notes/1");
    assert_eq!(curl(&["-X", "DELETE", &note]).status, 204);
    assert_eq!(curl(&["-X", "DELETE", &note]).status, 404);
    assert_eq!(server.get("/notes").text(), "[]");
    server.stop();
}

#[test]
fn json_api_limits_the_body() {
    let server = Server::start("json.c", JSON, &[]);
    let body = server.folder.path().join("body.json");
    std::fs::write(&body, format!(r#"{{"text":"{}"}}"#, "x".repeat(20_000))).unwrap();
    let data = format!("@{}", body.display());
    let reply = curl(&[
        "-H",
        "Content-Type: application/json",
        "--data",
        &data,
        &server.url("/notes"),
    ]);
    assert_eq!(reply.status, 413);
    server.stop();
}
