//! Layers around a site and its locations: which requests pass them, in which order, and how errors are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus_files::{Files, TryFiles};
use apus_handler::middleware::{Layer, Middleware, Next};
use apus_handler::{Error, IntoResponse};
use apus_http::{Request, Response, ResponseFuture, ServiceFactory, StatusCode};
use apus_layers::{RequestIds, Timeout};
use apus_sites::{AccelSettings, ErrorPage, FieldChange, Location, LocationSettings, Site, Sites};
use apus_testkit::{echo, get};

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
        .settings(settings().layer(Timeout::new(std::time::Duration::from_millis(1))))
        .location(Location::service("/".parse().unwrap(), "never", never));
    assert_eq!(get("/").to(&serve(site)).status, 503);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}
