//! The selection of the site and the location of a request, and the effects of their settings.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use apus_files::{Files, RewriteUri, TryFiles};
use apus_http::trace::{StepKind, Trace};
use apus_http::{Body, CacheBypass, HeaderValue, Request, Response, ServiceFactory, StatusCode};
use apus_sites::{
    ErrorPage, FieldChange, ForceHttps, Hsts, Location, LocationSettings, Observer, OnCompletion,
    Preset, ReturnHandler, Site, Sites, Template, TryFilesTemplate, WorkerObserver,
};

use apus_testkit::{Reply, ask, block_on, echo, get};

fn location(pattern: &str, name: &'static str) -> Location {
    Location::service(pattern.parse().unwrap(), name, echo(name))
}

pub(crate) fn site(name: &'static str, server_names: &[&str]) -> Site {
    let site = Site::new(name).location(location("/", name));
    server_names
        .iter()
        .fold(site, |site, name| site.server_name(name.parse().unwrap()))
}

fn respond(pattern: &str, handler: ReturnHandler) -> Location {
    Location::respond(pattern.parse().unwrap(), handler)
}

#[test]
fn the_host_selects_the_site() {
    let sites = Sites::new()
        .site(site("exact", &["example.com"]))
        .unwrap()
        .site(site("wild", &["*.example.com"]))
        .unwrap()
        .fallback(site("rest", &[]))
        .unwrap();
    let service = sites.service();
    for (host, name) in [
        ("example.com", "exact /x"),
        ("EXAMPLE.com.", "exact /x"),
        ("example.com:8080", "exact /x"),
        ("a.b.example.com", "wild /x"),
        ("example.org", "rest /x"),
        ("[::1]:80", "rest /x"),
    ] {
        assert_eq!(
            get("/x").with("host", host).of(&service).text(),
            name,
            "{host}"
        );
    }
    let absolute = get("http://a.example.com/x").with("host", "example.com");
    assert_eq!(absolute.of(&service).text(), "wild /x");
}

#[test]
fn the_first_site_serves_unknown_hosts_without_a_fallback() {
    let sites = Sites::new()
        .site(site("first", &["a.example"]))
        .unwrap()
        .site(site("second", &["b.example"]))
        .unwrap();
    assert_eq!(
        get("/").with("host", "c.example").to(&sites).text(),
        "first /"
    );
    assert_eq!(get("/").to(&Sites::new()).status, 404);
}

#[test]
fn two_sites_cannot_have_one_name() {
    let taken = Sites::new()
        .site(site("one", &["example.com"]))
        .unwrap()
        .site(site("two", &["Example.com"]))
        .unwrap_err();
    assert_eq!((&*taken.owner, &*taken.other), ("one", "two"));
}

#[test]
fn listeners_with_the_same_sites_share_the_services_of_a_worker() {
    let sites = Sites::new().site(site("a", &[])).unwrap();
    let (one, two) = (sites.service(), sites.clone().service());
    assert!(std::ptr::addr_eq(Rc::as_ptr(&one), Rc::as_ptr(&two)));
    let other = sites.site(site("b", &[])).unwrap().service();
    assert!(!std::ptr::addr_eq(Rc::as_ptr(&one), Rc::as_ptr(&other)));
}

#[test]
fn a_host_that_the_certificate_is_not_for_is_misdirected() {
    let sites = Sites::new().site(site("a", &[])).unwrap();
    let names = &["example.com", "*.example.com", "192.0.2.1"];
    for (host, status) in [
        ("example.com", 200),
        ("Www.Example.com:443", 200),
        ("192.0.2.1", 200),
        ("example.org", 421),
        ("a.b.example.com", 421),
    ] {
        let reply = get("/").with("host", host).tls(names).to(&sites);
        assert_eq!(reply.status, status, "{host}");
    }
    assert_eq!(get("/").with("host", "example.org").to(&sites).status, 200);
}

#[test]
fn an_encoded_slash_needs_a_location_that_allows_it_and_is_matched_as_a_slash() {
    let allowing = location("/", "allowing").allow_encoded_slash();
    let site = Site::new("a")
        .location(allowing)
        .location(location("/admin/", "admin"));
    let service = Sites::new().site(site).unwrap().service();
    assert_eq!(get("/a%2Fb").of(&service).text(), "allowing /a%2Fb");
    for path in ["/admin%2fx", "/x%2F..%2Fadmin%2F"] {
        assert_eq!(get(path).of(&service).status, 400, "{path}");
    }
}

#[test]
fn locations_match_the_decoded_and_normalised_path() {
    let site = Site::new("a")
        .location(location("/", "rest"))
        .location(location("= /exact", "exact"))
        .location(location("/admin/", "admin"))
        .location(location("^~ /raw/", "raw"))
        .location(location("~ \\.php$", "php"));
    let service = site.service();
    for (path, name) in [
        ("/exact", "exact"),
        ("/exact/", "rest"),
        ("/%61dmin/x", "admin"),
        ("//admin/x", "admin"),
        ("/x/../admin/x", "admin"),
        ("/x/%2e%2e/admin/x", "admin"),
        ("/admin", "rest"),
        ("/a.php", "php"),
        ("/a%2ephp", "php"),
        ("/raw/a.php", "raw"),
        ("/a.php/b", "rest"),
    ] {
        let reply = get(path).of(&service);
        assert_eq!(reply.text().split(' ').next(), Some(name), "{path}");
    }
    for path in ["/a%2fb", "/%00", "/../x", "/%zz", "/a%0a.php"] {
        assert_eq!(get(path).of(&service).status, 400, "{path}");
    }
}

#[test]
fn a_path_without_a_location_is_not_found() {
    let site = Site::new("a").location(location("/b/", "b"));
    assert_eq!(get("/c").to(&site).status, 404);
    assert_eq!(ask("OPTIONS", "*").to(&site).status, 204);
    assert_eq!(ask("CONNECT", "example.com:443").to(&site).status, 501);
}

#[test]
fn return_gives_status_redirect_or_text() {
    let site = Site::new("a")
        .location(respond("= /gone", ReturnHandler::status(StatusCode::GONE)))
        .location(respond(
            "/old/",
            ReturnHandler::redirect(
                StatusCode::MOVED_PERMANENTLY,
                "$scheme://$host/new$request_uri",
            )
            .unwrap(),
        ))
        .location(respond(
            "~ ^/user/(.+)$",
            ReturnHandler::redirect(StatusCode::FOUND, "/u?name=$1").unwrap(),
        ))
        .location(respond(
            "= /ip",
            ReturnHandler::text(
                StatusCode::OK,
                HeaderValue::from_static("text/plain"),
                "$remote_addr $server_port $request_method $http_x_y$is_args$args\n",
            )
            .unwrap(),
        ));
    let service = site.service();
    assert_eq!(get("/gone").of(&service).status, 410);
    let reply = get("/old/x?y=1")
        .with("host", "Example.com:81")
        .of(&service);
    assert_eq!(reply.status, 301);
    assert_eq!(
        reply.field("location"),
        Some("http://example.com/new/old/x?y=1")
    );
    let reply = get("/user/a%20b%3f%26").of(&service);
    assert_eq!(reply.field("location"), Some("/u?name=a%20b%3F%26"));
    let reply = get("/ip?q").with("x-y", "z").of(&service);
    assert_eq!(reply.text(), "192.0.2.7 80 GET z?q\n");
    assert!(ReturnHandler::redirect(StatusCode::OK, "/").is_err());
    assert!(
        ReturnHandler::text(StatusCode::NO_CONTENT, HeaderValue::from_static("a/b"), "x").is_err()
    );
}

#[test]
fn force_https_keeps_host_target_and_method_and_names_the_port() {
    let site = site("a", &[]).force_https(ForceHttps {
        port: 8443,
        ..ForceHttps::default()
    });
    let service = site.service();
    let reply = get("/x?y").with("host", "example.com:8080").of(&service);
    assert_eq!(reply.status, 301);
    assert_eq!(
        reply.field("location"),
        Some("https://example.com:8443/x?y")
    );
    assert_eq!(ask("POST", "/x").of(&service).status, 308);
    assert_eq!(get("/x").tls(&["example.com"]).of(&service).status, 200);
    let default = super::routing::site("a", &[]).force_https(ForceHttps::default());
    let reply = get("/x").with("host", "[::1]:80").to(&default);
    assert_eq!(reply.field("location"), Some("https://[::1]/x"));
}

#[test]
fn hsts_is_sent_over_tls_only() {
    let site = site("a", &[]).hsts(Hsts {
        max_age: 60,
        include_subdomains: true,
        preload: true,
    });
    let service = site.service();
    assert_eq!(
        get("/").of(&service).field("strict-transport-security"),
        None
    );
    assert_eq!(
        get("/")
            .tls(&["example.com"])
            .of(&service)
            .field("strict-transport-security"),
        Some("max-age=60; includeSubDomains; preload")
    );
}

#[test]
fn fields_of_requests_and_responses_are_set_added_and_removed() {
    let show = || {
        apus_http::service_fn(|request: Request| {
            let mut response = Response::text(StatusCode::OK, "");
            for (name, value) in request.headers().iter() {
                let name = format!("seen-{name}");
                response.headers_mut().try_append(name, value).unwrap();
            }
            response
                .headers_mut()
                .try_append("x-inner", "secret")
                .unwrap();
            response.into()
        })
    };
    let change = |made: Result<FieldChange, _>| made.unwrap();
    let site = Site::new("a")
        .settings(
            LocationSettings::new()
                .request_field(change(FieldChange::set("x-real-ip", "$remote_addr")))
                .request_field(change(FieldChange::remove("cookie")))
                .response_field(change(FieldChange::set("x-site", "1")))
                .response_field(change(FieldChange::remove("x-inner"))),
        )
        .location(
            Location::service("/".parse().unwrap(), "show", show).settings(
                LocationSettings::new()
                    .request_field(change(FieldChange::add("x-more", "$host")))
                    .request_field(change(FieldChange::set("x-empty", "$http_nope")))
                    .response_field(change(FieldChange::add("x-uri", "$uri"))),
            ),
        );
    let reply = get("/a%20b")
        .with("cookie", "a=b")
        .with("x-real-ip", "10.0.0.1")
        .with("x-empty", "forged")
        .to(&site);
    assert_eq!(reply.field("seen-x-real-ip"), Some("192.0.2.7"));
    assert_eq!(reply.field("seen-x-more"), Some("example.com"));
    for name in ["seen-cookie", "seen-x-empty", "x-inner"] {
        assert_eq!(reply.field(name), None, "{name}");
    }
    assert_eq!(reply.field("x-site"), Some("1"));
    assert_eq!(reply.field("x-uri"), Some("/a b"));
}

#[test]
fn fields_of_the_connection_cannot_be_changed() {
    for name in [
        "Content-Length",
        "transfer-encoding",
        "connection",
        "a b",
        "",
    ] {
        assert!(FieldChange::remove(name).is_err(), "{name}");
    }
    assert!(FieldChange::set("x", "a\nb").is_err());
    assert!(FieldChange::set("x", "$nope").is_err());
}

#[test]
fn a_body_that_is_too_large_is_refused_at_once_or_cut_off() {
    let read = || {
        apus_http::service_fn(|mut request: Request| {
            apus_http::ResponseFuture::later(async move {
                let mut body = request.take_body();
                while let Some(frame) = body.frame().await {
                    if frame.is_err() {
                        return Response::text(StatusCode::OK, "cut off");
                    }
                }
                Response::text(StatusCode::OK, "read")
            })
        })
    };
    let site = Site::new("a")
        .settings(LocationSettings::new().body_limit(4))
        .location(Location::service("/".parse().unwrap(), "read", read))
        .location(
            Location::service("/large/".parse().unwrap(), "read", read)
                .settings(LocationSettings::new().body_limit(8)),
        );
    let service = site.service();
    assert_eq!(ask("POST", "/").body("1234").of(&service).text(), "read");
    assert_eq!(ask("POST", "/").body("12345").of(&service).status, 413);
    assert_eq!(
        ask("POST", "/large/").body("12345").of(&service).text(),
        "read"
    );
    let stream = Body::stream(apus_testkit::PieceStream::of(&["123", "456"]));
    assert_eq!(ask("POST", "/").body(stream).of(&service).text(), "cut off");
}

#[test]
fn error_pages_are_bodies_files_or_paths_of_the_site() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("503.html");
    std::fs::write(&file, "<p>Back soon").unwrap();
    let site = Site::new("a")
        .location(respond(
            "= /403",
            ReturnHandler::status(StatusCode::FORBIDDEN),
        ))
        .location(respond(
            "= /503",
            ReturnHandler::status(StatusCode::SERVICE_UNAVAILABLE),
        ))
        .location(respond(
            "= /500",
            ReturnHandler::status(StatusCode::INTERNAL_SERVER_ERROR),
        ))
        .location(respond(
            "= /502",
            ReturnHandler::status(StatusCode::BAD_GATEWAY),
        ))
        .location(location("/pages/", "page"))
        .settings(
            LocationSettings::new()
                .error_page(
                    StatusCode::FORBIDDEN,
                    ErrorPage::Body {
                        content_type: HeaderValue::from_static("text/plain"),
                        body: "no entry".into(),
                    },
                )
                .error_page(StatusCode::SERVICE_UNAVAILABLE, ErrorPage::File(file))
                .error_page(
                    StatusCode::NOT_FOUND,
                    ErrorPage::Path("/pages/404?x".into()),
                )
                .error_page(StatusCode::BAD_GATEWAY, ErrorPage::Path("/403".into()))
                .error_page(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    ErrorPage::File(folder.path().join("none.html")),
                ),
        );
    let service = site.service();
    let reply = get("/403").of(&service);
    assert_eq!((reply.status, reply.text()), (403, "no entry"));
    let reply = get("/503").of(&service);
    assert_eq!((reply.status, reply.text()), (503, "<p>Back soon"));
    assert_eq!(
        reply.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    let reply = ask("POST", "/nothing").body("x").of(&service);
    assert_eq!((reply.status, reply.text()), (404, "page /pages/404?x"));
    // An error page that fails is replaced by the default.
    assert_eq!(
        get("/500").of(&service).text(),
        "500 Internal Server Error\n"
    );
    assert_eq!(get("/502").of(&service).text(), "502 Bad Gateway\n");
}

#[test]
fn an_error_with_its_own_body_keeps_it() {
    let fail = || apus_http::service_fn(|_| Response::text(StatusCode::CONFLICT, "taken").into());
    let site = Site::new("a").location(Location::service("/".parse().unwrap(), "fail", fail));
    assert_eq!(get("/").to(&site).text(), "taken");
}

#[test]
fn files_have_each_field_of_their_site_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "a").unwrap();
    let site = Site::new("a")
        .settings(
            LocationSettings::new()
                .response_field(FieldChange::set("x-frame-options", "DENY").unwrap())
                .response_field(FieldChange::add("x-added", "1").unwrap()),
        )
        .force_https(ForceHttps::default())
        .hsts(Hsts::default())
        .location(Location::files(
            "/".parse().unwrap(),
            Files::new(folder.path()),
        ));
    let service = site.service();
    for path in ["/a.txt", "/a.txt", "/missing"] {
        let reply = get(path).tls(&["example.com"]).of(&service);
        for name in ["x-frame-options", "x-added", "strict-transport-security"] {
            assert_eq!(reply.headers.get_all(name).count(), 1, "{path} {name}");
        }
    }
}

#[test]
fn a_trace_lists_the_steps_of_a_request() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "a").unwrap();
    let sites = Sites::new()
        .site(
            Site::new("blog")
                .server_name("example.com".parse().unwrap())
                .location(Location::files(
                    "/".parse().unwrap(),
                    Files::new(folder.path()),
                )),
        )
        .unwrap();
    let trace = Trace::default();
    get("/a.txt").extension(trace.clone()).to(&sites);
    let steps = trace.steps();
    let kinds: Vec<_> = steps.iter().map(|step| step.kind).collect();
    assert_eq!(
        kinds[..4],
        [
            StepKind::Site,
            StepKind::Location,
            StepKind::Handler,
            StepKind::File
        ]
    );
    assert_eq!(steps[0].what, "blog");
    assert_eq!(steps[1].what, "/");
}

#[test]
fn an_observer_gets_the_received_request_and_its_completion() {
    struct Count;
    struct Worker(Rc<Cell<u32>>);
    thread_local! {
        static SEEN: Rc<Cell<u32>> = Rc::default();
    }
    impl Observer for Count {
        fn worker(&self) -> Rc<dyn WorkerObserver> {
            Rc::new(Worker(SEEN.with(Rc::clone)))
        }
    }
    impl WorkerObserver for Worker {
        fn begin(&self, request: &Request) -> Option<OnCompletion> {
            if request.path() == "/quiet" {
                return None;
            }
            let seen = self.0.clone();
            Some(Box::new(move |_| seen.set(seen.get() + 1)))
        }
    }
    let service = site("a", &[]).observer(Arc::new(Count)).service();
    let response = block_on(service.call(get("/quiet").request()).wait());
    assert!(!response.is_observed());
    let mut response = block_on(service.call(get("/").request()).wait());
    response.take_observers().notify(&apus_http::Completion {
        status: StatusCode::OK,
        body_bytes: 0,
        bytes: 0,
        duration: std::time::Duration::ZERO,
        first_byte: None,
        outcome: apus_http::ResponseOutcome::Complete,
        origin: None,
        cache: None,
        fields: None,
    });
    assert_eq!(SEEN.with(|seen| seen.get()), 1);
}

/// Records the status of each request's completion.
#[derive(Clone, Default)]
struct Statuses(Arc<std::sync::Mutex<Vec<u16>>>);

impl Observer for Statuses {
    fn worker(&self) -> Rc<dyn WorkerObserver> {
        Rc::new(self.clone())
    }
}

impl WorkerObserver for Statuses {
    fn begin(&self, _: &Request) -> Option<OnCompletion> {
        let seen = self.0.clone();
        Some(Box::new(move |completion| {
            seen.lock().unwrap().push(completion.status.as_u16());
        }))
    }
}

#[test]
fn a_request_whose_client_disconnects_is_observed() {
    let seen = Statuses::default();
    let factory = || {
        apus_http::service_fn(|request: Request| match request.path() {
            "/panic" => panic!("meant to"),
            "/never" => apus_http::ResponseFuture::later(std::future::pending()),
            _ => Response::new(StatusCode::NO_CONTENT).into(),
        })
    };
    let service = Site::new("a")
        .location(Location::service("/".parse().unwrap(), "test", factory))
        .observer(Arc::new(seen.clone()))
        .service();
    drop(service.call(get("/never").request()));
    assert_eq!(*seen.0.lock().unwrap(), [499]);
    drop(service.call(get("/dropped").request()));
    assert_eq!(*seen.0.lock().unwrap(), [499, 204]);
    let call = std::panic::AssertUnwindSafe(|| service.call(get("/panic").request()));
    assert!(std::panic::catch_unwind(call).is_err());
    assert_eq!(*seen.0.lock().unwrap(), [499, 204, 500]);
}

#[test]
fn a_misdirected_request_is_observed_by_the_fallback_site() {
    let seen = Statuses::default();
    let sites = Sites::new()
        .site(site("a", &["a.example"]))
        .unwrap()
        .fallback(site("b", &[]).observer(Arc::new(seen.clone())))
        .unwrap();
    let refused = get("/").tls(&["other.example"]).to(&sites);
    assert_eq!(refused.status, 421);
    assert_eq!(*seen.0.lock().unwrap(), [421]);
}

#[test]
fn try_files_ends_in_another_location() {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in [("a.txt", "a"), ("index.html", "page")] {
        std::fs::write(folder.path().join(path), content).unwrap();
    }
    let files = |last: &str| {
        let list = TryFiles::parse(["$uri", last]).unwrap();
        Files::new(folder.path()).try_files(list)
    };
    let added = |name: &str| {
        LocationSettings::new()
            .response_field(FieldChange::set("x-in", name).unwrap())
            .request_field(FieldChange::add("x-via", name).unwrap())
    };
    let via = || {
        apus_http::service_fn(|request: Request| {
            let via = request.headers().get_all("x-via").count();
            let target = request.target().path_and_query();
            Response::text(
                StatusCode::OK,
                format!("{} {target} {via}", request.method()),
            )
            .into()
        })
    };
    let location = |pattern: &str, files| {
        Location::files(pattern.parse().unwrap(), files).settings(added(pattern))
    };
    let site = Site::new("a")
        .location(location("/", files("/index.html")))
        .location(location("/app/", files("/front?q=$uri&$args")))
        .location(location("/lost/", files("/lost/none.html")))
        .location(location("/circle/a", files("/circle/b")))
        .location(location("/circle/b", files("/circle/a")))
        .location(
            Location::service("= /front".parse().unwrap(), "front", via).settings(added("front")),
        );
    let page = get("/deep/link").to(&site);
    assert_eq!((page.status, page.text()), (200, "page"));
    let front = ask("POST", "/app/x?y=1").to(&site);
    assert_eq!(front.text(), "POST /front?q=/app/x&y=1 1");
    assert_eq!(front.field("x-in"), Some("front"));
    assert_eq!(ask("POST", "/a.txt").to(&site).status, 405);
    assert_eq!(get("/lost/x").to(&site).status, 404);
    assert_eq!(get("/circle/a").to(&site).status, 500);
}

#[test]
fn the_last_path_of_try_files_has_the_variables_of_rewrites_and_no_value_adds_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let via = || {
        apus_http::service_fn(|request: Request| {
            let text = format!(
                "{} {}",
                request.target().path_and_query(),
                CacheBypass::applies_to(&request)
            );
            Response::text(StatusCode::OK, text).into()
        })
    };
    for (last, target, expected) in [
        (
            "/front?q=$uri&$args",
            "/x%26admin=1?y=1",
            "/front?q=/x%26admin%3D1&y=1 false",
        ),
        (
            "/front?u=$request_uri",
            "/x?a=1&b=2",
            "/front?u=/x%3Fa%3D1%26b%3D2 false",
        ),
        ("/front?h=$host", "/x", "/front?h=example.com false"),
        (
            "/front?l=$http_accept_language",
            "/x",
            "/front?l=a%26b%3Dc true",
        ),
        (
            "/front$is_args$args&q=$uri",
            "/a%26b?c=d",
            "/front?c=d&q=/a%26b false",
        ),
    ] {
        let rewrite = |last: &str| {
            Ok(Arc::new(TryFilesTemplate {
                template: Template::parse(last).unwrap(),
                site: "a".into(),
                root: Box::default(),
            }) as Arc<dyn RewriteUri>)
        };
        let list = TryFiles::parse_with(["/none", last], rewrite).unwrap();
        let files = Files::new(folder.path()).try_files(list);
        let site = Site::new("a")
            .location(Location::files("/".parse().unwrap(), files))
            .location(Location::service("= /front".parse().unwrap(), "front", via));
        let reply = get(target).with("accept-language", "a&b=c").to(&site);
        assert_eq!(reply.text(), expected, "{last}");
    }
}

#[test]
fn an_immediate_response_stays_immediate() {
    let service = Sites::new()
        .site(site("a", &["example.com"]))
        .unwrap()
        .service();
    let future = service.call(get("/").request());
    assert!(matches!(future, apus_http::ResponseFuture::Now(_)));
    let reply: Reply = block_on(async { Reply::read(future.wait().await).await });
    assert_eq!(reply.text(), "a /");
}

#[test]
fn presets_set_nosniff_and_the_cache_control_of_immutable_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("assets")).unwrap();
    for (path, content) in [
        ("index.html", "app"),
        ("assets/x-1a2b.js", "js"),
        ("assets/x-1a2b3c4d.js", "js"),
    ] {
        std::fs::write(folder.path().join(path), content).unwrap();
    }
    let forever = Some("public, max-age=31536000, immutable");
    for (preset, path, status, cache_control) in [
        (Preset::Static, "/", 200, Some("no-cache")),
        (Preset::Static, "/assets/x-1a2b.js", 200, None),
        (Preset::Static, "/deep/link", 404, None),
        (Preset::Static, "/assets/x-1a2b3c4d.js", 200, forever),
        (Preset::Spa, "/assets/x-1a2b.js", 200, Some("no-cache")),
        (Preset::Spa, "/assets/x-1a2b3c4d.js", 200, forever),
        (Preset::Spa, "/deep/link", 200, Some("no-cache")),
        (Preset::Spa, "/assets/old.js", 404, None),
    ] {
        let reply = get(path).to(&Site::of_files("a", preset, folder.path()));
        assert_eq!(reply.status, status, "{preset:?} {path}");
        assert_eq!(
            reply.field("cache-control"),
            cache_control,
            "{preset:?} {path}"
        );
        assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn a_path_that_an_application_may_read_as_that_of_a_closed_location_is_refused() {
    let site = Site::new("a")
        .location(location("/", "open").allow_encoded_slash())
        .location(location("/other/", "other").allow_encoded_slash())
        .location(respond(
            "/closed/",
            ReturnHandler::status(StatusCode::FORBIDDEN),
        ))
        .location(location("/within/", "within").internal());
    let service = Sites::new().site(site).unwrap().service();
    for path in [
        "/closed;x/a",
        "/closed;/a",
        "/;x/closed/a",
        "/closed%3Bx/a",
        "/closed%5Ca",
        "/closed\\a",
        "/other\\..\\closed\\a",
        "/within;x/a",
    ] {
        assert_ne!(get(path).of(&service).status, 200, "{path}");
    }
    for (path, text) in [
        ("/a;b=c/d", "open /a;b=c/d"),
        ("/other/a;b", "other /other/a;b"),
        ("/other;x/a", "open /other;x/a"),
        ("/a/closed;x/", "open /a/closed;x/"),
    ] {
        assert_eq!(get(path).of(&service).text(), text, "{path}");
    }
}

#[test]
fn a_path_without_the_slash_of_a_location_is_redirected_to_the_one_with_it() {
    let site = Site::new("a")
        .location(location("/", "rest"))
        .location(location("/api/", "api").redirect_to_slash())
        .location(location("/a b/", "encoded").redirect_to_slash())
        .location(location("/own/", "own").redirect_to_slash())
        .location(location("= /own", "exact"))
        .location(location("/wide/", "wide").redirect_to_slash())
        .location(location("/wide", "prefix"))
        .location(location("/plain/", "plain"));
    let service = Sites::new().site(site).unwrap().service();
    for (path, redirect) in [
        ("/api", "/api/"),
        ("/api?a=b", "/api/?a=b"),
        ("/api?", "/api/?"),
        ("/x/../api", "/api/"),
        ("/%61pi", "/api/"),
        ("/a%20b", "/a%20b/"),
    ] {
        let reply = get(path).of(&service);
        assert_eq!(
            (reply.status, reply.field("location")),
            (301, Some(redirect)),
            "{path}"
        );
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let reply = ask(method, "/api?a").of(&service);
        assert_eq!(
            (reply.status, reply.field("location")),
            (308, Some("/api/?a")),
            "{method}"
        );
    }
    assert_eq!(ask("HEAD", "/api").of(&service).status, 301);
    for (path, text) in [
        ("/api/", "api /api/"),
        ("/apis", "rest /apis"),
        ("/own", "exact /own"),
        ("/wide", "prefix /wide"),
        ("/plain", "rest /plain"),
        ("/", "rest /"),
    ] {
        assert_eq!(get(path).of(&service).text(), text, "{path}");
    }
}
