//! The chapters of a first application, layers, and lists of handlers.

use std::collections::BTreeSet;

use apus::extract::Paging;
use apus::layers::Cors;
use apus::template::{Page, Renderer, Templates, context};
use apus::testing::TestClient;
use apus::{App, IntoResponse, Json, Next, Request, Response, Result, StatusCode};

/// A file of this crate or of the guide.
fn text(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn the_first_chapter_lists_every_feature() {
    let manifest = text("Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").unwrap();
    let (features, _) = features.split_once("\n[").unwrap();
    let names = features.lines().filter_map(|line| line.split_once(" = ["));
    let names: BTreeSet<&str> = names
        .map(|(name, _)| name)
        .filter(|name| !["default", "full"].contains(name))
        .collect();
    let chapter = text("guide/first-application.md");
    let rows = chapter.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split('`'))
        .filter(|name| name.contains(char::is_alphanumeric))
        .collect();
    assert_eq!(listed, names);
}

#[test]
fn a_layer_wraps_routes_before_and_after_its_line_and_unknown_paths() {
    async fn mark(request: Request, next: Next) -> Response {
        next.run(request).await.with("x-mark", "1")
    }
    let app = App::new()
        .get("/before", async || "before")
        .layer(mark)
        .get("/after", async || "after")
        .group("/group", |group| {
            group
                .get("/before", async || "before")
                .layer(|request: Request, next: Next| async move {
                    next.run(request).await.with("x-group", "1")
                })
                .get("/after", async || "after")
        });
    let client = TestClient::new(app);
    for (path, status, is_in_group) in [
        ("/before", 200, false),
        ("/after", 200, false),
        ("/nowhere", 404, false),
        ("/group/before", 200, true),
        ("/group/after", 200, true),
    ] {
        let mut response = client.get(path).send();
        response.assert_status(status).assert_header("x-mark", "1");
        assert_eq!(response.header("x-group").is_some(), is_in_group, "{path}");
    }
}

#[test]
fn a_layer_returns_what_a_handler_can_return() {
    async fn status(_: Request, _: Next) -> StatusCode {
        StatusCode::IM_A_TEAPOT
    }
    async fn pair(_: Request, _: Next) -> (StatusCode, &'static str) {
        (StatusCode::ACCEPTED, "later")
    }
    async fn json(_: Request, _: Next) -> Json<[u8; 2]> {
        Json([1, 2])
    }
    async fn failing(_: Request, _: Next) -> Result<Response> {
        Err(std::io::Error::other("no disk"))?
    }
    let app = App::new()
        .group("/status", |group| group.layer(status).get("/", || ""))
        .group("/pair", |group| group.layer(pair).get("/", || ""))
        .group("/json", |group| group.layer(json).get("/", || ""))
        .group("/failing", |group| group.layer(failing).get("/", || ""));
    let client = TestClient::new(app);
    client.get("/status").send().assert_status(418);
    client
        .get("/pair")
        .send()
        .assert_status(202)
        .assert_text("later");
    client.get("/json").send().assert_text("[1,2]");
    client.get("/failing").send().assert_status(500);
}

#[test]
fn lists_have_twenty_entries_and_at_most_a_hundred_and_templates_show_their_links() {
    async fn list(renderer: Renderer, paging: Paging) -> Page {
        let links = paging.links(45);
        renderer.page("list.html", context! { links, limit => paging.limit() })
    }
    let template =
        "{{ limit }}: {{ links.page }} of {{ links.pages }}, {{ links.prev }} {{ links.next }}";
    let templates = Templates::embedded([("list.html", template)]);
    let app = App::new()
        .state(templates.load().unwrap())
        .get("/list", list);
    let client = TestClient::new(app);
    let middle = "20: 2 of 3, &#x2f;list?page=1 &#x2f;list?page=3";
    client.get("/list?page=2").send().assert_text(middle);
    client
        .get("/list?per_page=100")
        .send()
        .assert_contains("100: 1 of 1, ");
    client.get("/list?per_page=101").send().assert_status(400);
}

#[test]
fn another_origin_may_send_by_default_what_a_form_can_send() {
    let app = App::new()
        .layer(Cors::new().origin("https://shop.example"))
        .delete("/", async || "gone")
        .post("/", async || "sent");
    let client = TestClient::new(app).header("origin", "https://shop.example");
    client
        .post("/")
        .send()
        .assert_text("sent")
        .assert_header("access-control-allow-origin", "https://shop.example");
    let preflight = |method: &str, field: &str| {
        client
            .options("/")
            .header("access-control-request-method", method)
            .header("access-control-request-headers", field)
            .send()
    };
    let allows = |method: &str, field: &str| {
        let response = preflight(method, field);
        let methods = response.header("access-control-allow-methods");
        let fields = response.header("access-control-allow-headers");
        let has = |list: Option<&str>, word: &str| {
            list.is_some_and(|list| list.split(", ").any(|found| found == word))
        };
        (has(methods, method), has(fields, field))
    };
    assert_eq!(allows("POST", "content-type"), (true, false));
    assert_eq!(allows("DELETE", "x-own"), (false, false));
}
