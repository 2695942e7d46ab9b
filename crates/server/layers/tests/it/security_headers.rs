//! `SecurityHeaders`: security fields of responses.

use std::time::Duration;

use apus_handler::TrustedProxies;
use apus_http::{HeaderName, HeaderValue, ServiceFactory};
use apus_layers::{CspNonce, ForceHttps, Hsts, SecurityHeaders};
use apus_testkit::LocalClient;

use crate::harness::{Routes, get, head};

fn app(headers: SecurityHeaders) -> Routes {
    Routes::new()
        .layer(TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]))
        .layer(headers)
        .get("/", async || "a page")
        .get("/own", async || ([("x-frame-options", "DENY")], "a page"))
}

const YEAR: Duration = Duration::from_secs(31_536_000);

#[test]
fn all_responses_have_the_fields() {
    let client = LocalClient::of(&app(SecurityHeaders::new()));
    for path in ["/", "/nothing"] {
        let reply = client.send(head("GET", path, &[]));
        for (name, value) in [
            (
                "content-security-policy",
                "base-uri 'self'; frame-ancestors 'self'; object-src 'none'",
            ),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "SAMEORIGIN"),
            ("referrer-policy", "strict-origin-when-cross-origin"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            let found: Vec<_> = reply.fields(name).collect();
            assert_eq!(found, [value], "{name} of {path}");
        }
        assert_eq!(reply.field("strict-transport-security"), None);
    }
}

#[test]
fn fields_of_the_handler_are_kept() {
    let reply = get(app(SecurityHeaders::new()), "/own", &[]);
    assert_eq!(
        reply.fields("x-frame-options").collect::<Vec<_>>(),
        ["DENY"]
    );
}

#[test]
fn fields_can_be_changed_added_and_removed() {
    let headers = SecurityHeaders::new()
        .set(
            HeaderName::from_static("permissions-policy"),
            HeaderValue::from_static("camera=()"),
        )
        .set(
            HeaderName::from_static("referrer-policy"),
            HeaderValue::from_static("no-referrer"),
        )
        .without(&HeaderName::from_static("x-frame-options"))
        .without(&HeaderName::from_static("content-security-policy"));
    let reply = get(app(headers), "/", &[]);
    assert_eq!(reply.field("permissions-policy"), Some("camera=()"));
    let referrer: Vec<_> = reply.fields("referrer-policy").collect();
    assert_eq!(referrer, ["no-referrer"]);
    assert_eq!(reply.field("x-frame-options"), None);
    assert_eq!(reply.field("content-security-policy"), None);
}

#[test]
fn hsts_is_sent_over_tls_only() {
    let name = "strict-transport-security";
    for (headers, value) in [
        (SecurityHeaders::new().hsts(YEAR), "max-age=31536000"),
        (
            SecurityHeaders::new().hsts_with_subdomains(YEAR),
            "max-age=31536000; includeSubDomains",
        ),
        (
            SecurityHeaders::new().hsts_preload(YEAR),
            "max-age=31536000; includeSubDomains; preload",
        ),
    ] {
        let client = LocalClient::of(&app(headers));
        assert_eq!(client.send(head("GET", "/", &[])).field(name), None);
        let secure = head("GET", "/", &["X-Forwarded-Proto: https"]);
        assert_eq!(client.send(secure).field(name), Some(value));
    }
    // The layer of its own replaces the field of a handler, and the other one leaves it.
    let handler = async || ([("strict-transport-security", "max-age=1")], "a page");
    for (factory, own) in [
        (Routes::new().layer(Hsts::new(YEAR)), "max-age=31536000"),
        (
            Routes::new().layer(SecurityHeaders::new().hsts(YEAR)),
            "max-age=1",
        ),
    ] {
        let factory = factory.get("/", async || "a page").get("/own", handler);
        for (path, value) in [
            ("/", "max-age=31536000"),
            ("/own", own),
            ("/none", "max-age=31536000"),
        ] {
            let reply = apus_testkit::get(path).tls(&["example.com"]).to(&factory);
            let values: Vec<_> = reply.headers.get_all(name).collect();
            assert_eq!(values, [value.as_bytes()], "{path}");
        }
    }
}

#[test]
fn each_response_has_a_new_nonce() {
    let headers = SecurityHeaders::new()
        .content_security_policy("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'");
    let app = app(headers).get("/nonce", async |nonce: CspNonce| nonce.to_string());
    let client = LocalClient::of(&app);
    let get_nonce = || client.send(head("GET", "/nonce", &[]));
    let (first, second) = (get_nonce(), get_nonce());
    assert_ne!(first.text(), second.text());
    assert!(first.text().len() >= 22);
    let nonce = first.text();
    let expected = format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'");
    assert_eq!(first.field("content-security-policy"), Some(&*expected));
}

#[test]
fn a_policy_can_be_report_only() {
    let headers = SecurityHeaders::new()
        .content_security_policy_report_only("default-src 'self'; report-to csp");
    let reply = get(app(headers), "/", &[]);
    assert_eq!(reply.field("content-security-policy"), None);
    let policy = reply.field("content-security-policy-report-only");
    assert_eq!(policy, Some("default-src 'self'; report-to csp"));
}

#[test]
fn an_invalid_policy_blocks_everything() {
    let headers = SecurityHeaders::new().content_security_policy("default-src\n'self'");
    let reply = get(app(headers), "/", &[]);
    let policy = reply.field("content-security-policy");
    assert_eq!(policy, Some("default-src 'none'"));
    let app = Routes::new().get("/", async |nonce: CspNonce| nonce.to_string());
    // A check of the application finds it before.
    assert!(app.check().is_err());
    assert_eq!(apus_testkit::get("/").to(&app).status, 500);
}

#[test]
fn http_is_redirected_to_https() {
    let networks = ["192.0.2.7".parse().unwrap()];
    let app = Routes::new()
        .layer(TrustedProxies::new(networks))
        .layer(ForceHttps::default())
        .get("/a", async || "safe")
        .post("/a", async || "safe");
    let sent = apus_testkit::get("/a?b").to(&app);
    assert_eq!(sent.status, 301);
    assert_eq!(sent.field("location"), Some("https://example.com/a?b"));
    assert_eq!(apus_testkit::ask("POST", "/a").to(&app).status, 308);
    assert_eq!(
        apus_testkit::get("/a")
            .tls(&["example.com"])
            .to(&app)
            .text(),
        "safe"
    );
    let behind = apus_testkit::get("/a").with("x-forwarded-proto", "https");
    assert_eq!(behind.to(&app).text(), "safe");
    let elsewhere = ForceHttps {
        port: 8443,
        ..ForceHttps::default()
    };
    let sent = apus_testkit::get("/").to(&Routes::new().layer(elsewhere));
    assert_eq!(sent.field("location"), Some("https://example.com:8443/"));
}
