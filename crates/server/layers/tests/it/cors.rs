//! `Cors`: cross-origin resource sharing (Fetch standard, section 3.2).

use std::time::Duration;

use apus_http::{HeaderName, Method, StatusCode};
use apus_layers::{Cors, RequestIds};
use apus_testkit::LocalClient;

use crate::harness::{Routes, get, head, request};

const SHOP: &str = "Origin: https://shop.example";

fn app(cors: Cors) -> Routes {
    let options = async || ([("allow", "GET")], StatusCode::NO_CONTENT);
    Routes::new()
        .layer(cors)
        .get("/", async || "for the shop")
        .route(Method::OPTIONS, "/", options)
}

fn shop() -> Cors {
    Cors::new().origin("https://shop.example")
}

#[test]
fn only_allowed_origins_can_read() {
    let client = LocalClient::of(&app(shop().origin("HTTP://Other.example:80/")));
    for (origin, allowed) in [
        ("https://shop.example", true),
        ("http://other.example", true),
        ("http://shop.example", false),
        ("https://shop.example:444", false),
        ("https://evil-shop.example", false),
        ("https://shop.example.evil", false),
        ("https://sub.shop.example", false),
        ("null", false),
        ("", false),
    ] {
        let reply = client.send(head("GET", "/", &[&format!("Origin: {origin}")]));
        assert_eq!((reply.status, reply.text()), (200, "for the shop"));
        let allowed_origin = reply.field("access-control-allow-origin");
        assert_eq!(allowed_origin, allowed.then_some(origin), "{origin}");
        assert_eq!(reply.members("vary"), ["origin"], "{origin}");
        assert_eq!(reply.field("access-control-allow-credentials"), None);
    }
    let reply = client.send(head("GET", "/", &[]));
    assert_eq!(reply.members("vary"), ["origin"], "a cache must know");
}

#[test]
fn a_function_may_accept_origins() {
    let cors = Cors::new().origins_matching(|origin| {
        origin.starts_with("https://") && origin.ends_with(".shop.example")
    });
    let client = LocalClient::of(&app(cors));
    for (origin, allowed) in [
        ("https://a.shop.example", true),
        ("http://a.shop.example", false),
        ("https://shop.example.evil", false),
    ] {
        let reply = client.send(head("GET", "/", &[&format!("Origin: {origin}")]));
        let allowed_origin = reply.field("access-control-allow-origin");
        assert_eq!(allowed_origin, allowed.then_some(origin), "{origin}");
    }
}

#[test]
fn credentials_are_allowed_only_for_listed_origins() {
    let reply = get(app(shop().credentials()), "/", &[SHOP]);
    let allowed_origin = reply.field("access-control-allow-origin");
    assert_eq!(allowed_origin, Some("https://shop.example"));
    let credentials = reply.field("access-control-allow-credentials");
    assert_eq!(credentials, Some("true"));
    let reply = get(
        app(shop().credentials()),
        "/",
        &["Origin: https://evil.example"],
    );
    assert_eq!(reply.field("access-control-allow-credentials"), None);
}

#[test]
fn any_origin_gets_the_same_response() {
    let public = || {
        let cors = Cors::any_origin().exposed_headers([HeaderName::from_static("x-total")]);
        Routes::new().layer(cors).get("/", async || "public")
    };
    for lines in [&[][..], &[SHOP], &["Origin: null"]] {
        let reply = get(public(), "/", lines);
        assert_eq!(reply.field("access-control-allow-origin"), Some("*"));
        assert_eq!(reply.field("access-control-allow-credentials"), None);
        assert_eq!(
            reply.field("access-control-expose-headers"),
            Some("x-total")
        );
        assert_eq!(reply.field("vary"), None);
    }
}

#[test]
fn preflight_requests_do_not_reach_routes() {
    let cors = shop()
        .credentials()
        .methods([Method::GET, Method::PUT])
        .request_headers([HeaderName::from_static("x-token")])
        .max_age(Duration::from_secs(600));
    let client = LocalClient::of(&app(cors));
    let preflight = [
        SHOP,
        "Access-Control-Request-Method: PUT",
        "Access-Control-Request-Headers: x-token, x-other",
    ];
    // This includes paths without a route, since scripts must be able to read the 404 response.
    for path in ["/", "/nothing"] {
        let reply = client.send(head("OPTIONS", path, &preflight));
        assert_eq!(reply.status, 204);
        for (name, value) in [
            ("access-control-allow-origin", "https://shop.example"),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-methods", "GET, PUT"),
            ("access-control-allow-headers", "x-token"),
            ("access-control-max-age", "600"),
        ] {
            assert_eq!(reply.field(name), Some(value), "{name}");
        }
        let vary = [
            "origin",
            "access-control-request-method",
            "access-control-request-headers",
        ];
        assert_eq!(reply.members("vary"), vary);
    }
    let evil = ["Origin: https://evil.example", preflight[1], preflight[2]];
    let reply = client.send(head("OPTIONS", "/", &evil));
    assert_eq!(reply.status, 403);
    assert_eq!(reply.field("access-control-allow-origin"), None);
    assert_eq!(reply.field("access-control-allow-methods"), None);
    // This OPTIONS request is not a preflight request.
    let reply = client.send(head("OPTIONS", "/", &[SHOP]));
    assert_eq!(reply.status, 204);
    assert!(reply.members("allow").contains(&"get".to_owned()));
    let allowed_origin = reply.field("access-control-allow-origin");
    assert_eq!(allowed_origin, Some("https://shop.example"));
}

#[test]
fn any_requested_field_can_be_allowed() {
    let app = || app(shop().credentials().any_request_header());
    let lines = [
        SHOP,
        "Access-Control-Request-Method: GET",
        "Access-Control-Request-Headers: authorization,x-a",
    ];
    let reply = request(app(), head("OPTIONS", "/", &lines));
    let allowed = reply.field("access-control-allow-headers");
    assert_eq!(allowed, Some("authorization,x-a"));
    let reply = request(app(), head("OPTIONS", "/", &lines[..2]));
    assert_eq!(reply.field("access-control-allow-headers"), None);
}

#[test]
fn errors_of_inner_layers_have_cors_fields() {
    let app = Routes::new()
        .layer(shop())
        .layer(RequestIds::new())
        .get("/", async || StatusCode::IM_A_TEAPOT);
    let client = LocalClient::of(&app);
    for (path, status) in [("/", 418), ("/nothing", 404)] {
        let reply = client.send(head("GET", path, &[SHOP]));
        assert_eq!(reply.status, status);
        let allowed_origin = reply.field("access-control-allow-origin");
        assert_eq!(allowed_origin, Some("https://shop.example"));
    }
}
