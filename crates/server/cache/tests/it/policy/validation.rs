//! Sections 3.2 and 4.3: validation, and what a 304 changes.

use apus_cache::policy::{
    CacheRules, FreshenResult, StoreRefusal, StoredResponse, ValidationResult, add_conditions,
    evaluate_validation, freshen, select_validated,
};
use apus_http::{Headers, StatusCode};

use super::{
    DATE, Lines, TestRequest, TestResponse, assert_fresh_until, at, date, headers, ok, once,
    try_store,
};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

fn conditions(stored: &[&StoredResponse], request: Lines<'_>) -> Headers {
    let mut headers = headers(request);
    add_conditions(stored, &mut headers);
    headers
}

#[test]
fn section_4_3_1_must_send_the_stored_validators() {
    let old = date(-100);
    let etag = ("etag", "W/\"x\"");
    let modified = ("last-modified", old.as_str());
    for (lines, none_match, since) in [
        (&[etag, modified][..], Some("W/\"x\""), Some(old.as_str())),
        (&[etag], Some("W/\"x\""), None),
        (&[modified], None, Some(&old)),
        (&[], None, None),
        (&[("etag", "x"), ("last-modified", "x")], None, None),
    ] {
        let stored = ok(&[&[FRESH], lines].concat());
        assert_eq!(stored.can_be_validated(), none_match.or(since).is_some());
        let sent = conditions(&[&stored], &[("accept", "*/*")]);
        assert_eq!(sent.get_str("if-none-match"), none_match, "{lines:?}");
        assert_eq!(sent.get_str("if-modified-since"), since, "{lines:?}");
        assert_eq!(sent.get_str("accept"), Some("*/*"));
    }
}

#[test]
fn a_validation_removes_the_conditions_and_the_range_of_the_client() {
    let stored = ok(&[FRESH, ("etag", "\"x\"")]);
    let sent = conditions(
        &[&stored],
        &[
            ("if-none-match", "\"theirs\""),
            ("if-match", "\"theirs\""),
            ("if-modified-since", DATE),
            ("if-unmodified-since", DATE),
            ("if-range", "\"theirs\""),
            ("range", "bytes=0-1"),
        ],
    );
    assert_eq!(sent, headers(&[("if-none-match", "\"x\"")]));
}

#[test]
fn section_4_3_1_may_validate_all_variants_with_one_request() {
    let old = date(-100);
    let [a, b] = ["\"a\"", "\"b\""].map(|etag| {
        ok(&[
            FRESH,
            ("etag", etag),
            ("last-modified", &old),
            ("vary", "x"),
        ])
    });
    let sent = conditions(&[&a, &b], &[]);
    assert_eq!(sent, headers(&[("if-none-match", "\"a\", \"b\"")]));
}

#[test]
fn section_4_3_3_defines_the_effect_of_each_validation_response() {
    let lines = ("cache-control", "max-age=60, stale-if-error=30");
    let stored = ok(&[lines, ("etag", "\"x\"")]);
    let request = TestRequest::with(&[]);
    let result = |status, seconds| {
        let status = StatusCode::from_u16(status).unwrap();
        let rules = CacheRules::default();
        evaluate_validation(
            &request.presented(),
            &stored,
            status,
            &rules,
            &once(),
            at(seconds),
        )
    };
    assert_eq!(result(304, 70), ValidationResult::Current);
    for status in [200, 203, 206, 301, 404, 410, 501] {
        assert_eq!(result(status, 70), ValidationResult::Replaced, "{status}");
    }
    for status in [500, 502, 503, 504] {
        assert_eq!(
            result(status, 70),
            ValidationResult::ServeStale { age: 70 },
            "{status}"
        );
        assert_eq!(result(status, 90), ValidationResult::Failed, "{status}");
    }
}

#[test]
fn section_4_3_4_selects_the_responses_that_a_304_updates() {
    let (one, two) = (date(-100), date(-200));
    let with = |received, lines: Lines<'_>| {
        let reply = TestResponse::with(200, &[&[FRESH], lines].concat()).received(received);
        try_store(&TestRequest::with(&[]), &reply, &CacheRules::default())
            .unwrap()
            .stored
    };
    let strong = with(0, &[("etag", "\"a\""), ("last-modified", &one)]);
    let newer = with(5, &[("etag", "\"a\""), ("last-modified", &one)]);
    let weak = with(0, &[("etag", "W/\"b\"")]);
    let dated = with(0, &[("last-modified", &two)]);
    let bare = with(0, &[]);
    let stored = [&strong, &newer, &weak, &dated, &bare];
    for (lines, expected) in [
        // The newest response with the same strong validator.
        (&[("etag", "\"a\"")][..], Some(1)),
        (&[("etag", "W/\"a\"")], Some(1)),
        (&[("etag", "W/\"b\"")], Some(2)),
        // MUST NOT update any response by a strong validator that none has.
        (&[("etag", "\"b\"")], None),
        (&[("etag", "\"c\""), ("last-modified", &two)], None),
        (&[("last-modified", &two)], Some(3)),
        (&[("last-modified", &one)], Some(1)),
        (&[("last-modified", DATE)], None),
        (&[("etag", "a")], None),
        (&[], None),
    ] {
        assert_eq!(
            select_validated(&stored, &headers(lines)),
            expected,
            "{lines:?}"
        );
    }
    // Without any validator, if there is only one stored response.
    assert_eq!(select_validated(&[&bare], &headers(&[])), Some(0));
    assert_eq!(select_validated(&[&strong], &headers(&[])), Some(0));
}

fn freshened(stored: &StoredResponse, lines: Lines<'_>) -> StoredResponse {
    match try_freshen(stored, lines, &TestRequest::with(&[])) {
        FreshenResult::Stored(newer) => *newer,
        other => panic!("{other:?}"),
    }
}

/// A 304 that was received after 100 seconds.
fn try_freshen(stored: &StoredResponse, lines: Lines<'_>, request: &TestRequest) -> FreshenResult {
    let not_modified = TestResponse::with(304, lines).received(100);
    freshen(
        &request.presented(),
        stored,
        &not_modified.response(),
        &CacheRules::default(),
    )
}

#[test]
fn section_3_2_must_replace_the_fields_that_a_304_has() {
    let stored = ok(&[
        FRESH,
        ("etag", "\"x\""),
        ("content-type", "text/html"),
        ("content-length", "5"),
        ("content-encoding", "gzip"),
        ("x-multiple", "1"),
        ("x-multiple", "2"),
        ("x-kept", "1"),
    ]);
    let later = date(100);
    let newer = freshened(
        &stored,
        &[
            ("date", &later),
            ("etag", "\"y\""),
            ("cache-control", "max-age=30"),
            ("x-multiple", "3"),
            ("x-new", "1"),
            ("x-new", "2"),
            // These fields describe the stored body, which the 304 does not replace.
            ("content-length", "0"),
            ("content-encoding", "br"),
            ("content-range", "bytes 0-1/5"),
            // Section 3.1: these fields are not stored either.
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
        ],
    );
    let expected = headers(&[
        ("content-type", "text/html"),
        ("content-length", "5"),
        ("content-encoding", "gzip"),
        ("x-kept", "1"),
        ("date", &later),
        ("etag", "\"y\""),
        ("cache-control", "max-age=30"),
        ("x-multiple", "3"),
        ("x-new", "1"),
        ("x-new", "2"),
    ]);
    assert_eq!(newer.headers(), &expected);
    assert_eq!(newer.status(), StatusCode::OK);
    assert_fresh_until(&newer, 130, &"from the 304 on");
    assert_eq!(newer.age(at(110)), 10);
    assert_eq!(newer.received(), at(100));
}

#[test]
fn a_304_without_date_is_as_new_as_it_came() {
    let old = date(-1000);
    let stored = ok(&[
        ("date", &old),
        ("cache-control", "max-age=2000"),
        ("etag", "\"x\""),
    ]);
    let newer = freshened(&stored, &[]);
    assert_eq!(newer.headers().get_str("date"), Some(date(100).as_str()));
    assert_eq!(newer.age(at(100)), 0);
    // The age of the 304 counts, and not the age of the older response.
    assert_eq!(freshened(&stored, &[("age", "7")]).age(at(100)), 7);
    let aged = ok(&[("age", "50"), FRESH, ("etag", "\"x\"")]);
    assert_eq!(freshened(&aged, &[]).age(at(100)), 0);
}

#[test]
fn a_304_without_a_lifetime_keeps_the_stored_one() {
    for line in [
        FRESH,
        ("cdn-cache-control", "max-age=60"),
        ("x-accel-expires", "60"),
        ("cache-control", "s-maxage=60, private=\"etag2\""),
    ] {
        let newer = freshened(&ok(&[line, ("etag", "\"x\"")]), &[("etag", "\"x\"")]);
        assert_fresh_until(&newer, 160, &line);
    }
}

#[test]
fn keeps_tags_and_variant_unless_the_304_changes_them() {
    let reply = TestResponse::with(
        200,
        &[FRESH, ("etag", "\"x\""), ("vary", "x"), ("xkey", "a b")],
    );
    let first = TestRequest::with(&[("x", "1")]);
    let stored = try_store(&first, &reply, &CacheRules::default())
        .unwrap()
        .stored;
    // It was selected by its entity tag, for a request with another value.
    let newer = freshened(&stored, &[("etag", "\"x\"")]);
    assert_eq!(newer.secondary_key(), stored.secondary_key());
    assert_eq!(newer.tags().collect::<Vec<_>>(), [b"a", b"b"]);
    let newer = freshened(&stored, &[("xkey", "c"), ("vary", "x, y")]);
    assert_eq!(newer.tags().collect::<Vec<_>>(), [b"c"]);
    assert_ne!(newer.secondary_key(), stored.secondary_key());
}

#[test]
fn a_304_can_revoke_the_permission_to_store_the_response() {
    let stored = ok(&[FRESH, ("etag", "\"x\""), ("x", "1")]);
    for (line, expected) in [
        (("cache-control", "no-store"), StoreRefusal::NoStore),
        (("cache-control", "private"), StoreRefusal::Private),
        (("vary", "*"), StoreRefusal::VaryAny),
    ] {
        match try_freshen(&stored, &[line], &TestRequest::with(&[])) {
            FreshenResult::NotStored {
                headers,
                refusal,
                is_revoked,
                renewed,
            } => {
                assert!(renewed.is_none());
                assert_eq!((refusal, is_revoked), (expected, true));
                assert_eq!(headers.get_str(line.0), Some(line.1));
                assert_eq!(headers.get_str("x"), Some("1"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_304_to_a_session_updates_what_the_origin_declared_for_all() {
    let stored = ok(&[("cache-control", "public, max-age=60"), ("etag", "\"x\"")]);
    let request = TestRequest::with(&[("cookie", "sid=1")]);
    let freshened = try_freshen(&stored, &[("age", "7"), ("x", "1")], &request);
    let FreshenResult::Stored(newer) = freshened else {
        panic!("{freshened:?}")
    };
    assert_eq!(newer.headers().get_str("x"), Some("1"));
    assert_fresh_until(&newer, 153, &"less its age");
}

#[test]
fn one_client_cannot_remove_a_shared_response() {
    let stored = ok(&[FRESH, ("etag", "\"x\""), ("x", "all")]);
    for (request, line, is_renewed) in [
        (("cookie", "sid=1"), ("x", "1"), true),
        (("authorization", "Basic YTpi"), ("x", "1"), true),
        (("accept", "*/*"), ("set-cookie", "sid=1"), true),
        (("cookie", "sid=1"), ("cache-control", "private"), false),
        (("cookie", "sid=1"), ("cache-control", "no-store"), false),
        (("cache-control", "no-store"), ("x", "1"), false),
    ] {
        match try_freshen(&stored, &[line], &TestRequest::with(&[request])) {
            FreshenResult::NotStored {
                headers,
                is_revoked,
                renewed,
                ..
            } => {
                assert!(!is_revoked, "{request:?}");
                assert_eq!(headers.get_str(line.0), Some(line.1));
                assert_eq!(renewed.is_some(), is_renewed, "{request:?} {line:?}");
                if let Some(renewed) = renewed {
                    // None of its fields is from that client's response.
                    assert_eq!(renewed.headers().get_str("x"), Some("all"));
                    assert!(!renewed.headers().contains("set-cookie"));
                    assert_fresh_until(&renewed, 160, &request);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}
