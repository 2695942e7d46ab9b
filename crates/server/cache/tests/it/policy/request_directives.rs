//! Section 5.2.1: request directives.

use apus_cache::policy::{
    CacheRules, CachingContext, ClientDirectiveRule, ReuseDecision, decide_reuse,
};
use apus_http::fields::ForwardReason;

use super::{Lines, TestRequest, at, ok, once, trusted};

const FRESH: ReuseDecision = ReuseDecision::Fresh { age: 10 };
const REQUEST: ReuseDecision = ReuseDecision::Validate(ForwardReason::Request);
const STALE: ReuseDecision = ReuseDecision::Validate(ForwardReason::Stale);

/// A response with a lifetime of 60 seconds, 10 or 70 seconds old.
fn decision(
    lines: Lines<'_>,
    stored: &str,
    seconds: i64,
    conditions: &CachingContext,
) -> ReuseDecision {
    let stored = ok(&[("cache-control", stored), ("etag", "\"x\"")]);
    let request = TestRequest::with(lines);
    decide_reuse(
        &request.presented(),
        &stored,
        &CacheRules::default(),
        conditions,
        at(seconds),
    )
}

#[test]
fn request_directives_are_ignored_by_default() {
    for line in [
        ("cache-control", "no-cache"),
        ("cache-control", "max-age=0"),
        ("cache-control", "min-fresh=1000"),
        ("pragma", "no-cache"),
    ] {
        assert_eq!(
            decision(&[line], "max-age=60", 10, &once()),
            FRESH,
            "{line:?}"
        );
    }
    let stale = [("cache-control", "max-stale")];
    assert_eq!(decision(&stale, "max-age=60", 70, &once()), STALE);
}

#[test]
fn request_directives_count_for_the_configured_clients() {
    let stored = ok(&[("cache-control", "max-age=60")]);
    let request = TestRequest::with(&[("cache-control", "no-cache")]);
    for (client_directives, by_others, by_trusted) in [
        (ClientDirectiveRule::Ignore, FRESH, FRESH),
        (ClientDirectiveRule::Trusted, FRESH, REQUEST),
        (ClientDirectiveRule::Honour, REQUEST, REQUEST),
    ] {
        let rules = CacheRules {
            client_directives,
            ..CacheRules::default()
        };
        for (conditions, expected) in [(once(), by_others), (trusted(), by_trusted)] {
            assert_eq!(
                decide_reuse(&request.presented(), &stored, &rules, &conditions, at(10)),
                expected
            );
        }
    }
}

#[test]
fn sections_5_2_1_1_to_5_2_1_4_of_trusted_clients() {
    for (value, expected) in [
        // Section 5.2.1.1: max-age.
        ("max-age=10", FRESH),
        ("max-age=9", REQUEST),
        ("max-age=0", REQUEST),
        ("max-age=x", REQUEST),
        // Section 5.2.1.3: min-fresh.
        ("min-fresh=50", FRESH),
        ("min-fresh=51", REQUEST),
        ("min-fresh=x", REQUEST),
        // Section 5.2.1.4: no-cache.
        ("no-cache", REQUEST),
        ("max-stale", FRESH),
        ("no-transform", FRESH),
    ] {
        let lines = [("cache-control", value)];
        assert_eq!(
            decision(&lines, "max-age=60", 10, &trusted()),
            expected,
            "{value}"
        );
    }
}

#[test]
fn section_5_4_pragma_counts_without_cache_control() {
    let pragma = ("pragma", "no-cache");
    assert_eq!(decision(&[pragma], "max-age=60", 10, &trusted()), REQUEST);
    let both = [pragma, ("cache-control", "max-age=60")];
    assert_eq!(decision(&both, "max-age=60", 10, &trusted()), FRESH);
}

#[test]
fn section_5_2_1_2_max_stale_of_trusted_clients() {
    let stale = ReuseDecision::Stale {
        age: 70,
        refresh: false,
    };
    for (value, expected) in [
        ("max-stale", stale),
        ("max-stale=10", stale),
        ("max-stale=9", STALE),
        ("max-stale=x", STALE),
        ("max-stale=10, max-age=60", STALE),
        ("max-stale=10, no-cache", STALE),
    ] {
        let lines = [("cache-control", value)];
        assert_eq!(
            decision(&lines, "max-age=60", 70, &trusted()),
            expected,
            "{value}"
        );
    }
    // Section 4.2.4: MUST NOT send stale what forbids it.
    for forbidden in [
        "max-age=60, must-revalidate",
        "max-age=60, proxy-revalidate",
        "s-maxage=60",
        "max-age=60, no-cache",
    ] {
        let lines = [("cache-control", "max-stale")];
        assert_eq!(
            decision(&lines, forbidden, 70, &trusted()),
            STALE,
            "{forbidden}"
        );
    }
}

#[test]
fn rfc_8246_immutable_responses_are_not_validated() {
    let lines = [("cache-control", "max-age=0")];
    assert_eq!(
        decision(&lines, "max-age=60, immutable", 10, &trusted()),
        FRESH
    );
    assert_eq!(
        decision(&lines, "max-age=60, immutable", 70, &trusted()),
        STALE
    );
    let reload = [("cache-control", "no-cache")];
    assert_eq!(
        decision(&reload, "max-age=60, immutable", 10, &trusted()),
        REQUEST
    );
}
