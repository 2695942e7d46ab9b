//! Section 4: constructing responses from caches.

use apus_cache::policy::{
    CacheRules, CachingContext, ReuseDecision, decide_reuse, must_not_forward,
};
use apus_http::Method;
use apus_http::fields::ForwardReason;

use super::{DATE, Lines, TestRequest, at, date, headers, ok, once, reuse_at};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

#[test]
fn section_4_must_send_the_age_of_a_response_that_was_not_validated() {
    let stored = ok(&[FRESH, ("age", "7")]);
    assert_eq!(reuse_at(&stored, 0), ReuseDecision::Fresh { age: 7 });
    assert_eq!(reuse_at(&stored, 10), ReuseDecision::Fresh { age: 17 });
    assert_eq!(
        reuse_at(&stored, 53),
        ReuseDecision::Validate(ForwardReason::Stale)
    );
}

#[test]
fn section_4_must_not_reuse_for_a_method_that_does_not_allow_it() {
    let stored = ok(&[FRESH]);
    let rules = CacheRules::default();
    let by = |method| {
        let request = TestRequest::with(&[]).method(method);
        decide_reuse(&request.presented(), &stored, &rules, &once(), at(0))
    };
    assert_eq!(by(Method::GET), ReuseDecision::Fresh { age: 0 });
    assert_eq!(by(Method::HEAD), ReuseDecision::Fresh { age: 0 });
    for method in [
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ] {
        assert_eq!(by(method), ReuseDecision::Forward(ForwardReason::Method));
    }
}

#[test]
fn section_4_must_not_reuse_no_cache_responses_without_validation() {
    for value in [
        "no-cache",
        "max-age=60, no-cache",
        "no-cache=\"\"",
        "s-maxage=60,no-cache, no-cache=\"x\"",
    ] {
        let stored = ok(&[("cache-control", value), ("etag", "\"x\"")]);
        assert_eq!(
            reuse_at(&stored, 0),
            ReuseDecision::Validate(ForwardReason::Stale),
            "{value}"
        );
        assert!(!stored.is_fresh(at(0)));
    }
}

#[test]
fn section_5_4_pragma_in_a_response_has_no_effect() {
    assert_eq!(
        reuse_at(&ok(&[FRESH, ("pragma", "no-cache")]), 0),
        ReuseDecision::Fresh { age: 0 }
    );
}

#[test]
fn a_bypass_ignores_the_stored_response() {
    let stored = ok(&[FRESH]);
    let conditions = CachingContext {
        bypass: true,
        ..once()
    };
    let request = TestRequest::with(&[]);
    assert_eq!(
        decide_reuse(
            &request.presented(),
            &stored,
            &CacheRules::default(),
            &conditions,
            at(0)
        ),
        ReuseDecision::Forward(ForwardReason::Bypass)
    );
}

fn is_not_modified(stored: Lines<'_>, request: Lines<'_>) -> bool {
    ok(&[&[FRESH], stored].concat()).is_not_modified(&headers(request))
}

#[test]
fn section_4_3_2_evaluates_conditions_against_the_stored_response() {
    let (same, older, newer) = (date(-100), date(-101), date(-99));
    let both = [("etag", "\"v1\""), ("last-modified", same.as_str())];
    for (request, expected) in [
        (&[][..], false),
        (&[("if-none-match", "\"v1\"")][..], true),
        (&[("if-none-match", "W/\"v1\"")], true),
        (&[("if-none-match", "\"v0\", \"v1\"")], true),
        (&[("if-none-match", "*")], true),
        (&[("if-none-match", "\"v0\"")], false),
        (&[("if-modified-since", &same)], true),
        (&[("if-modified-since", &newer)], true),
        (&[("if-modified-since", &older)], false),
        (&[("if-modified-since", "x")], false),
        // MUST ignore If-Modified-Since beside If-None-Match.
        (
            &[("if-none-match", "\"v0\""), ("if-modified-since", &newer)],
            false,
        ),
        // These conditions are for origins only.
        (&[("if-match", "\"v0\"")], false),
        (&[("if-match", "\"v0\""), ("if-none-match", "\"v1\"")], true),
        (&[("if-unmodified-since", &older)], false),
    ] {
        assert_eq!(is_not_modified(&both, request), expected, "{request:?}");
    }
}

#[test]
fn section_4_3_2_compares_with_date_or_receipt_without_last_modified() {
    let (before, after) = (date(-5), date(-1));
    let dated = [("date", "Sun, 06 Nov 1994 08:49:35 GMT")];
    assert!(!is_not_modified(&dated, &[("if-modified-since", &before)]));
    assert!(is_not_modified(&dated, &[("if-modified-since", &after)]));
    assert!(!is_not_modified(&[], &[("if-modified-since", &after)]));
    assert!(is_not_modified(&[], &[("if-modified-since", DATE)]));
}

#[test]
fn conditions_do_not_apply_to_other_statuses_than_200() {
    let reply = super::TestResponse::with(404, &[FRESH, ("etag", "\"x\"")]);
    let stored = super::try_store(&TestRequest::with(&[]), &reply, &CacheRules::default())
        .unwrap()
        .stored;
    assert!(!stored.is_not_modified(&headers(&[("if-none-match", "\"x\"")])));
}

#[test]
fn section_5_2_1_7_only_if_cached_gets_a_stored_response_or_504() {
    let only = TestRequest::with(&[("cache-control", "only-if-cached")]);
    let rules = CacheRules::default();
    let stored = ok(&[FRESH]);
    let decision = |seconds| decide_reuse(&only.presented(), &stored, &rules, &once(), at(seconds));
    assert_eq!(decision(0), ReuseDecision::Fresh { age: 0 });
    assert_eq!(decision(60), ReuseDecision::GatewayTimeout);
    assert!(must_not_forward(&only.presented()));
    assert!(!must_not_forward(&TestRequest::with(&[]).presented()));
    let post = only.method(Method::POST);
    assert!(!must_not_forward(&post.presented()));
    let varying = ok(&[FRESH, ("vary", "x")]);
    let other = TestRequest::with(&[("cache-control", "only-if-cached"), ("x", "1")]);
    assert_eq!(
        decide_reuse(&other.presented(), &varying, &rules, &once(), at(0)),
        ReuseDecision::GatewayTimeout
    );
}
