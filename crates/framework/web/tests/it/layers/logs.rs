//! `RequestIds` and `Logged`: request ids, and log lines of requests.

use std::io;
use std::sync::{Arc, Mutex};

use apus::layers::{Logged, RequestId, RequestIds, TrustedProxies};
use apus::{App, HeaderName, Request, ServiceFactory, StatusCode};

use crate::harness::{Client, Server, get, head};
use apus_testkit::{self, block_on};

async fn id(id: RequestId) -> String {
    id.to_string()
}

#[test]
fn each_request_has_an_id() {
    let server = Server::start(App::new().layer(RequestIds::new()).get("/", id));
    let mut client = Client::connect(server.address());
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let reply = client.request(&head("GET", "/", &["X-Request-Id: mine"]));
        let field = reply.field("x-request-id").unwrap();
        assert_eq!(reply.text(), field);
        assert!(field.len() == 32 && field.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(seen.insert(field.to_owned()));
    }
}

#[test]
fn a_valid_id_of_a_trusted_proxy_is_kept() {
    let trusted = || TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]);
    let app = App::new().layer(trusted()).layer(RequestIds::new());
    let server = Server::start(app.get("/", id));
    let mut client = Client::connect(server.address());
    let long = "a".repeat(129);
    for (sent, is_kept) in [
        ("7b9a-_.~+/=:@Z", true),
        (&long[..128], true),
        (&long, false),
        ("", false),
        ("two words", false),
        ("quo\"te", false),
        ("\u{e9}", false),
    ] {
        let reply = client.request(&head("GET", "/", &[&format!("X-Request-Id: {sent}")]));
        assert_eq!(reply.text() == sent, is_kept, "{sent:?}");
        assert_eq!(reply.field("x-request-id"), Some(reply.text()));
    }
    let named = RequestIds::new().field(HeaderName::from_static("x-trace"));
    let app = App::new()
        .layer(trusted().request_id("X-Trace"))
        .layer(named)
        .get("/", id);
    let reply = get(app, "/", &["X-Trace: t1", "X-Request-Id: r1"]);
    assert_eq!((reply.text(), reply.field("x-trace")), ("t1", Some("t1")));
}

#[test]
fn a_request_has_its_id_without_the_layer() {
    let app = App::new().get("/", id);
    app.check().unwrap();
    let reply = apus_testkit::get("/").to(&app);
    assert_eq!(
        (reply.text().len(), reply.field("x-request-id")),
        (32, None)
    );
}

/// What is logged.
#[derive(Clone, Default)]
pub(crate) struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Runs something whose lines of the log it gets.
    pub(crate) fn logs(&self, run: impl FnOnce()) {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run);
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of this thread while `run` runs.
pub(crate) fn logged(run: impl FnOnce()) -> String {
    let buffer = LogBuffer::default();
    buffer.logs(run);
    buffer.text()
}

fn app() -> App {
    App::new()
        .layer(TrustedProxies::new(["192.0.2.0/24".parse().unwrap()]))
        .layer(RequestIds::new())
        .layer(Logged::new())
        .get("/", async || "well")
        .get("/teapot", async || StatusCode::IM_A_TEAPOT)
        .get("/never", async |_: Request| {
            std::future::pending::<()>().await
        })
        .get("/panic", || -> &'static str { panic!("on purpose") })
}

fn line(path: &str) -> String {
    logged(|| {
        let request = apus_testkit::get(path)
            .with("x-request-id", "the-id")
            .request();
        let service = app().service();
        block_on(async move {
            let mut response = service.call(request).wait().await;
            let completion = apus::Completion {
                status: response.status(),
                body_bytes: 4,
                bytes: 100,
                duration: std::time::Duration::from_micros(1234),
                outcome: apus::ResponseOutcome::Complete,
                origin: None,
                cache: None,
            };
            for observer in response.take_observers() {
                observer(&completion);
            }
        });
    })
}

#[test]
fn a_line_has_request_and_response_without_the_query() {
    let line = line("/?secret=1");
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in [
        "INFO apus::request:",
        "method=GET",
        "path=\"/\"",
        "status=200",
        "bytes=4",
        "duration_us=1234",
        "client=192.0.2.7",
        "request_id=the-id",
        "outcome=\"complete\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!line.contains("secret"), "{line}");
    assert!(self::line("/teapot").contains("status=418"));
}

#[test]
fn an_aborted_request_is_logged() {
    let line = logged(|| {
        let service = app().service();
        let response = service.call(apus_testkit::get("/never").request());
        drop(response);
    });
    assert!(
        line.contains("status=0") && line.contains("not sent"),
        "{line}"
    );
    let line = logged(|| {
        let service = app().service();
        let request = apus_testkit::get("/panic").request();
        let call = std::panic::AssertUnwindSafe(|| service.call(request));
        assert!(std::panic::catch_unwind(call).is_err());
    });
    assert!(
        line.contains("status=500") && line.contains("panicked"),
        "{line}"
    );
}

#[test]
fn the_log_level_is_respected() {
    let app = App::new().layer(Logged::new()).get("/", async || "well");
    assert_eq!(get(app, "/", &[]).text(), "well");
}

/// All lines of a request, also those of libraries, have its method, path, route and id.
#[test]
fn the_lines_of_a_request_are_in_its_span() {
    async fn failing() -> apus::Result<()> {
        tokio::task::yield_now().await;
        tracing::warn!(target: "some_library", "a line of a library");
        Err(io::Error::other("the disk is full"))?
    }
    let app = App::new()
        .layer(RequestIds::new())
        .get("/panic", async || -> &'static str { panic!("oh no") })
        .group("/api", |api| api.get("/users/{id}", failing));
    let inner = App::new().get("/deep/{id}", failing);
    let app = app.mount("/mounted", inner);
    for (path, route, lines) in [
        (
            "/api/users/7",
            "/api/users/{id}",
            ["a line of a library", "the disk is full"],
        ),
        (
            "/mounted/deep/7",
            "/mounted/deep/{id}",
            ["a line of a library", "the disk is full"],
        ),
        ("/panic", "/panic", ["oh no", "a handler failed"]),
    ] {
        let mut id = String::new();
        let log = logged(|| {
            let client = apus::testing::TestClient::new(app.clone());
            let response = client.get(path).query([("secret", "1")]).send();
            // The response to a panic does not pass the layers.
            id = response
                .header("x-request-id")
                .unwrap_or_default()
                .to_owned();
        });
        for text in lines {
            let line = log
                .lines()
                .find(|line| line.contains(text))
                .unwrap_or_else(|| panic!("{log}"));
            for part in [
                "request{method=GET".to_owned(),
                format!("path=\"{path}\""),
                format!("route=\"{route}\""),
                format!("request_id={id}"),
            ] {
                assert!(line.contains(&part), "{part}: {line}");
            }
            assert!(!line.contains("secret"), "{line}");
        }
    }
}
