//! `RequestIds` and `Logged`: request ids, and log lines of requests.

use apus_handler::TrustedProxies;
use apus_http::{
    Completion, HeaderName, Request, RequestId, ResponseOutcome, ServiceFactory, StatusCode,
};
use apus_layers::{Hsts, Logged, RequestIds};
use apus_testkit::{LocalClient, block_on, logged};

use crate::harness::{Routes, get, head};

async fn id(id: RequestId) -> String {
    id.to_string()
}

#[test]
fn each_request_has_an_id() {
    let client = LocalClient::of(&Routes::new().layer(RequestIds::new()).get("/", id));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let reply = client.send(head("GET", "/", &["X-Request-Id: mine"]));
        let field = reply.field("x-request-id").unwrap();
        assert_eq!(reply.text(), field);
        assert!(field.len() == 32 && field.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(seen.insert(field.to_owned()));
    }
}

#[test]
fn a_valid_id_of_a_trusted_proxy_is_kept() {
    let trusted = || TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]);
    let app = Routes::new().layer(trusted()).layer(RequestIds::new());
    let client = LocalClient::of(&app.get("/", id));
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
        let reply = client.send(head("GET", "/", &[&format!("X-Request-Id: {sent}")]));
        assert_eq!(reply.text() == sent, is_kept, "{sent:?}");
        assert_eq!(reply.field("x-request-id"), Some(reply.text()));
    }
    let named = RequestIds::new().field(HeaderName::from_static("x-trace"));
    let app = Routes::new()
        .layer(trusted().request_id("X-Trace"))
        .layer(named)
        .get("/", id);
    let reply = get(app, "/", &["X-Trace: t1", "X-Request-Id: r1"]);
    assert_eq!((reply.text(), reply.field("x-trace")), ("t1", Some("t1")));
}

#[test]
fn a_request_has_its_id_without_the_layer() {
    let app = Routes::new().get("/", id);
    app.check().unwrap();
    let reply = apus_testkit::get("/").to(&app);
    assert_eq!(
        (reply.text().len(), reply.field("x-request-id")),
        (32, None)
    );
}

fn app() -> Routes {
    Routes::new()
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
            let completion = Completion {
                status: response.status(),
                body_bytes: 4,
                bytes: 100,
                duration: std::time::Duration::from_micros(1234),
                first_byte: None,
                outcome: ResponseOutcome::Complete,
                origin: None,
                cache: None,
                fields: None,
            };
            response.take_observers().notify(&completion);
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
    // Without a layer further in that makes a response of the panic, and with one.
    for app in [app(), app().layer(Hsts::default())] {
        let line = logged(|| {
            let service = app.service();
            let request = apus_testkit::get("/panic").request();
            let call = std::panic::AssertUnwindSafe(|| service.call(request));
            drop(std::panic::catch_unwind(call));
        });
        assert!(
            line.contains("status=500") && line.contains("panicked"),
            "{line}"
        );
    }
}

#[test]
fn the_log_level_is_respected() {
    let app = Routes::new().layer(Logged::new()).get("/", async || "well");
    assert_eq!(get(app, "/", &[]).text(), "well");
}
