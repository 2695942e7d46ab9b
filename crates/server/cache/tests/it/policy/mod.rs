//! The policy of a shared cache, by the sections of RFC 9111.

mod credentials;
mod deception;
mod freshness;
mod heads;
mod invalidation;
mod keys;
mod parts;
mod properties;
mod record;
mod request_directives;
mod serving;
mod stale;
mod storing;
mod targeted;
mod validation;
mod variants;

use apus_cache::policy::{
    CacheRules, CachingContext, OriginResponse, PresentedRequest, ReuseDecision, StorableResponse,
    StoreRefusal, StoredResponse, Timestamp, decide_reuse, may_store,
};
use apus_http::{Headers, Method, StatusCode};

/// The time of receipt, unless a test says otherwise: [`DATE`].
const NOW: u64 = 784_111_777;

/// [`NOW`] as a date.
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

type Lines<'a> = &'a [(&'a str, &'a str)];

/// Seconds after [`NOW`], or before.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(NOW.checked_add_signed(seconds).unwrap())
}

/// [`at`] as an HTTP date.
fn date(seconds: i64) -> String {
    at(seconds).to_http_date()
}

fn headers(lines: Lines<'_>) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.try_append(name, value).unwrap();
    }
    headers
}

/// A request to present.
#[derive(Clone)]
struct TestRequest {
    method: Method,
    scheme: &'static str,
    authority: &'static str,
    path: String,
    query: Option<String>,
    headers: Headers,
    has_body: bool,
    has_certificate: bool,
    device: Option<&'static str>,
}

impl TestRequest {
    /// GET, with these field lines.
    fn with(lines: Lines<'_>) -> Self {
        Self {
            method: Method::GET,
            scheme: "https",
            authority: "example.com",
            path: "/page".to_owned(),
            query: None,
            headers: headers(lines),
            has_body: false,
            has_certificate: false,
            device: None,
        }
    }

    fn target(target: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        Self {
            path: path.to_owned(),
            query,
            ..Self::with(&[])
        }
    }

    fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    fn presented(&self) -> PresentedRequest<'_> {
        PresentedRequest {
            method: &self.method,
            scheme: self.scheme,
            authority: self.authority,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            has_body: self.has_body,
            has_certificate: self.has_certificate,
            device: self.device,
            request: None,
        }
    }
}

/// A response that was requested and received at [`NOW`].
struct TestResponse {
    status: u16,
    headers: Headers,
    requested: Timestamp,
    received: Timestamp,
}

impl TestResponse {
    /// With these lines and no others, not even a `Date`.
    fn with(status: u16, lines: Lines<'_>) -> Self {
        Self {
            status,
            headers: headers(lines),
            requested: at(0),
            received: at(0),
        }
    }

    /// A response that was received at another time.
    fn received(self, seconds: i64) -> Self {
        Self {
            requested: at(seconds),
            received: at(seconds),
            ..self
        }
    }

    fn response(&self) -> OriginResponse<'_> {
        OriginResponse {
            status: StatusCode::from_u16(self.status).unwrap(),
            headers: &self.headers,
            requested: self.requested,
            received: self.received,
        }
    }
}

/// The context of a first request.
fn once() -> CachingContext {
    CachingContext {
        uses: 1,
        ..CachingContext::default()
    }
}

fn trusted() -> CachingContext {
    CachingContext {
        is_trusted: true,
        ..once()
    }
}

fn try_store(
    request: &TestRequest,
    reply: &TestResponse,
    rules: &CacheRules,
) -> Result<StorableResponse, StoreRefusal> {
    may_store(&request.presented(), &reply.response(), rules, &once())
}

/// Stores a 200 response with these lines by the default rules.
fn try_ok(lines: Lines<'_>) -> Result<StoredResponse, StoreRefusal> {
    try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, lines),
        &CacheRules::default(),
    )
    .map(|storable| storable.stored)
}

fn ok(lines: Lines<'_>) -> StoredResponse {
    try_ok(lines).unwrap_or_else(|refusal| panic!("{lines:?}: {refusal}"))
}

/// Decides on its reuse for a plain request, `seconds` after [`NOW`].
fn reuse_at(stored: &StoredResponse, seconds: i64) -> ReuseDecision {
    let request = TestRequest::with(&[]);
    let rules = CacheRules::default();
    decide_reuse(&request.presented(), stored, &rules, &once(), at(seconds))
}

fn is_fresh(stored: &StoredResponse, seconds: i64) -> bool {
    matches!(reuse_at(stored, seconds), ReuseDecision::Fresh { .. })
}

/// Checks that it is fresh until this number of seconds after [`NOW`].
#[track_caller]
fn assert_fresh_until(stored: &StoredResponse, seconds: i64, context: &dyn std::fmt::Debug) {
    let until = stored.fresh_until();
    assert_eq!(until, at(seconds), "{context:?}");
    if seconds > 0 {
        assert!(is_fresh(stored, seconds - 1), "{context:?}");
    }
    assert!(!is_fresh(stored, seconds), "{context:?}");
}
