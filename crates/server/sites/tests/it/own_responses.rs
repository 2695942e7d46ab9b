//! Responses that a site makes before it calls a handler: they have the same fields as the responses of its handlers.

use apus_files::Files;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, IntoResponse};
use apus_http::{HeaderValue, Request, ResponseFuture, ServiceFactory, StatusCode};
use apus_layers::{Cors, RequestIds, SecurityHeaders};
use apus_sites::{
    ErrorPage, FieldChange, ForceHttps, Hsts, Location, LocationSettings, ReturnHandler,
    RewriteFlag, RewriteRule, Site,
};
use apus_testkit::{RequestBuilder, ask, echo, get};

/// Rejects each request.
struct Reject;

impl Middleware<()> for Reject {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        rendering
            .apply(Error::forbidden("rejected").into_response())
            .into()
    }
}

fn settings() -> LocationSettings {
    let field = |name, value| FieldChange::set(name, value).unwrap();
    LocationSettings::new()
        .layer(RequestIds::new())
        .layer(SecurityHeaders::new())
        .layer(Cors::new().origin("https://a.example"))
        .response_field(field("x-client", "$remote_addr"))
        .response_field(field("x-id", "$request_id"))
        .response_field(field("x-plain", "plain"))
}

fn rule(from: &str, to: &str, flag: RewriteFlag) -> RewriteRule {
    RewriteRule::new(from, to, flag).unwrap()
}

fn location(pattern: &str) -> Location {
    Location::service(pattern.parse().unwrap(), "app", echo("app"))
}

fn site(more: impl FnOnce(LocationSettings) -> LocationSettings) -> Site {
    Site::new("a")
        .settings(more(
            settings()
                .rewrite(rule("^/site-redirect$", "/x", RewriteFlag::Redirect))
                .rewrite(rule(
                    "^/site-permanent$",
                    "https://b.example/",
                    RewriteFlag::Permanent,
                )),
        ))
        .location(
            location("/app/").settings(
                LocationSettings::new()
                    .rewrite(rule("/own-redirect$", "/y", RewriteFlag::Redirect))
                    .body_limit(1),
            ),
        )
        .location(location("/internal/").internal())
        .location(location("/slash/").redirect_to_slash())
        .location(location("/open/").allow_encoded_slash())
        .location(Location::respond(
            "/return".parse().unwrap(),
            ReturnHandler::status(StatusCode::GONE),
        ))
        .location(
            location("/loop/").settings(LocationSettings::new().rewrite(rule(
                "^",
                "/loop/again",
                RewriteFlag::Last,
            ))),
        )
}

fn sent(request: RequestBuilder) -> RequestBuilder {
    request
        .with("host", "a.example")
        .with("origin", "https://a.example")
}

#[test]
fn every_response_of_a_site_has_its_fields_with_variables_and_its_request_id() {
    let site = site(|settings| settings);
    for (request, status) in [
        (get("/app/"), 200),
        (get("/site-redirect"), 302),
        (get("/site-permanent"), 301),
        (get("/app/own-redirect"), 302),
        (get("/none"), 404),
        (get("/internal/x"), 404),
        (get("/app/a%2Fb"), 400),
        (get("/app/%00"), 400),
        (get("/app/../../x"), 400),
        (ask("POST", "/app/").body("two"), 413),
        (get("/return"), 410),
        (get("/loop/"), 500),
        (get("/slash"), 301),
        (ask("POST", "/slash"), 308),
        (get("/open/..;/internal/"), 400),
    ] {
        let reply = sent(request).to(&site);
        assert_eq!(reply.status, status);
        let id = reply.field("x-request-id").unwrap_or_default();
        assert_eq!(id.len(), 32, "{status}: no request id");
        for (name, value) in [
            ("x-id", id),
            ("x-client", "192.0.2.7"),
            ("x-plain", "plain"),
            ("x-content-type-options", "nosniff"),
            ("access-control-allow-origin", "https://a.example"),
        ] {
            assert_eq!(reply.field(name), Some(value), "{status} {name}");
            assert_eq!(reply.headers.get_all(name).count(), 1, "{status} {name}");
        }
    }
}

#[test]
fn a_request_that_leaves_its_location_for_none_gets_the_fields_and_pages_of_the_site() {
    let page = |text: &'static str| ErrorPage::Body {
        content_type: HeaderValue::from_static("text/plain"),
        body: text.into(),
    };
    let own = LocationSettings::new()
        .rewrite(rule("^", "/none", RewriteFlag::Last))
        .response_field(FieldChange::set("x-own", "left").unwrap())
        .error_page(StatusCode::NOT_FOUND, page("of the location"));
    let site = |settings: LocationSettings| {
        Site::new("a")
            .settings(settings.error_page(StatusCode::NOT_FOUND, page("of the site")))
            .location(location("/leave/").settings(own.clone()))
    };
    // With layers of the site, which the request passes, and without.
    for site in [site(settings()), site(LocationSettings::new())] {
        let reply = sent(get("/leave/")).to(&site);
        assert_eq!((reply.status, reply.text()), (404, "of the site"));
        assert_eq!(reply.field("x-own"), None);
    }
}

#[test]
fn a_redirect_to_https_has_the_fields_of_the_site() {
    let site = site(|settings| settings).force_https(ForceHttps::default());
    let reply = sent(get("/app/")).to(&site);
    assert_eq!(reply.status, 301);
    assert_eq!(reply.field("x-id"), reply.field("x-request-id"));
    assert_eq!(reply.field("x-client"), Some("192.0.2.7"));
}

#[test]
fn hsts_is_in_every_response_over_tls_and_in_none_over_clear_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("files")).unwrap();
    std::fs::write(folder.path().join("files/a.txt"), "a").unwrap();
    let own = FieldChange::set("strict-transport-security", "max-age=1").unwrap();
    let with_files = site(|settings| settings)
        .hsts(Hsts::default())
        .location(Location::files(
            "/files/".parse().unwrap(),
            Files::new(folder.path()),
        ))
        .location(location("/own/").settings(LocationSettings::new().response_field(own)))
        .location(location("/rejected/").settings(LocationSettings::new().layer(Reject)));
    let redirecting = with_files.clone().force_https(ForceHttps::default());
    for (site, redirects) in [(with_files, false), (redirecting, true)] {
        let service = site.service();
        for (path, status) in [
            ("/app/", 200),
            ("/files/a.txt", 200),
            ("/files/a.txt", 200),
            ("/files/none", 404),
            ("/own/", 200),
            ("/rejected/", 403),
            ("/site-redirect", 302),
            ("/app/own-redirect", 302),
            ("/slash", 301),
            ("/none", 404),
            ("/internal/x", 404),
            ("/app/%00", 400),
            ("/return", 410),
            ("/loop/", 500),
        ] {
            let name = "strict-transport-security";
            let reply = sent(get(path)).tls(&["a.example"]).of(&service);
            assert_eq!(reply.status, status, "{path}");
            let values: Vec<_> = reply.headers.get_all(name).collect();
            assert_eq!(values, [b"max-age=31536000"], "{path} {redirects}");
            let reply = sent(get(path)).of(&service);
            assert_eq!(reply.status, if redirects { 301 } else { status }, "{path}");
            // A field that the settings name is theirs.
            let value = reply.field(name);
            assert_eq!(value.is_some(), path == "/own/" && !redirects, "{path}");
        }
    }
}

#[test]
fn layers_that_reject_requests_do_not_come_before_rewriting() {
    let site = site(|settings| settings.layer(Reject));
    assert_eq!(sent(get("/app/")).to(&site).status, 403);
    for (path, status) in [
        ("/site-redirect", 302),
        ("/app/own-redirect", 302),
        ("/internal/x", 404),
    ] {
        let reply = sent(get(path)).to(&site);
        assert_eq!(reply.status, status, "{path}");
        assert_eq!(reply.field("x-id"), reply.field("x-request-id"), "{path}");
    }
}

#[test]
fn fields_have_the_groups_of_the_expression_of_their_location() {
    let settings = LocationSettings::new()
        .response_field(FieldChange::set("x-user", "$1").unwrap())
        .request_field(FieldChange::set("x-for", "$1").unwrap());
    let site = Site::new("a").location(
        Location::service("~ ^/u/([a-z]+)$".parse().unwrap(), "app", echo("app"))
            .settings(settings),
    );
    assert_eq!(get("/u/ann").to(&site).field("x-user"), Some("ann"));
}
