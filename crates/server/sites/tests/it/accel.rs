//! Internal redirects of applications, internal locations, intercepted errors.

use apus_files::Files;
use apus_http::{
    Body, HeaderValue, Request, Response, ResponseFuture, StatusCode, header, service_fn,
};
use apus_sites::{AccelSettings, ErrorPage, Location, LocationSettings, Site, Sites};

use apus_testkit::{Reply, get};

/// An application whose query sets the status and the fields of its response.
fn application() -> impl apus_http::ServiceFactory + 'static {
    || {
        service_fn(|request: Request| {
            let query = request.query().unwrap_or("").to_owned();
            let mut response = Response::text(StatusCode::OK, "of the application");
            for line in query.split('&') {
                let Some((name, value)) = line.split_once('=') else {
                    continue;
                };
                match name {
                    "status" => response.set_status(value.parse().unwrap()),
                    name => response.headers_mut().try_insert(name, value).unwrap(),
                }
            }
            ResponseFuture::from(response)
        })
    }
}

struct Set {
    folder: tempfile::TempDir,
    sites: Sites,
}

fn set(settings: LocationSettings) -> Set {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("page.html"), "of the page").unwrap();
    let app = Location::service("/app".parse().unwrap(), "app", application());
    let plain = Location::service("/plain".parse().unwrap(), "plain", application());
    let files = Files::new(folder.path()).strip_prefix("/protected/");
    let protected = Location::files("/protected/".parse().unwrap(), files).internal();
    let site = Site::new("a")
        .location(app.settings(settings))
        .location(plain)
        .location(protected);
    Set {
        folder,
        sites: Sites::new().site(site).unwrap(),
    }
}

impl Set {
    fn get(&self, target: &str) -> Reply {
        get(target).to(&self.sites)
    }
}

fn accel() -> LocationSettings {
    LocationSettings::new().accel(AccelSettings {
        files: vec![("/srv/files/".into(), "/protected/".into())],
    })
}

#[test]
fn an_application_can_redirect_to_a_file() {
    let set = set(accel());
    for target in [
        "/app?x-accel-redirect=/protected/page.html",
        "/app?x-accel-redirect=/protected/%70age.html?query",
        "/app?x-sendfile=/srv/files/page.html",
    ] {
        let reply = set.get(target);
        assert_eq!(
            (reply.status, reply.text()),
            (200, "of the page"),
            "{target}"
        );
        assert_eq!(reply.field("x-accel-redirect"), None);
        assert_eq!(reply.field("x-sendfile"), None);
    }
}

#[test]
fn some_fields_are_from_the_application_and_the_others_from_the_file() {
    let set = set(accel());
    let reply = set.get(
        "/app?x-accel-redirect=/protected/page.html&content-type=text/x&content-disposition=attachment&set-cookie=a&x-other=1",
    );
    assert_eq!(reply.field("content-type"), Some("text/x"));
    assert_eq!(reply.field("content-disposition"), Some("attachment"));
    assert_eq!(reply.field("set-cookie"), Some("a"));
    assert_eq!(reply.field("x-other"), None);
    assert!(reply.field("etag").is_some());
}

#[test]
fn ranges_and_conditions_of_the_client_apply_to_the_file() {
    let set = set(accel());
    let request = || get("/app?x-accel-redirect=/protected/page.html");
    let part = request().with("range", "bytes=3-5").to(&set.sites);
    assert_eq!((part.status, part.text()), (206, "the"));
    let whole = request().to(&set.sites);
    let tag = whole.field("etag").unwrap().to_owned();
    assert_eq!(
        request().with("if-none-match", &tag).to(&set.sites).status,
        304
    );
}

#[test]
fn clients_do_not_reach_internal_locations() {
    let set = set(accel());
    assert_eq!(set.get("/protected/page.html").status, 404);
    assert_eq!(set.get("/protected/").status, 404);
    let spoofed = get("/plain").with("x-accel-redirect", "/protected/page.html");
    assert_eq!(spoofed.to(&set.sites).text(), "of the application");
}

#[test]
fn without_permission_the_response_of_the_application_is_sent() {
    let set = set(accel());
    let reply = set.get("/plain?x-accel-redirect=/protected/page.html");
    assert_eq!(reply.text(), "of the application");
}

#[test]
fn fields_for_the_server_are_not_sent_to_clients() {
    let set = set(accel());
    for location in ["/plain", "/app"] {
        for field in [
            "x-accel-redirect",
            "x-sendfile",
            "X-Sendfile",
            "x-accel-expires",
            "x-accel-buffering",
            "X-Accel-Limit-Rate",
            "x-accel-charset",
            "x-accel-unheard-of",
        ] {
            let reply = set.get(&format!("{location}?{field}=/srv/secret/a&x-other=1"));
            assert_eq!(reply.field(field), None, "{location} {field}");
            if location == "/plain" {
                assert_eq!(reply.field("x-other"), Some("1"), "{field}");
            }
        }
    }
}

#[test]
fn invalid_paths_and_repeated_redirects_are_errors() {
    let set = set(accel());
    for target in [
        "/app?x-accel-redirect=protected/page.html",
        "/app?x-accel-redirect=http://evil.example/",
        "/app?x-sendfile=/etc/passwd",
        "/app?x-accel-redirect=/app?x-accel-redirect=/app",
    ] {
        assert_eq!(set.get(target).status, 500, "{target}");
    }
    assert_eq!(set.get("/app?x-accel-redirect=/protected/none").status, 404);
    assert_eq!(set.get("/app?x-sendfile=/srv/files/../x").status, 404);
    drop(set.folder);
}

#[test]
fn intercepted_errors_get_the_page_of_the_site() {
    let page = ErrorPage::Body {
        content_type: HeaderValue::from_static("text/x-page"),
        body: "of the site".into(),
    };
    let settings = LocationSettings::new()
        .error_page(StatusCode::BAD_GATEWAY, page)
        .intercept_errors(true);
    let set = set(settings);
    let reply = set.get("/app?status=502&etag=x&content-language=de");
    assert_eq!((reply.status, reply.text()), (502, "of the site"));
    assert_eq!(reply.field("content-type"), Some("text/x-page"));
    assert_eq!(reply.field("etag"), None);
    // Without an error page for the status, the response of the application is sent.
    assert_eq!(set.get("/app?status=503").text(), "of the application");
    assert_eq!(set.get("/plain?status=502").text(), "of the application");
}

#[test]
fn an_empty_error_of_an_application_stays_empty() {
    let location = Location::service("/".parse().unwrap(), "app", || {
        service_fn(|_| {
            let empty = Body::Bytes(Default::default());
            ResponseFuture::from(
                Response::new(StatusCode::NOT_FOUND)
                    .with_header(&header::ETAG, &HeaderValue::from_static("\"x\"")),
            )
            .map(|mut response| {
                *response.body_mut() = empty;
                response
            })
        })
    });
    let sites = Sites::new()
        .site(Site::new("a").location(location))
        .unwrap();
    let reply = get("/").to(&sites);
    assert_eq!((reply.status, reply.text()), (404, ""));
}
