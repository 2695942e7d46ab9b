//! Fuzz targets of the cache: response fields, and records on disk.

use apus_cache::policy::{
    CacheRules, CachingContext, FreshenResult, KeyRules, OriginResponse, PresentedRequest,
    ReuseDecision, StoredResponse, Timestamp, decide_reuse, freshen, keys_to_invalidate, may_store,
};
use apus_http::fields::{
    CacheStatus, DirectiveScope, Handling, RequestDirectives, ResponseDirectives, Vary, age,
    surrogate_keys,
};
use apus_http::{Headers, Method, StatusCode};

/// The time of the responses.
const NOW: Timestamp = Timestamp::from_unix_seconds(784_111_777);

/// A list on several field lines equals one on a single line. A response that must not be stored is not
/// stored. A stored response is fresh for at most its lifetime, is read back unchanged, and is found by its
/// request. The first line is the request's, the others are the response's.
pub fn cache_fields(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let request_headers = headers(lines.next().into_iter());
    let response_headers = headers(lines);
    check_fields(&response_headers);
    let (method, head) = (Method::GET, Method::HEAD);
    let request = PresentedRequest {
        method: &method,
        scheme: "https",
        authority: "example.com",
        path: "/page",
        query: None,
        headers: &request_headers,
        has_body: false,
        has_certificate: false,
        device: None,
        request: None,
    };
    let response = OriginResponse {
        status: StatusCode::OK,
        headers: &response_headers,
        requested: NOW,
        received: NOW,
    };
    let (rules, conditions) = (
        CacheRules::default(),
        CachingContext {
            uses: 1,
            ..CachingContext::default()
        },
    );
    let posted = PresentedRequest {
        method: &Method::POST,
        ..request
    };
    let keys = keys_to_invalidate(&posted, StatusCode::OK, &response_headers, &rules.key);
    let site = KeyRules::default().uri(&PresentedRequest {
        path: "/",
        ..request
    });
    assert!(keys.iter().all(|key| key.uri().starts_with(site.bytes())));
    let Ok(storable) = may_store(&request, &response, &rules, &conditions) else {
        return;
    };
    let stored = storable.stored;
    assert!(!RequestDirectives::of(&request_headers).no_store);
    assert!(!stored.headers().contains("set-cookie"));
    if !response_headers.contains("cdn-cache-control")
        && !response_headers.contains("x-accel-expires")
    {
        let directives = ResponseDirectives::of(&response_headers);
        assert!(!directives.private.is_whole());
        assert!(!directives.no_store || directives.must_understand);
        let lifetime = directives.s_maxage.or(directives.max_age);
        if let Some(lifetime) = lifetime {
            let left = stored.ttl(NOW);
            assert!(left <= i64::from(lifetime.seconds()));
        }
    }
    assert!(stored.matches(&request));
    assert!(stored.matches(&PresentedRequest {
        method: &head,
        ..request
    }));
    let expired = stored.fresh_until();
    let later = decide_reuse(&request, &stored, &rules, &conditions, expired);
    assert!(!matches!(later, ReuseDecision::Fresh { .. }));
    let mut bytes = Vec::new();
    stored.encode(&mut bytes);
    assert_eq!(StoredResponse::decode(&bytes).as_ref(), Ok(&stored));
    let current = OriginResponse {
        status: StatusCode::NOT_MODIFIED,
        ..response
    };
    if let FreshenResult::Stored(newer) = freshen(&request, &stored, &current, &rules) {
        assert_eq!(newer.status(), stored.status());
        assert_eq!(
            newer.headers().get("content-length"),
            stored.headers().get("content-length")
        );
    }
}

/// A record that is read as a stored response is written as the same bytes, and its times are plausible.
pub fn cache_record(data: &[u8]) {
    let Ok(stored) = StoredResponse::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    stored.encode(&mut again);
    assert_eq!(again, data);
    for now in [
        NOW,
        stored.fresh_until(),
        Timestamp::from_unix_millis(u64::MAX),
    ] {
        assert!(!(stored.is_fresh(now) && now >= stored.fresh_until()));
        let mut purged = stored.clone();
        purged.make_stale(now);
        assert!(!purged.is_fresh(now));
        assert!(purged.useful_until() <= stored.useful_until());
        let _ = (stored.age(now), stored.ttl(now), stored.validators());
    }
}

fn headers<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Headers {
    let mut headers = Headers::new();
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            let _ = headers.try_append(name, value);
        }
    }
    headers
}

fn check_fields(headers: &Headers) {
    let wire = Headers::from_wire(headers.wire());
    assert_eq!(wire.as_ref(), Ok(headers));
    let values: Vec<_> = headers.get_all("cache-control").collect();
    if !values.is_empty() && values.iter().all(|value| !value.contains(&b'"')) {
        let mut joined = Headers::new();
        let _ = joined.try_append("cache-control", values.join(&b','));
        assert_eq!(
            ResponseDirectives::of(&joined),
            ResponseDirectives::of(headers)
        );
    }
    let directives = ResponseDirectives::of(headers);
    for scope in [&directives.no_cache, &directives.private] {
        if let DirectiveScope::Fields(names) = scope {
            assert!(!names.is_empty() && names.iter().all(|name| scope.names(name.as_bytes())));
        }
    }
    if let Vary::Fields(names) = Vary::of(headers) {
        assert!(names.is_sorted() && names.iter().all(|name| **name != *"*"));
    }
    let _ = (
        age(headers),
        ResponseDirectives::targeted(headers, "cdn-cache-control"),
    );
    for name in ["surrogate-key", "cache-tag"] {
        assert!(surrogate_keys(headers, name).all(|tag| (1..=256).contains(&tag.len())));
    }
    let key = String::from_utf8_lossy(headers.wire());
    let status = CacheStatus {
        cache: "apus",
        handling: Handling::Hit,
        ttl: None,
        key: Some(&key),
        detail: None,
    };
    let mut written = Headers::new();
    status.append_to(&mut written);
    assert_eq!(written.len(), 1);
}
