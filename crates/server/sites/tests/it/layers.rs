//! Layers around a site and its locations: which requests pass them, in which order, and how errors are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apus_conditions::{Definitions, FactStage};
use apus_files::{Files, TryFiles};
use apus_handler::middleware::{Layer, Middleware, Next};
use apus_handler::{Error, IntoResponse};
use apus_http::{Request, Response, ResponseFuture, ServiceFactory, StatusCode};
use apus_layers::{ConcurrentRequests, LimitKey, RateLimit, RequestIds, Timeout};
use apus_sites::{AccelSettings, ErrorPage, FieldChange, Location, LocationSettings, Site, Sites};
use apus_testkit::{Reply, echo, get};

/// Adds its name to a field of the response, so that the innermost layer comes first.
fn mark(name: &'static str) -> impl Middleware<()> {
    Mark(name)
}

struct Mark(&'static str);

impl Middleware<()> for Mark {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let name = self.0;
        next.call(request).map(move |mut response| {
            let _ = response.headers_mut().try_append("x-layers", name);
            response
        })
    }
}

/// Lets requests with a field through, after it has waited.
struct Gate;

impl Middleware<()> for Gate {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        ResponseFuture::later(async move {
            tokio::task::yield_now().await;
            if request.headers().contains("x-key") {
                next.run(request).await
            } else {
                rendering.apply(Error::forbidden("no key").into_response())
            }
        })
    }
}

fn location(pattern: &str, name: &'static str) -> Location {
    Location::service(pattern.parse().unwrap(), name, echo(name))
}

fn settings() -> LocationSettings {
    LocationSettings::new()
}

fn serve(site: Site) -> Sites {
    Sites::new().site(site).unwrap()
}

fn layers(sites: &Sites, path: &str) -> Vec<String> {
    let reply = get(path).to(sites);
    let marks = reply.headers.get_all("x-layers");
    marks
        .map(|mark| String::from_utf8(mark.to_vec()).unwrap())
        .collect()
}

#[test]
fn layers_of_the_site_are_around_those_of_a_location() {
    let site = Site::new("a")
        .settings(settings().layer(mark("outer")).layer(mark("inner")))
        .location(location("/", "all"))
        .location(location("/a/", "a").settings(settings().layer(mark("own"))))
        .location(
            location("/b/", "b").settings(settings().without_layers_of_site().layer(mark("only"))),
        );
    let sites = serve(site);
    assert_eq!(layers(&sites, "/"), ["inner", "outer"]);
    assert_eq!(layers(&sites, "/a/"), ["own", "inner", "outer"]);
    assert_eq!(layers(&sites, "/b/"), ["only"]);
}

#[test]
fn requests_without_a_location_pass_the_layers_of_the_site() {
    let site = Site::new("a")
        .settings(settings().layer(mark("site")))
        .location(location("/a/", "a"));
    let sites = serve(site);
    assert_eq!(get("/").to(&sites).status, 404);
    assert_eq!(layers(&sites, "/"), ["site"]);
}

#[test]
fn a_request_that_try_files_redirects_passes_each_layer_once() {
    let folder = tempfile::tempdir().unwrap();
    let shared = Layer::new(mark("shared"));
    let files = Files::new(folder.path()).try_files(TryFiles::parse(["$uri", "/app"]).unwrap());
    let with = |own: &'static str| settings().shared_layer(shared.clone()).layer(mark(own));
    let site = Site::new("a")
        .location(Location::files("/".parse().unwrap(), files).settings(with("files")))
        .location(location("/app", "app").settings(with("app")));
    let sites = serve(site);
    assert_eq!(get("/none").to(&sites).text(), "app /app");
    assert_eq!(layers(&sites, "/none"), ["app", "files", "shared"]);
    assert_eq!(layers(&sites, "/app"), ["app", "shared"]);
}

#[test]
fn a_redirect_loop_behind_layers_ends_with_500() {
    let folder = tempfile::tempdir().unwrap();
    let files =
        |to: &str| Files::new(folder.path()).try_files(TryFiles::parse(["$uri", to]).unwrap());
    let site = Site::new("a")
        .settings(settings().layer(mark("site")))
        .location(Location::files("/".parse().unwrap(), files("/b/x")))
        .location(Location::files("/b/".parse().unwrap(), files("/x")));
    assert_eq!(get("/").to(&serve(site)).status, 500);
}

#[test]
fn errors_of_a_layer_get_the_pages_and_fields_of_the_location() {
    let page = |text: &'static str| ErrorPage::Body {
        content_type: apus_http::HeaderValue::from_static("text/plain"),
        body: text.into(),
    };
    let own = settings()
        .layer(mark("outer"))
        .layer(Gate)
        .response_field(FieldChange::set("x-path", "$uri").unwrap());
    let site = Site::new("a")
        .location(location("/plain/", "plain").settings(own.clone()))
        .location(
            location("/page/", "page")
                .settings(own.error_page(StatusCode::FORBIDDEN, page("the page"))),
        );
    let sites = serve(site);
    let plain = get("/plain/a").to(&sites);
    assert_eq!(
        (plain.status, plain.field("x-path")),
        (403, Some("/plain/a"))
    );
    assert!(plain.text().contains("no key"), "{}", plain.text());
    assert_eq!(plain.field("x-layers"), Some("outer"));
    let page = get("/page/a").to(&sites);
    assert_eq!(page.field("x-layers"), Some("outer"));
    assert_eq!((page.status, page.text()), (403, "the page"));
    assert_eq!(page.field("x-path"), Some("/page/a"));
    assert_eq!(
        get("/page/a").with("x-key", "1").to(&sites).text(),
        "page /page/a"
    );
}

#[test]
fn an_error_page_of_the_site_is_sent_although_a_layer_refuses_its_path() {
    let site = Site::new("a")
        .settings(
            settings()
                .layer(Gate)
                .error_page(StatusCode::FORBIDDEN, ErrorPage::Path("/403".into())),
        )
        .location(location("/", "all"));
    let reply = get("/secret").to(&serve(site));
    assert_eq!((reply.status, reply.text()), (403, "all /403"));
}

/// An application that redirects internally to another path.
fn redirecting() -> impl ServiceFactory {
    || {
        apus_http::service_fn(|request| {
            let mut response = Response::new(StatusCode::OK);
            let id = request.headers().get_str("x-request-id").unwrap_or("none");
            let _ = response.headers_mut().try_insert("set-cookie", id);
            let _ = response
                .headers_mut()
                .try_insert("x-accel-redirect", "/inner/a");
            response.into()
        })
    }
}

#[test]
fn an_internal_redirect_of_an_application_passes_the_layers_and_keeps_the_request_id() {
    let accel = settings().accel(AccelSettings::default());
    let application = Location::service("/".parse().unwrap(), "app", redirecting());
    let site = Site::new("a")
        .settings(settings().layer(RequestIds::new()).layer(mark("site")))
        .location(application.settings(accel))
        .location(location("/inner/", "inner").internal());
    let sites = serve(site);
    let reply = get("/").to(&sites);
    assert_eq!(reply.text(), "inner /inner/a");
    assert_eq!(reply.headers.get_all("x-layers").count(), 1);
    let id = reply.field("x-request-id").unwrap();
    assert_eq!((reply.field("set-cookie"), id.len()), (Some(id), 32));
}

#[test]
fn a_layer_that_times_out_drops_the_inner_service_call() {
    struct OnDrop(Arc<AtomicUsize>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = dropped.clone();
    let never = move || {
        let counter = counter.clone();
        apus_http::service_fn(move |_| {
            let guard = OnDrop(counter.clone());
            ResponseFuture::later(async move {
                let _guard = guard;
                std::future::pending().await
            })
        })
    };
    let site = Site::new("a")
        .settings(settings().layer(Timeout::new(Duration::from_millis(1))))
        .location(Location::service("/".parse().unwrap(), "never", never));
    assert_eq!(get("/").to(&serve(site)).status, 503);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

/// A limit of so many requests in an hour.
fn limit(name: &str, requests: u32) -> RateLimit {
    RateLimit::per_hour(requests)
        .name(name)
        .by_key(LimitKey::all())
}

/// The names of the limits whose fields a response has, the innermost first.
fn limits(reply: &Reply) -> Vec<String> {
    let policies = reply.headers.get_all("ratelimit-policy");
    policies
        .map(|policy| {
            String::from_utf8_lossy(policy)
                .split('"')
                .nth(1)
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[test]
fn limits_between_other_layers_count_each_request_once_and_write_their_fields() {
    let handle = limit("outer", 3);
    let site = Site::new("a")
        .settings(settings().layer(handle.clone()).layer(mark("site")))
        .location(location("/", "all").settings(settings().layer(limit("inner", 2))));
    let sites = serve(site);
    for (status, expected) in [
        (200, &["inner", "outer"][..]),
        (200, &["inner", "outer"]),
        (429, &["inner", "outer"]),
        (429, &["outer"]),
    ] {
        let reply = get("/").to(&sites);
        assert_eq!(reply.status, status);
        assert_eq!(limits(&reply), expected);
        // Whoever refuses a request is behind the layers further out.
        let has_mark = reply.headers.contains("x-layers");
        assert_eq!(has_mark, expected.len() == 2);
    }
    let counts = handle.handle().counts();
    assert_eq!((counts.allowed, counts.refused), (3, 1));
}

#[test]
fn a_limit_counts_a_request_that_try_files_redirects_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path()).try_files(TryFiles::parse(["$uri", "/app"]).unwrap());
    let shared = Layer::new(limit("shared", 2));
    let site = Site::new("a")
        .settings(settings().shared_layer(shared))
        .location(Location::files("/".parse().unwrap(), files))
        .location(location("/app", "app").settings(settings().layer(limit("app", 9))));
    let sites = serve(site);
    for expected in [200, 200, 429] {
        let reply = get("/none").to(&sites);
        assert_eq!(reply.status, expected);
        let names = limits(&reply);
        assert_eq!(names.last().map(String::as_str), Some("shared"));
        assert_eq!(names.len(), if expected == 200 { 2 } else { 1 });
    }
}

#[test]
fn a_limit_changes_the_response_to_a_panic_as_any_other() {
    let later = || {
        apus_http::service_fn(|_| {
            ResponseFuture::later(async {
                tokio::task::yield_now().await;
                panic!("later");
            })
        })
    };
    let failed = Definitions::default().compile("status == 500", FactStage::Response);
    let failed = failed.unwrap();
    let failures = limit("failures", 2).count_responses(failed);
    let site = Site::new("a")
        .settings(settings().layer(failures))
        .location(Location::service("/".parse().unwrap(), "now", || {
            apus_http::service_fn(|_| -> ResponseFuture { panic!("now") })
        }))
        .location(Location::service("/later".parse().unwrap(), "later", later));
    let sites = serve(site);
    for (path, expected) in [("/", 500), ("/later", 500), ("/", 429)] {
        let reply = get(path).to(&sites);
        assert_eq!(reply.status, expected, "{path}");
        assert_eq!(limits(&reply), ["failures"], "{path}");
    }
}

#[test]
fn a_request_that_a_limit_holds_passes_the_layers_behind_it() {
    let pause = Duration::from_millis(20);
    let slow = RateLimit::new(1, pause)
        .by_key(LimitKey::all())
        .delay(100 * pause);
    let site = Site::new("a")
        .settings(settings().layer(slow).layer(limit("next", 2)))
        .location(location("/", "all").settings(settings().layer(mark("own"))));
    let sites = serve(site);
    for expected in [200, 200, 429] {
        let reply = get("/").to(&sites);
        assert_eq!(reply.status, expected);
        assert_eq!(limits(&reply), ["next", "default"]);
    }
}

#[test]
fn a_place_of_concurrent_requests_is_free_when_the_response_was_dropped() {
    let at_once = ConcurrentRequests::new(1).by_key(LimitKey::all());
    let site = Site::new("a")
        .settings(settings().layer(at_once))
        .location(location("/", "all"));
    let sites = serve(site);
    for _ in 0..3 {
        let reply = get("/").to(&sites);
        assert_eq!(reply.status, 200);
        assert_eq!(limits(&reply), ["default"]);
    }
}

#[test]
fn a_refusal_of_a_limit_has_the_page_of_the_site() {
    let page = ErrorPage::Body {
        content_type: apus_http::HeaderValue::from_static("text/plain"),
        body: "slow down".into(),
    };
    let site = Site::new("a")
        .settings(
            settings()
                .layer(limit("pages", 1))
                .error_page(StatusCode::TOO_MANY_REQUESTS, page),
        )
        .location(location("/", "all"));
    let sites = serve(site);
    assert_eq!(get("/").to(&sites).status, 200);
    let reply = get("/").to(&sites);
    assert_eq!((reply.status, reply.text()), (429, "slow down"));
    assert!(reply.field("retry-after").is_some());
    assert_eq!(limits(&reply), ["pages"]);
}
