//! Responses of the cache in front of a service.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use apus_cache::policy::CacheNamePattern;
use apus_cache::service::{Cache, CacheSettings, CachedService, PurgeAccess};
use apus_cache::store::{DiskSettings, StoreSettings};
use apus_http::{
    Body, BodyError, BodyStream, Frame, Headers, Method, Response, ResponseFuture, Service,
    ServiceFactory, StatusCode, service_fn,
};

use apus_testkit::{Reply, RequestBuilder, ask, block_on, get};

type Responding = dyn Fn(&Headers, usize) -> Response + Send + Sync;

/// An origin that records its requests.
#[derive(Clone)]
struct Origin {
    seen: Arc<Mutex<Vec<(Method, Headers)>>>,
    respond: Arc<Responding>,
    /// Whether it yields before it responds, as an origin behind a network does.
    waits: bool,
}

impl Origin {
    fn new(respond: impl Fn(&Headers, usize) -> Response + Send + Sync + 'static) -> Self {
        Self {
            seen: Arc::default(),
            respond: Arc::new(respond),
            waits: false,
        }
    }

    /// An origin whose responses have these fields, and the number of the request as body.
    fn with(lines: &'static [(&'static str, &'static str)]) -> Self {
        Self::new(move |_, count| numbered(lines, count))
    }

    fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn last(&self) -> Headers {
        self.seen.lock().unwrap().last().unwrap().1.clone()
    }

    fn service(&self) -> impl ServiceFactory + Clone + 'static {
        let origin = self.clone();
        move || {
            let origin = origin.clone();
            service_fn(move |request| {
                let count = {
                    let mut seen = origin.seen.lock().unwrap();
                    seen.push((request.method().clone(), request.headers().clone()));
                    seen.len()
                };
                let response = (origin.respond)(request.headers(), count);
                if origin.waits {
                    ResponseFuture::later(async move {
                        tokio::task::yield_now().await;
                        response
                    })
                } else {
                    ResponseFuture::from(response)
                }
            })
        }
    }

    fn cached(&self, settings: CacheSettings) -> std::rc::Rc<dyn Service> {
        let cache = Cache::new(StoreSettings::default());
        CachedService::new(&cache, "site", settings, self.service()).service()
    }
}

fn numbered(lines: &[(&str, &str)], count: usize) -> Response {
    let mut response = Response::text(StatusCode::OK, format!("response {count}"));
    for (name, value) in lines {
        response.headers_mut().try_insert(name, value).unwrap();
    }
    response
}

fn status_of(reply: &Reply) -> &str {
    reply.field("cache-status").unwrap()
}

#[test]
fn a_fresh_response_is_reused_with_its_age() {
    let origin = Origin::with(&[("cache-control", "max-age=60"), ("x-own", "kept")]);
    let service = origin.cached(CacheSettings::default());
    let first = get("/a").of(&service);
    assert_eq!(first.text(), "response 1");
    let stored = status_of(&first).strip_prefix("apus; fwd=uri-miss; stored; ttl=");
    let ttl: u32 = stored.unwrap().parse().unwrap();
    // A busy machine may take seconds in between.
    assert!((50..=60).contains(&ttl), "{ttl}");
    for _ in 0..3 {
        let again = get("/a").of(&service);
        assert_eq!((again.status, again.text()), (200, "response 1"));
        let age: u32 = again.field("age").unwrap().parse().unwrap();
        assert!(age <= 10, "{age}");
        assert_eq!(again.field("x-own"), Some("kept"));
        assert!(
            status_of(&again).starts_with("apus; hit; ttl="),
            "{}",
            status_of(&again)
        );
    }
    assert_eq!(get("/a?other").of(&service).text(), "response 2");
    assert_eq!(
        get("/a").with("host", "other.example").of(&service).text(),
        "response 3"
    );
    assert_eq!(origin.calls(), 3);
}

#[test]
fn responses_for_one_client_are_not_stored() {
    for lines in [
        &[("cache-control", "private, max-age=60")][..],
        &[("cache-control", "no-store")],
        &[("cache-control", "max-age=60"), ("set-cookie", "id=1")],
        &[("cache-control", "max-age=60"), ("vary", "*")],
        &[],
    ] {
        let origin = Origin::new(move |_, count| numbered(lines, count));
        let service = origin.cached(CacheSettings::default());
        assert_eq!(get("/").of(&service).text(), "response 1");
        assert_eq!(get("/").of(&service).text(), "response 2", "{lines:?}");
    }
}

#[test]
fn responses_to_requests_with_credentials_are_not_shared() {
    for (name, value) in [("authorization", "Basic eA=="), ("cookie", "session=1")] {
        let origin = Origin::with(&[("cache-control", "max-age=60")]);
        let service = origin.cached(CacheSettings::default());
        assert_eq!(get("/").with(name, value).of(&service).text(), "response 1");
        assert_eq!(get("/").of(&service).text(), "response 2");
        assert_eq!(get("/").of(&service).text(), "response 2");
    }
}

#[test]
fn variants_are_selected_by_vary() {
    let origin = Origin::new(|headers, count| {
        let language = headers
            .get_str("accept-language")
            .unwrap_or("none")
            .to_owned();
        let mut response = numbered(
            &[("cache-control", "max-age=60"), ("vary", "accept-language")],
            count,
        );
        *response.body_mut() = language.into();
        response
    });
    let service = origin.cached(CacheSettings::default());
    for _ in 0..3 {
        for language in ["de", "fr"] {
            let reply = get("/").with("accept-language", language).of(&service);
            assert_eq!(reply.text(), language);
        }
        assert_eq!(get("/").of(&service).text(), "none");
    }
    assert_eq!(origin.calls(), 3);
}

#[test]
fn conditions_and_ranges_are_evaluated_against_the_stored_response() {
    let origin = Origin::with(&[("cache-control", "max-age=60"), ("etag", "\"v1\"")]);
    let service = origin.cached(CacheSettings::default());
    get("/").of(&service);
    let unchanged = get("/").with("if-none-match", "\"v1\"").of(&service);
    assert_eq!((unchanged.status, unchanged.text()), (304, ""));
    assert_eq!(unchanged.field("etag"), Some("\"v1\""));
    assert_eq!(unchanged.field("content-type"), None);
    let part = get("/").with("range", "bytes=2-4").of(&service);
    assert_eq!((part.status, part.text()), (206, "spo"));
    assert_eq!(part.field("content-range"), Some("bytes 2-4/10"));
    assert_eq!(part.field("content-length"), Some("3"));
    let none = get("/").with("range", "bytes=10-").of(&service);
    assert_eq!(
        (none.status, none.field("content-range")),
        (416, Some("bytes */10"))
    );
    let other = get("/")
        .with("range", "bytes=2-4")
        .with("if-range", "\"v0\"");
    assert_eq!(other.of(&service).status, 200);
    assert_eq!(origin.calls(), 1);
}

#[test]
fn a_miss_fetches_the_complete_response_without_the_client_conditions() {
    let origin = Origin::with(&[("cache-control", "max-age=60"), ("etag", "\"v1\"")]);
    let service = origin.cached(CacheSettings::default());
    let reply = get("/").with("if-none-match", "\"v1\"").of(&service);
    assert_eq!(reply.status, 304);
    assert!(!origin.last().contains("if-none-match"));
    let reply = get("/b").with("range", "bytes=0-1").of(&service);
    assert_eq!((reply.status, reply.text()), (206, "re"));
    assert!(!origin.last().contains("range"));
    // A request for a later range stores nothing, and is forwarded unchanged.
    get("/c").with("range", "bytes=2-3").of(&service);
    assert!(origin.last().contains("range"));
}

#[test]
fn a_stale_response_is_validated_and_reused() {
    let origin = Origin::new(|headers, count| {
        let lines = [("cache-control", "max-age=0"), ("etag", "\"v1\"")];
        let mut response = numbered(&lines, count);
        if headers.get("if-none-match") == Some(b"\"v1\"") {
            response.set_status(StatusCode::NOT_MODIFIED);
            response.take_body();
        }
        response
    });
    let service = origin.cached(CacheSettings::default());
    assert_eq!(get("/").of(&service).text(), "response 1");
    for count in 2..5 {
        let reply = get("/").of(&service);
        assert_eq!((reply.status, reply.text()), (200, "response 1"));
        assert_eq!(
            status_of(&reply),
            "apus; fwd=stale; fwd-status=304; stored; ttl=0"
        );
        assert_eq!(origin.calls(), count);
    }
    // The condition of the client is evaluated against the stored response, and not forwarded.
    let reply = get("/").with("if-none-match", "\"v0\"").of(&service);
    assert_eq!((reply.status, reply.text()), (200, "response 1"));
    assert_eq!(origin.last().get_str("if-none-match"), Some("\"v1\""));
}

/// An origin with another version for requests that override the method, also in a 304.
fn reflecting() -> Origin {
    Origin::new(|headers, count| {
        let lines = [("cache-control", "max-age=0"), ("etag", "\"v1\"")];
        let mut response = numbered(&lines, count);
        for name in ["x-http-method-override", "content-length"] {
            if let Some(value) = headers.get(name) {
                response.headers_mut().try_insert("x-said", value).unwrap();
            }
        }
        if headers.get("if-none-match") == Some(b"\"v1\"") {
            response.set_status(StatusCode::NOT_MODIFIED);
            response.take_body();
        }
        response
    })
}

#[test]
fn a_304_to_an_uncacheable_request_does_not_change_the_stored_response() {
    for line in [("x-http-method-override", "PATCH"), ("content-length", "5")] {
        for method in ["GET", "HEAD"] {
            let origin = reflecting();
            let service = origin.cached(CacheSettings::default());
            assert_eq!(get("/").of(&service).text(), "response 1");
            let crafted = ask(method, "/").with(line.0, line.1);
            let crafted = match line.0 {
                "content-length" => crafted.body("12345"),
                _ => crafted,
            };
            let crafted = crafted.of(&service);
            assert_eq!(crafted.status, 200, "{line:?} {method}");
            let next = get("/").of(&service);
            assert_eq!(next.text(), "response 1", "{line:?} {method}");
            assert_eq!(next.field("x-said"), None, "{line:?} {method}");
        }
    }
}

#[test]
fn a_304_about_another_version_does_not_freshen_the_stored_response() {
    let origin = Origin::new(|headers, count| {
        let lines = [("cache-control", "max-age=0"), ("etag", "\"v1\"")];
        let mut response = numbered(&lines, count);
        if headers.contains("if-none-match") {
            response.headers_mut().try_insert("etag", "\"v2\"").unwrap();
            response.set_status(StatusCode::NOT_MODIFIED);
            response.take_body();
        }
        response
    });
    let service = origin.cached(CacheSettings::default());
    assert_eq!(get("/").of(&service).text(), "response 1");
    // It is requested without conditions, because no stored response is current.
    let reply = get("/").of(&service);
    assert_eq!((reply.status, reply.text()), (200, "response 3"));
    assert_eq!(reply.field("etag"), Some("\"v1\""));
}

#[test]
fn the_cache_result_is_logged_without_a_response_field() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let settings = CacheSettings {
        status_field: false,
        bypass_headers: vec!["x-bypass".into()],
        ..CacheSettings::default()
    };
    let service = origin.cached(settings);
    let result = |request: RequestBuilder| {
        block_on(async {
            let response = service.call(request.request()).wait().await;
            assert!(!response.headers().contains("cache-status"));
            response.cache().map(|result| result.as_str())
        })
    };
    assert_eq!(result(get("/")), Some("MISS"));
    assert_eq!(result(get("/")), Some("HIT"));
    assert_eq!(result(get("/").with("range", "bytes=0-1")), Some("HIT"));
    assert_eq!(result(ask("HEAD", "/")), Some("HIT"));
    assert_eq!(result(get("/").with("x-bypass", "1")), Some("BYPASS"));
    assert_eq!(result(ask("POST", "/")), Some("BYPASS"));
}

#[test]
fn bypassed_paths_and_cookies_match_in_any_spelling() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let settings = CacheSettings {
        bypass_cookies: vec![CacheNamePattern::new("app_sid")],
        bypass_paths: vec![apus_patterns::Glob::parse("/admin/**").unwrap()],
        ..CacheSettings::default()
    };
    let service = origin.cached(settings);
    get("/").of(&service);
    for cookie in ["app_sid=1", "app.sid=1", "%61pp_sid=1", "a=1, app_sid=2"] {
        let reply = get("/").with("cookie", cookie).of(&service);
        assert_eq!(status_of(&reply), "apus; fwd=bypass", "{cookie}");
    }
    for path in [
        "/admin/login.php",
        "/%61dmin/login.php",
        "//admin/x",
        "/x/../admin/x",
    ] {
        for _ in 0..2 {
            let reply = get(path).of(&service);
            assert_eq!(status_of(&reply), "apus; fwd=bypass", "{path}");
        }
    }
    assert!(status_of(&get("/").of(&service)).starts_with("apus; hit"));
}

#[test]
fn a_stale_response_that_changed_is_replaced() {
    let origin = Origin::new(|_, count| {
        let tag = format!("\"v{count}\"");
        numbered(&[("cache-control", "max-age=0"), ("etag", &tag)], count)
    });
    let service = origin.cached(CacheSettings::default());
    assert_eq!(get("/").of(&service).text(), "response 1");
    assert_eq!(get("/").of(&service).text(), "response 2");
    assert_eq!(get("/").of(&service).text(), "response 3");
}

#[test]
fn a_stale_response_is_sent_while_it_is_refreshed_rfc_5861() {
    let lines = &[("cache-control", "max-age=0, stale-while-revalidate=60")];
    let origin = Origin::with(lines);
    let service = origin.cached(CacheSettings::default());
    block_on(async {
        assert_eq!(read(get("/"), &service).await.text(), "response 1");
        let stale = read(get("/"), &service).await;
        assert_eq!(stale.text(), "response 1");
        while origin.calls() < 2 {
            tokio::task::yield_now().await;
        }
        loop {
            let reply = read(get("/"), &service).await;
            if reply.text() != "response 1" {
                break;
            }
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_stale_response_is_sent_when_the_origin_fails_rfc_5861() {
    for (directive, expected) in [("stale-if-error=60", 200), ("must-revalidate", 502)] {
        let origin = Origin::new(move |_, count| {
            let control = format!("max-age=0, {directive}");
            let mut response = numbered(&[("cache-control", &control), ("etag", "\"v\"")], count);
            if count > 1 {
                response.set_status(StatusCode::BAD_GATEWAY);
            }
            response
        });
        let service = origin.cached(CacheSettings::default());
        assert_eq!(get("/").of(&service).status, 200);
        assert_eq!(get("/").of(&service).status, expected, "{directive}");
        assert_eq!(origin.calls(), 2);
    }
}

async fn read(request: RequestBuilder, service: &std::rc::Rc<dyn Service>) -> Reply {
    let response = service.call(request.request()).wait().await;
    Reply::read(response).await
}

#[test]
fn concurrent_requests_for_one_target_are_collapsed() {
    let mut origin = Origin::with(&[("cache-control", "max-age=60")]);
    origin.waits = true;
    let service = origin.cached(CacheSettings::default());
    block_on(async {
        let replies: Vec<_> = (0..50)
            .map(|_| {
                let service = service.clone();
                tokio::task::spawn_local(async move { read(get("/"), &service).await })
            })
            .collect();
        for reply in replies {
            assert_eq!(reply.await.unwrap().text(), "response 1");
        }
    });
    assert_eq!(origin.calls(), 1);
}

#[test]
fn requests_do_not_wait_for_a_response_that_cannot_be_shared() {
    let mut origin = Origin::with(&[("cache-control", "private")]);
    origin.waits = true;
    let service = origin.cached(CacheSettings::default());
    block_on(async {
        let replies: Vec<_> = (0..20)
            .map(|_| {
                let service = service.clone();
                tokio::task::spawn_local(async move { read(get("/"), &service).await })
            })
            .collect();
        let mut texts = Vec::new();
        for reply in replies {
            texts.push(reply.await.unwrap().text().to_owned());
        }
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 20);
    });
    assert_eq!(origin.calls(), 20);
}

#[test]
fn an_unsafe_request_invalidates_the_stored_response() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let service = origin.cached(CacheSettings::default());
    assert_eq!(get("/a").of(&service).text(), "response 1");
    assert_eq!(get("/ab").of(&service).text(), "response 2");
    assert_eq!(
        ask("POST", "/a").body("x").of(&service).text(),
        "response 3"
    );
    assert_eq!(get("/a").of(&service).text(), "response 4");
    assert_eq!(get("/ab").of(&service).text(), "response 2");
}

#[test]
fn an_unsafe_request_does_not_invalidate_longer_paths() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let mut settings = CacheSettings::default();
    settings.rules.key.headers = vec!["x-tenant".into()];
    let service = origin.cached(settings);
    let with = |target, tenant| get(target).with("x-tenant", tenant).of(&service);
    for (target, tenant) in [("/", "a"), ("/", "b"), ("/below", "a"), ("/Header", "a")] {
        with(target, tenant);
    }
    ask("POST", "/").of(&service);
    assert_eq!(with("/below", "a").text(), "response 3");
    assert_eq!(with("/Header", "a").text(), "response 4");
    assert_eq!(with("/", "a").text(), "response 6");
    assert_eq!(with("/", "b").text(), "response 7");
}

#[test]
fn a_purge_needs_the_token() {
    let origin = Origin::with(&[("cache-control", "max-age=60"), ("surrogate-key", "news x")]);
    let settings = CacheSettings {
        purge: Some(PurgeAccess {
            token: "secret".into(),
        }),
        ..CacheSettings::default()
    };
    let service = origin.cached(settings);
    let stored = |expected: &str| assert_eq!(get("/a/b").of(&service).text(), expected);
    stored("response 1");
    for line in [
        "",
        "Bearer ",
        "Bearer secretx",
        "Bearer secre",
        "Basic secret",
        "Bearer secretsecret",
    ] {
        let reply = ask("PURGE", "/a/b")
            .with("authorization", line)
            .of(&service);
        assert_eq!(reply.status, 401, "{line}");
        assert_eq!(reply.field("www-authenticate"), Some("Bearer"));
        stored("response 1");
    }
    let purge = |target| ask("PURGE", target).with("authorization", "Bearer secret");
    assert_eq!(purge("/a/b").of(&service).status, 204);
    stored("response 2");
    assert_eq!(purge("/a").of(&service).status, 204);
    stored("response 2");
    assert_eq!(
        purge("/a").with("purge-prefix", "1").of(&service).status,
        204
    );
    stored("response 3");
    assert_eq!(
        purge("/")
            .with("purge-tag", "other, news")
            .of(&service)
            .status,
        204
    );
    stored("response 4");
    // Without allowed clients, it is an ordinary method.
    let plain = origin.cached(CacheSettings::default());
    assert_eq!(purge("/a").of(&plain).status, 200);
}

#[test]
fn a_softly_purged_response_is_sent_stale_on_errors() {
    let origin = Origin::new(|_, count| {
        let mut response = numbered(
            &[
                ("cache-control", "max-age=60, stale-if-error=60"),
                ("etag", "\"v\""),
            ],
            count,
        );
        if count > 1 {
            response.set_status(StatusCode::SERVICE_UNAVAILABLE);
        }
        response
    });
    let settings = CacheSettings {
        purge: Some(PurgeAccess { token: "t".into() }),
        ..CacheSettings::default()
    };
    let service = origin.cached(settings);
    get("/").of(&service);
    let purge = ask("PURGE", "/").with("authorization", "bearer t");
    assert_eq!(purge.with("purge-soft", "1").of(&service).status, 204);
    let reply = get("/").of(&service);
    assert_eq!((reply.status, reply.text()), (200, "response 1"));
    assert_eq!(origin.calls(), 2);
}

#[test]
fn head_uses_a_stored_get_and_is_never_stored() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let service = origin.cached(CacheSettings::default());
    assert_eq!(ask("HEAD", "/").of(&service).status, 200);
    assert_eq!(get("/").of(&service).text(), "response 2");
    assert!(status_of(&ask("HEAD", "/").of(&service)).starts_with("apus; hit"));
    assert_eq!(origin.calls(), 2);
}

#[test]
fn bypass_and_minimum_uses_are_honoured() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let mut settings = CacheSettings {
        bypass_cookies: vec![CacheNamePattern::new("wordpress_logged_in_*")],
        bypass_headers: vec!["x-bypass".into()],
        ..CacheSettings::default()
    };
    settings.rules.minimum_uses = 2;
    let service = origin.cached(settings);
    assert_eq!(get("/").of(&service).text(), "response 1");
    assert_eq!(get("/").of(&service).text(), "response 2");
    assert_eq!(get("/").of(&service).text(), "response 2");
    let logged_in = || get("/").with("cookie", "a=1; wordpress_logged_in_x=1");
    assert_eq!(logged_in().of(&service).text(), "response 3");
    assert_eq!(status_of(&logged_in().of(&service)), "apus; fwd=bypass");
    assert_eq!(
        get("/").with("x-bypass", "1").of(&service).text(),
        "response 5"
    );
    assert_eq!(get("/").of(&service).text(), "response 2");
}

#[test]
fn only_if_cached_gets_504_without_a_stored_response() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let service = origin.cached(CacheSettings::default());
    let only = || get("/").with("cache-control", "only-if-cached");
    assert_eq!(only().of(&service).status, 504);
    get("/").of(&service);
    assert_eq!(only().of(&service).text(), "response 1");
    assert_eq!(origin.calls(), 1);
}

#[test]
fn a_response_on_disk_is_found_without_the_origin() {
    let directory = tempfile::tempdir().unwrap();
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    // A new cache each time, so that nothing is in memory.
    let opened = |then: &dyn Fn(&std::rc::Rc<dyn Service>)| {
        let disk = DiskSettings::new(directory.path(), 1 << 30);
        let cache = Cache::open(StoreSettings::default(), disk).unwrap();
        let settings = CacheSettings::default();
        then(&CachedService::new(&cache, "site", settings, origin.service()).service());
        cache.close().unwrap();
    };
    opened(&|service| {
        get("/").of(service);
    });
    let only = || get("/").with("cache-control", "only-if-cached");
    opened(&|service| assert_eq!(only().of(service).text(), "response 1"));
    opened(&|service| {
        let reply = ask("HEAD", "/").of(service);
        assert!(status_of(&reply).starts_with("apus; hit"), "{reply:?}");
    });
    opened(&|service| assert_eq!(get("/").of(service).text(), "response 1"));
    assert_eq!(origin.calls(), 1);
}

#[test]
fn sites_do_not_share_responses() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let cache = Cache::new(StoreSettings::default());
    let of_site = |site| {
        CachedService::new(&cache, site, CacheSettings::default(), origin.service()).service()
    };
    let (one, two) = (of_site("one"), of_site("two"));
    assert_eq!(get("/").of(&one).text(), "response 1");
    assert_eq!(get("/").of(&two).text(), "response 2");
    assert_eq!(get("/").of(&one).text(), "response 1");
    // Workers and locations of one site share them.
    assert_eq!(get("/").of(&of_site("one")).text(), "response 1");
}

/// A streamed body, which may break off.
struct Pieces {
    left: usize,
    breaks: bool,
}

impl BodyStream for Pieces {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.left % 2 == 1 {
            self.left -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(match self.left {
            0 if self.breaks => Some(Err(BodyError::Disconnected)),
            0 => None,
            _ => {
                self.left -= 1;
                Some(Ok(Frame::Data("0123456789".into())))
            }
        })
    }
}

fn streaming(breaks: bool) -> Origin {
    Origin::new(move |_, count| {
        let mut response = numbered(&[("cache-control", "max-age=60")], count);
        let breaks = breaks && count == 1;
        *response.body_mut() = Body::stream(Pieces { left: 20, breaks });
        response
    })
}

#[test]
fn a_streamed_body_is_shared_while_it_is_stored() {
    let origin = streaming(false);
    let service = origin.cached(CacheSettings::default());
    block_on(async {
        let replies: Vec<_> = (0..5)
            .map(|_| {
                let service = service.clone();
                tokio::task::spawn_local(async move { read(get("/"), &service).await })
            })
            .collect();
        for reply in replies {
            assert_eq!(reply.await.unwrap().text().len(), 100);
        }
        assert_eq!(read(get("/"), &service).await.text().len(), 100);
    });
    assert_eq!(origin.calls(), 1);
}

#[test]
fn an_interrupted_body_is_neither_complete_nor_reused() {
    let origin = streaming(true);
    let service = origin.cached(CacheSettings::default());
    block_on(async {
        let mut response = service.call(get("/").request()).wait().await;
        let mut read_bytes = 0;
        let end = loop {
            match response.body_mut().frame().await {
                Some(Ok(Frame::Data(bytes))) => read_bytes += bytes.len(),
                other => break other,
            }
        };
        assert!(
            matches!(end, Some(Err(_))),
            "{read_bytes} bytes, then {end:?}"
        );
        assert_eq!(read(get("/"), &service).await.text().len(), 100);
    });
    assert_eq!(origin.calls(), 2);
}

#[test]
fn a_body_that_grows_too_large_is_sent_and_not_stored() {
    let origin = streaming(false);
    let mut settings = CacheSettings::default();
    settings.rules.max_size = 50;
    let service = origin.cached(settings);
    block_on(async {
        assert_eq!(read(get("/"), &service).await.text().len(), 100);
        assert_eq!(read(get("/"), &service).await.text().len(), 100);
    });
    assert_eq!(origin.calls(), 2);
}

#[test]
fn a_disconnecting_client_does_not_end_the_fill_for_others() {
    let origin = streaming(false);
    let service = origin.cached(CacheSettings::default());
    block_on(async {
        let mut first = service.call(get("/").request()).wait().await;
        assert!(matches!(first.body_mut().frame().await, Some(Ok(_))));
        let second = service.call(get("/").request()).wait().await;
        drop(first);
        assert_eq!(Reply::read(second).await.text().len(), 100);
    });
    assert_eq!(origin.calls(), 1);
}

#[test]
fn a_head_response_outdates_the_stored_get() {
    let origin = Origin::new(|_, count| {
        let tag = if count == 1 { "\"v1\"" } else { "\"v2\"" };
        let lines = [("cache-control", "max-age=60"), ("etag", tag)];
        numbered(&lines, count)
    });
    let mut settings = CacheSettings {
        bypass_headers: vec!["x-bypass".into()],
        ..CacheSettings::default()
    };
    settings.rules.client_directives = apus_cache::policy::ClientDirectiveRule::Honour;
    let service = origin.cached(settings);
    assert_eq!(get("/").of(&service).text(), "response 1");
    let head = ask("HEAD", "/").with("cache-control", "no-cache");
    assert_eq!(head.of(&service).field("etag"), Some("\"v2\""));
    assert_eq!(get("/").of(&service).text(), "response 3");
}

#[test]
fn devices_have_different_responses_if_they_are_in_the_key() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let mut settings = CacheSettings::default();
    settings.rules.key.device = true;
    let service = origin.cached(settings);
    let phone = || get("/").with("user-agent", "X (iPhone; Y) Mobile/1");
    assert_eq!(get("/").of(&service).text(), "response 1");
    assert_eq!(phone().of(&service).text(), "response 2");
    assert_eq!(get("/").of(&service).text(), "response 1");
    assert_eq!(phone().of(&service).text(), "response 2");
}

#[test]
fn vary_user_agent_selects_the_exact_agent_without_devices_in_the_key() {
    let origin = Origin::with(&[("cache-control", "max-age=60"), ("vary", "user-agent")]);
    let service = origin.cached(CacheSettings::default());
    let one = || get("/").with("user-agent", "One (X11; Linux x86_64)");
    let other = || get("/").with("user-agent", "Other (X11; Linux x86_64)");
    assert_eq!(one().of(&service).text(), "response 1");
    assert_eq!(other().of(&service).text(), "response 2");
    assert_eq!(one().of(&service).text(), "response 1");
}

#[test]
fn equivalent_spellings_of_a_path_are_stored_once() {
    let origin = Origin::with(&[("cache-control", "max-age=60")]);
    let settings = CacheSettings {
        purge: Some(PurgeAccess { token: "t".into() }),
        ..CacheSettings::default()
    };
    let service = origin.cached(settings);
    for path in ["/a/b", "/a/x/../b", "/a//b", "/a/%2e/b"] {
        assert_eq!(get(path).of(&service).text(), "response 1", "{path}");
    }
    let purge = ask("PURGE", "/a/./b").with("authorization", "bearer t");
    assert_eq!(purge.of(&service).status, 204);
    assert_eq!(get("/a/x/../b").of(&service).text(), "response 2");
}
