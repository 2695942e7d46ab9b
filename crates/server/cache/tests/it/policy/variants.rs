//! Section 4.1: calculating cache keys with the Vary header field.

use apus_cache::policy::{CacheRules, ReuseDecision, StoreRefusal, StoredResponse, decide_reuse};
use apus_http::fields::ForwardReason;

use super::{Lines, TestRequest, TestResponse, at, once, try_ok, try_store};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

fn stored_for(request: Lines<'_>, vary: &str) -> StoredResponse {
    let reply = TestResponse::with(200, &[FRESH, ("vary", vary)]);
    try_store(&TestRequest::with(request), &reply, &CacheRules::default())
        .unwrap()
        .stored
}

#[track_caller]
fn assert_matches(vary: &str, one: Lines<'_>, other: Lines<'_>, expected: bool) {
    for (one, other) in [(one, other), (other, one)] {
        let stored = stored_for(one, vary);
        assert!(stored.matches(&TestRequest::with(one).presented()));
        let request = TestRequest::with(other);
        assert_eq!(
            stored.matches(&request.presented()),
            expected,
            "{one:?} {other:?}"
        );
        let decision = decide_reuse(
            &request.presented(),
            &stored,
            &CacheRules::default(),
            &once(),
            at(0),
        );
        let expected = if expected {
            ReuseDecision::Fresh { age: 0 }
        } else {
            ReuseDecision::Forward(ForwardReason::VaryMiss)
        };
        assert_eq!(decision, expected, "{one:?} {other:?}");
    }
}

#[test]
fn does_not_reuse_unless_all_vary_fields_match() {
    assert_matches("X", &[("x", "1")], &[("x", "1"), ("y", "2")], true);
    assert_matches("X", &[("x", "1")], &[("x", "2")], false);
    assert_matches(
        "x, y",
        &[("x", "1"), ("y", "1")],
        &[("x", "1"), ("y", "2")],
        false,
    );
    assert_matches(
        "x, y",
        &[("y", "1"), ("x", "1")],
        &[("x", "1"), ("y", "1")],
        true,
    );
    assert_matches("x", &[("x", "a"), ("x", "b")], &[("x", "a, b")], true);
    assert_matches("x", &[("x", "a")], &[("x", "A")], false);
    assert_matches("x, y", &[("x", "a")], &[("y", "a")], false);
}

#[test]
fn an_absent_field_matches_only_an_absent_one() {
    assert_matches("x", &[], &[], true);
    assert_matches("x", &[], &[("x", "")], false);
    assert_matches("accept-encoding", &[], &[("accept-encoding", "")], false);
}

#[test]
fn vary_star_never_matches() {
    for vary in ["*", "x, *", "*, accept-encoding", "x y"] {
        assert_eq!(
            try_ok(&[FRESH, ("vary", vary)]).err(),
            Some(StoreRefusal::VaryAny),
            "{vary}"
        );
    }
    assert!(try_ok(&[FRESH, ("vary", "")]).is_ok());
}

#[test]
fn too_many_vary_fields_are_refused() {
    let names = |count| {
        (0..count)
            .map(|at| format!("x-{at}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    assert!(try_ok(&[FRESH, ("vary", &names(8))]).is_ok());
    assert_eq!(
        try_ok(&[FRESH, ("vary", &names(9))]).err(),
        Some(StoreRefusal::VaryTooMany)
    );
}

#[test]
fn equivalent_accept_encoding_values_match() {
    let accept = |value| [("accept-encoding", value)];
    for (one, other, expected) in [
        ("gzip, br", "br,gzip", true),
        ("gzip, br", "GZIP;q=1.0, br;q=1", true),
        ("gzip, deflate, br, zstd", "zstd,br , gzip,deflate", true),
        // An unknown coding makes no variant.
        ("gzip", "gzip, invented-1234", true),
        ("", "invented", true),
        ("identity", "", true),
        ("gzip", "gzip, deflate", false),
        ("gzip, deflate;q=0", "gzip", true),
        ("gzip, br", "gzip", false),
        ("gzip;q=0.5, br", "gzip, br;q=0.5", false),
        ("gzip;q=0", "gzip", false),
        ("*", "gzip", false),
        // With `*` an origin may use codings that the other client does not accept.
        ("*", "br, zstd, gzip", false),
        ("*", "br, zstd, gzip, deflate, compress, dcb, dcz", true),
        ("*, deflate;q=0", "br, zstd, gzip, compress, dcb, dcz", true),
        ("*;q=0, gzip", "gzip, identity;q=0", true),
        // The value of browsers, and equivalent ones.
        ("gzip, deflate, br, zstd", "gzip,deflate,br,zstd", true),
        ("gzip, deflate, br", "gzip,deflate,br", true),
        ("gzip, deflate", "gzip,deflate", true),
        ("gzip", "gzip ", true),
        ("gzip", "gzip,", true),
        ("identity;q=0, gzip", "gzip", false),
    ] {
        assert_matches("accept-encoding", &accept(one), &accept(other), expected);
    }
}

#[test]
fn languages_match_regardless_of_white_space_between_them() {
    let accept = |value| [("accept-language", value)];
    assert_matches(
        "accept-language",
        &accept("de, en;q=0.5"),
        &accept("de,en ; q=0.5"),
        true,
    );
    assert_matches(
        "accept-language",
        &accept("de, en"),
        &accept("en, de"),
        false,
    );
}

#[test]
fn a_value_that_an_application_could_tell_apart_is_another_variant() {
    for (name, one, other) in [
        ("accept", "application/json", "Application/JSON"),
        ("accept", "text/html; x=\"a b\"", "text/html; x=\"ab\""),
        ("accept", "text/html, */*", "text/html,*/*"),
        ("accept-charset", "utf-8", "UTF-8"),
        ("accept-language", "de", "DE"),
        ("accept-language", "de", "d e"),
        ("prefer", "return=minimal", "Return=Minimal"),
        ("prefer", "x=\"a b\"", "x=\"ab\""),
        ("x-requested-with", "XMLHttpRequest", "xmlhttprequest"),
        ("x-requested-with", "XMLHttpRequest", "XML HttpRequest"),
    ] {
        assert_matches(name, &[(name, one)], &[(name, other)], false);
        assert_matches(name, &[(name, one)], &[(name, one)], true);
    }
}

#[test]
fn a_device_replaces_user_agent() {
    let request = |agent, device| TestRequest {
        device,
        ..TestRequest::with(&[("user-agent", agent)])
    };
    let reply = TestResponse::with(200, &[FRESH, ("vary", "user-agent")]);
    let first = request("one", Some("phone"));
    let stored = try_store(&first, &reply, &CacheRules::default())
        .unwrap()
        .stored;
    assert!(stored.matches(&request("two", Some("phone")).presented()));
    assert!(!stored.matches(&request("one", Some("desktop")).presented()));
    assert!(!stored.matches(&request("phone", None).presented()));
}

#[test]
fn encoded_responses_go_only_to_clients_that_accept_the_coding() {
    let gzip = TestRequest::with(&[("accept-encoding", "gzip")]);
    let ignoring = CacheRules {
        ignored: apus_cache::policy::IgnoredFields {
            vary: true,
            ..Default::default()
        },
        ..CacheRules::default()
    };
    for rules in [&CacheRules::default(), &ignoring] {
        let reply = TestResponse::with(200, &[FRESH, ("content-encoding", "gzip")]);
        let stored = try_store(&gzip, &reply, rules).unwrap().stored;
        assert!(stored.matches(&gzip.presented()));
        assert!(!stored.matches(&TestRequest::with(&[]).presented()));
        let fields: Vec<_> = stored.vary().fields().collect();
        assert_eq!(fields, ["accept-encoding"]);
    }
    let invented = TestResponse::with(200, &[FRESH, ("content-encoding", "invented")]);
    let refused = try_store(&gzip, &invented, &CacheRules::default());
    assert_eq!(refused.err(), Some(StoreRefusal::UnknownCoding));
    let plain = TestResponse::with(200, &[FRESH, ("content-encoding", "identity")]);
    assert!(
        try_store(&gzip, &plain, &CacheRules::default())
            .unwrap()
            .stored
            .vary()
            .is_empty()
    );
}
