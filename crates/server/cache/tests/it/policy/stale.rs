//! Section 4.2.4 and RFC 5861: stale responses.

use std::time::Duration;

use apus_cache::policy::{
    CacheRules, CachingContext, ClientDirectiveRule, ReuseDecision, StoredResponse, decide_reuse,
    may_serve_on_error,
};
use apus_http::fields::ForwardReason;

use super::{Lines, TestRequest, TestResponse, at, date, ok, once, reuse_at, try_store};

const VALIDATE: ReuseDecision = ReuseDecision::Validate(ForwardReason::Stale);

/// Stores with 100 seconds of both stale windows configured.
fn configured(lines: Lines<'_>) -> StoredResponse {
    let rules = CacheRules {
        stale_while_revalidate: Duration::from_secs(100),
        stale_if_error: Duration::from_secs(100),
        ..CacheRules::default()
    };
    let stored = try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, lines),
        &rules,
    );
    stored.unwrap().stored
}

fn on_error(stored: &StoredResponse, seconds: i64) -> Option<u32> {
    let request = TestRequest::with(&[]);
    may_serve_on_error(
        &request.presented(),
        stored,
        &CacheRules::default(),
        &once(),
        at(seconds),
    )
}

#[test]
fn honours_stale_while_revalidate_of_the_origin() {
    let stored = ok(&[("cache-control", "max-age=60, stale-while-revalidate=30")]);
    assert_eq!(reuse_at(&stored, 59), ReuseDecision::Fresh { age: 59 });
    assert_eq!(
        reuse_at(&stored, 60),
        ReuseDecision::Stale {
            age: 60,
            refresh: true
        }
    );
    assert_eq!(
        reuse_at(&stored, 89),
        ReuseDecision::Stale {
            age: 89,
            refresh: true
        }
    );
    assert_eq!(reuse_at(&stored, 90), VALIDATE);
    assert_eq!(on_error(&stored, 89), None);
}

#[test]
fn honours_stale_if_error_of_the_origin() {
    let stored = ok(&[("cache-control", "max-age=60, stale-if-error=30")]);
    assert_eq!(reuse_at(&stored, 60), VALIDATE);
    assert_eq!(on_error(&stored, 60), Some(60));
    assert_eq!(on_error(&stored, 89), Some(89));
    assert_eq!(on_error(&stored, 90), None);
}

#[test]
fn uses_configured_staleness_if_the_origin_sets_none() {
    let stored = configured(&[("cache-control", "max-age=60")]);
    assert_eq!(
        reuse_at(&stored, 159),
        ReuseDecision::Stale {
            age: 159,
            refresh: true
        }
    );
    assert_eq!(reuse_at(&stored, 160), VALIDATE);
    assert_eq!(on_error(&stored, 159), Some(159));
    assert_eq!(on_error(&stored, 160), None);
    let directives = "max-age=60, stale-while-revalidate=0, stale-if-error=0";
    let stored = configured(&[("cache-control", directives)]);
    assert_eq!(reuse_at(&stored, 60), VALIDATE);
    assert_eq!(on_error(&stored, 60), None);
}

#[test]
fn section_4_2_4_must_not_send_stale_responses_that_forbid_it() {
    let validator = ("etag", "\"x\"");
    for value in [
        "max-age=60, must-revalidate",
        "max-age=60, proxy-revalidate",
        "max-age=60, no-cache",
        "s-maxage=60",
        "max-age=60, must-revalidate, stale-while-revalidate=30, stale-if-error=30",
        "s-maxage=60, proxy-revalidate, stale-while-revalidate=30",
        // A response that has to be validated each time is never sent without validation.
        "max-age=0",
    ] {
        let stored = configured(&[("cache-control", value), validator]);
        assert_eq!(reuse_at(&stored, 60), VALIDATE, "{value}");
        // Section 5.2.2.2: MUST respond with an error, rather than with the stale response.
        assert_eq!(on_error(&stored, 60), None, "{value}");
    }
}

#[test]
fn responses_without_a_lifetime_are_not_sent_stale() {
    let stored = configured(&[("etag", "\"x\"")]);
    assert_eq!(reuse_at(&stored, 0), VALIDATE);
    assert_eq!(on_error(&stored, 0), None);
}

#[test]
fn an_origin_that_knows_rfc_5861_can_allow_it_beside_s_maxage() {
    let value = "s-maxage=60, stale-while-revalidate=30, stale-if-error=40";
    let stored = configured(&[("cache-control", value)]);
    assert_eq!(
        reuse_at(&stored, 89),
        ReuseDecision::Stale {
            age: 89,
            refresh: true
        }
    );
    assert_eq!(reuse_at(&stored, 90), VALIDATE);
    assert_eq!(on_error(&stored, 99), Some(99));
    assert_eq!(on_error(&stored, 100), None);
}

#[test]
fn stale_if_error_of_a_client_counts_if_its_directives_do() {
    let request = TestRequest::with(&[("cache-control", "stale-if-error=30")]);
    let honour = CacheRules {
        client_directives: ClientDirectiveRule::Honour,
        ..CacheRules::default()
    };
    let serve = |stored: &StoredResponse, rules: &CacheRules, seconds| {
        may_serve_on_error(&request.presented(), stored, rules, &once(), at(seconds))
    };
    let stored = ok(&[("cache-control", "max-age=60")]);
    assert_eq!(serve(&stored, &CacheRules::default(), 60), None);
    assert_eq!(serve(&stored, &honour, 89), Some(89));
    assert_eq!(serve(&stored, &honour, 90), None);
    let strict = ok(&[
        ("cache-control", "max-age=60, must-revalidate"),
        ("etag", "\"x\""),
    ]);
    assert_eq!(serve(&strict, &honour, 60), None);
}

#[test]
fn a_bypass_gets_no_stale_response() {
    let stored = ok(&[("cache-control", "max-age=60, stale-while-revalidate=30")]);
    let request = TestRequest::with(&[]);
    let conditions = CachingContext {
        bypass: true,
        ..once()
    };
    assert_eq!(
        decide_reuse(
            &request.presented(),
            &stored,
            &CacheRules::default(),
            &conditions,
            at(70)
        ),
        ReuseDecision::Forward(ForwardReason::Bypass)
    );
}

#[test]
fn a_soft_purge_makes_stale_and_keeps_the_stale_windows() {
    let value = "max-age=60, stale-while-revalidate=30, stale-if-error=40";
    let mut stored = ok(&[("cache-control", value)]);
    stored.make_stale(at(10));
    assert_eq!(
        reuse_at(&stored, 10),
        ReuseDecision::Stale {
            age: 10,
            refresh: true
        }
    );
    assert_eq!(
        reuse_at(&stored, 39),
        ReuseDecision::Stale {
            age: 39,
            refresh: true
        }
    );
    assert_eq!(reuse_at(&stored, 40), VALIDATE);
    assert_eq!(on_error(&stored, 49), Some(49));
    assert_eq!(on_error(&stored, 50), None);
    // A second purge changes nothing.
    let before = stored.clone();
    stored.make_stale(at(20));
    assert_eq!(stored, before);
}

#[test]
fn reports_until_when_it_is_useful() {
    let later = date(5);
    let value = "max-age=60, stale-while-revalidate=30, stale-if-error=40";
    assert_eq!(ok(&[("cache-control", value)]).useful_until(), at(100));
    assert_eq!(ok(&[("expires", &later)]).useful_until(), at(5));
}

#[test]
fn a_response_from_the_future_is_neither_fresh_nor_sent_stale() {
    let stored = configured(&[("cache-control", "max-age=60, max-stale=9")]);
    assert_eq!(reuse_at(&stored, 0), ReuseDecision::Fresh { age: 0 });
    // The clock was set back: by a second, a day, and to 1970.
    for seconds in [-1, -86_400, -784_111_777] {
        assert_eq!(reuse_at(&stored, seconds), VALIDATE, "{seconds}");
        assert!(!stored.is_fresh(at(seconds)), "{seconds}");
        assert_eq!(on_error(&stored, seconds), None, "{seconds}");
    }
    assert_eq!(on_error(&stored, 0), Some(0));
}
