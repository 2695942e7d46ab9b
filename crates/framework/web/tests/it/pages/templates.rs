//! Templates and pages.

use std::fs;
use std::time::{Duration, SystemTime};

use apus::assets::Assets;
use apus::template::{Page, Renderer, Templates, context};
use apus::testing::{TestClient, TestServer};
use apus::{App, Path, StatusCode};
use serde::Serialize;
use tempfile::TempDir;

#[derive(Serialize)]
struct User {
    name: &'static str,
    tags: Vec<&'static str>,
}

const USER: User = User {
    name: "<Ada>",
    tags: Vec::new(),
};

async fn any(renderer: Renderer, Path(name): Path<String>) -> Page {
    renderer.page(&name, context! { user => USER, name => "a & b" })
}

fn client(templates: Templates) -> TestClient {
    TestClient::new(App::new().state(templates).get("/{*name}", any))
}

fn embedded(templates: &'static [(&'static str, &'static str)]) -> TestClient {
    client(
        Templates::embedded(templates.iter().copied())
            .load()
            .unwrap(),
    )
}

#[test]
fn templates_inherit_and_escape_by_extension() {
    let client = embedded(&[
        (
            "layout/base.html",
            "<title>{% block title %}{% endblock %}</title>",
        ),
        (
            "user.html",
            "{% extends 'layout/base.html' %}{% block title %}{{ user.name }}{% endblock %}",
        ),
        ("user.txt", "{{ user.name }}"),
        ("user.json", "{\"name\": {{ user.name }}}"),
        ("user.html.j2", "{{ user.name }}"),
        ("icon.svg", "<text>{{ user.name }}</text>"),
    ]);
    for (name, content_type, text) in [
        (
            "user.html",
            "text/html; charset=utf-8",
            "<title>&lt;Ada&gt;</title>",
        ),
        ("user.txt", "text/plain; charset=utf-8", "<Ada>"),
        ("user.json", "application/json", "{\"name\": \"<Ada>\"}"),
        ("user.html.j2", "text/html; charset=utf-8", "&lt;Ada&gt;"),
        ("icon.svg", "image/svg+xml", "<text>&lt;Ada&gt;</text>"),
    ] {
        let mut reply = client.get(&format!("/{name}")).send();
        reply.assert_ok().assert_text(text);
        assert_eq!(reply.header("content-type"), Some(content_type), "{name}");
    }
}

#[test]
fn a_page_may_have_another_status() {
    async fn missing(renderer: Renderer) -> Page {
        renderer
            .page("404.html", context! {})
            .status(StatusCode::NOT_FOUND)
    }
    let templates = Templates::embedded([("404.html", "gone")]).load().unwrap();
    let app = App::new().state(templates).fallback(missing);
    TestClient::new(app)
        .get("/")
        .send()
        .assert_status(404)
        .assert_text("gone");
}

#[test]
fn template_errors_are_reported_at_the_start_with_their_line() {
    let error = Templates::embedded([("a.html", "one\n{% if %}")])
        .load()
        .unwrap_err();
    assert_eq!((error.name(), error.line()), (Some("a.html"), Some(2)));
    assert!(error.to_string().starts_with("a.html:2: "), "{error}");
    assert!(Templates::folder("/nowhere/at/all").load().is_err());
    let not_text = Templates::embedded([("a.html", b"\xff")]).load();
    assert!(not_text.unwrap_err().to_string().contains("a.html"));
}

#[test]
fn only_development_shows_template_errors_to_the_client() {
    let templates = [("bad.html", "<p>\n{{ nobody.name }}\n{{ name|upper }}")];
    let development = Templates::embedded(templates).reload(true).load().unwrap();
    client(development)
        .get("/bad.html")
        .send()
        .assert_status(500)
        .assert_header("content-type", "text/html; charset=utf-8")
        .assert_contains("<h1>bad.html:2</h1>")
        .assert_contains("<li value=\"2\" class=\"here\">{{ nobody.name }}</li>")
        .assert_contains("<li value=\"3\">{{ name|upper }}</li>");
    // And not to a page of another site that leads a browser here under its own name.
    let development = Templates::embedded(templates).reload(true).load().unwrap();
    let rebound = client(development);
    let mut reply = rebound
        .get("/bad.html")
        .header("host", "evil.example")
        .send();
    reply.assert_status(500);
    assert!(!reply.text().contains("nobody"));
    let production = Templates::embedded(templates).reload(false).load().unwrap();
    let client = client(production);
    let mut reply = client.get("/bad.html").send();
    reply.assert_status(500);
    assert!(!reply.text().contains("nobody"));
    client.get("/none.html").send().assert_status(500);
}

#[test]
fn changed_files_are_read_again_in_development() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str, age: u64| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let modified = SystemTime::now() - Duration::from_secs(age);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
    };
    write("base.html", "1 {% block a %}{% endblock %}", 100);
    write(
        "pages/a.html",
        "{% extends 'base.html' %}{% block a %}{{ name }}{% endblock %}",
        100,
    );
    let templates = |reloads| Templates::folder(folder.path()).reload(reloads).load();
    let development = client(templates(true).unwrap());
    let production = client(templates(false).unwrap());
    let shown = |client: &TestClient| client.get("/pages/a.html").send().text();
    assert_eq!(shown(&development), "1 a &amp; b");
    assert_eq!(shown(&production), "1 a &amp; b");
    write("base.html", "2 {% block a %}{% endblock %}", 50);
    assert_eq!(shown(&development), "2 a &amp; b");
    assert_eq!(shown(&production), "1 a &amp; b");
    write("pages/b.html", "new", 0);
    development.get("/pages/b.html").send().assert_text("new");
    write("pages/b.html", "{% nonsense %}", 10);
    development
        .get("/pages/b.html")
        .send()
        .assert_status(500)
        .assert_contains("pages/b.html:1");
    development.get("/../Cargo.toml").send().assert_status(400);
    development.get("/.hidden").send().assert_status(500);
}

#[test]
fn templates_name_assets_by_their_hash() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("app.css"), "body {}").unwrap();
    let assets = Assets::folder(folder.path()).reload(false).load().unwrap();
    let templates = Templates::embedded([
        ("a.html", "{{ asset('app.css') }}"),
        ("b.html", "\n{{ asset('none.css') }}"),
    ])
    .assets(&assets)
    .reload(true)
    .load()
    .unwrap();
    let client = client(templates);
    client
        .get("/a.html")
        .send()
        .assert_text("/assets/app.62368a1a.css");
    client
        .get("/b.html")
        .send()
        .assert_status(500)
        .assert_contains("b.html:2")
        .assert_contains("there is no asset &quot;none.css&quot;");
}

#[test]
fn templates_name_routes() {
    let templates = Templates::embedded([
        ("a.html", "{{ url('user', id=7, tab='a b', x=1) }}"),
        ("a.txt", "{{ url('user', id='a b', x=1, y=2) }}"),
        ("b.html", "\n{{ url('nobody') }}"),
    ])
    .reload(true)
    .load()
    .unwrap();
    let renderer = templates.renderer().unwrap();
    assert!(renderer.text("a.html", context! {}).is_err());
    let inner = App::new()
        .state(templates)
        .get("/pages/{*name}", any)
        .get("/users/{id}", async || "")
        .name("user");
    let client = TestClient::new(App::new().mount("/app", inner));
    let shown = |name: &str| client.get(&format!("/app/pages/{name}")).send().text();
    assert_eq!(shown("a.html"), "/app/users/7?tab=a+b&amp;x=1");
    assert_eq!(shown("a.txt"), "/app/users/a%20b?x=1&y=2");
    assert!(shown("b.html").contains("b.html:2"));
}

#[test]
fn every_worker_renders_and_filters_can_be_added() {
    let templates = Templates::embedded([("a.html", "{{ name|shout }}")])
        .environment(|environment| {
            environment.add_filter("shout", |text: String| format!("{}!", text.to_uppercase()));
        })
        .load()
        .unwrap();
    let server = TestServer::with_workers(App::new().state(templates).get("/{*name}", any), 2);
    for _ in 0..8 {
        let client = server.client();
        client.get("/a.html").send().assert_text("A &amp; B!");
    }
}

#[test]
fn missing_templates_are_a_500() {
    let app = App::new().get("/{*name}", any);
    // A check of the application finds it before.
    assert!(app.check().is_err());
    TestClient::of(app).get("/a.html").send().assert_status(500);
}
