//! Section 3: storing responses in caches.

use apus_cache::policy::{
    CacheRules, CachingContext, IgnoredFields, SetCookieRule, StatusTtl, StoreRefusal, may_store,
};
use apus_http::Method;
use std::time::Duration;

use super::{DATE, Lines, TestRequest, TestResponse, at, date, is_fresh, ok, try_ok, try_store};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");

fn status(status: u16, lines: Lines<'_>) -> Result<(), StoreRefusal> {
    let reply = TestResponse::with(status, lines);
    try_store(&TestRequest::with(&[]), &reply, &CacheRules::default()).map(|_| ())
}

fn by_rules(rules: &CacheRules, lines: Lines<'_>) -> Result<(), StoreRefusal> {
    try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, lines),
        rules,
    )
    .map(|_| ())
}

#[test]
fn section_3_must_not_store_unless_the_method_is_understood() {
    let reply = TestResponse::with(200, &[FRESH]);
    for method in [
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
    ] {
        let refused = try_store(
            &TestRequest::with(&[]).method(method.clone()),
            &reply,
            &CacheRules::default(),
        );
        assert_eq!(refused.err(), Some(StoreRefusal::Method), "{method}");
    }
}

#[test]
fn section_3_must_not_store_unless_the_status_is_final_and_its_meaning_allows_it() {
    for refused in [100, 103, 199, 304, 416] {
        assert_eq!(
            status(refused, &[FRESH]),
            Err(StoreRefusal::Status),
            "{refused}"
        );
    }
    assert_eq!(status(206, &[FRESH]), Err(StoreRefusal::Part));
    for stored in [
        200, 201, 203, 204, 299, 300, 301, 302, 303, 307, 308, 399, 404, 410,
    ] {
        assert_eq!(status(stored, &[FRESH]), Ok(()), "{stored}");
    }
}

#[test]
fn section_3_must_not_store_without_one_of_the_permissions() {
    let old = date(-100);
    let aged = ("last-modified", old.as_str());
    // By the status.
    for heuristic in [200, 203, 204, 300, 301, 308, 404, 410] {
        assert_eq!(status(heuristic, &[aged]), Ok(()), "{heuristic}");
    }
    for other in [201, 202, 299, 302, 303, 307] {
        assert_eq!(
            status(other, &[aged]),
            Err(StoreRefusal::NoLifetime),
            "{other}"
        );
        assert_eq!(
            status(other, &[("etag", "\"x\"")]),
            Err(StoreRefusal::NoLifetime)
        );
        // By a directive or a date.
        let later = date(60);
        for permission in [
            FRESH,
            ("cache-control", "s-maxage=60"),
            ("expires", later.as_str()),
        ] {
            assert_eq!(
                status(other, &[permission]),
                Ok(()),
                "{other} {permission:?}"
            );
        }
        assert_eq!(status(other, &[("cache-control", "public"), aged]), Ok(()));
    }
    assert_eq!(status(200, &[]), Err(StoreRefusal::NoLifetime));
    // By the configuration, which acts as an extension.
    let rules = CacheRules {
        ttl: vec![StatusTtl {
            first: 200,
            last: 399,
            ttl: Duration::from_secs(5),
        }],
        ..CacheRules::default()
    };
    let found = try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(302, &[]),
        &rules,
    )
    .unwrap();
    assert_eq!(found.stored.fresh_until(), at(5));
}

#[test]
fn section_3_must_not_store_responses_with_no_store_or_private() {
    for (value, refusal) in [
        ("no-store", StoreRefusal::NoStore),
        ("NO-STORE, max-age=60", StoreRefusal::NoStore),
        ("max-age=60, public, no-store", StoreRefusal::NoStore),
        ("no-store=\"x\", max-age=60", StoreRefusal::NoStore),
        ("private, max-age=60", StoreRefusal::Private),
        ("s-maxage=60, private", StoreRefusal::Private),
        ("x=\"a, private, max-age=60", StoreRefusal::Private),
    ] {
        assert_eq!(
            try_ok(&[("cache-control", value)]).err(),
            Some(refusal),
            "{value}"
        );
    }
    // Section 5.2.3: an unknown extension changes nothing, with quoted commas or without.
    assert!(try_ok(&[("cache-control", "max-age=60, x=\"no-store, private\"")]).is_ok());
    // On any of the lines.
    let lines = [FRESH, ("cache-control", "no-store")];
    assert_eq!(try_ok(&lines).err(), Some(StoreRefusal::NoStore));
}

#[test]
fn section_5_2_2_7_must_not_store_the_fields_that_private_names() {
    let stored = ok(&[
        (
            "cache-control",
            "max-age=60, private=\"X-User, set-cookie\"",
        ),
        ("x-user", "ann"),
        ("set-cookie", "a=b"),
        ("x-other", "1"),
    ]);
    assert!(!stored.headers().contains("x-user"));
    assert!(!stored.headers().contains("set-cookie"));
    assert!(stored.headers().contains("x-other"));
    assert!(is_fresh(&stored, 0));
}

#[test]
fn section_5_2_2_4_must_not_send_the_fields_that_no_cache_names_without_validation() {
    let stored = ok(&[
        ("cache-control", "max-age=60, no-cache=\"set-cookie\""),
        ("set-cookie", "a=b"),
    ]);
    assert!(!stored.headers().contains("set-cookie"));
    assert!(is_fresh(&stored, 0));
}

#[test]
fn section_5_2_2_3_must_understand() {
    let value = ("cache-control", "max-age=60, must-understand");
    let both = ("cache-control", "max-age=60, no-store, must-understand");
    assert_eq!(status(200, &[value]), Ok(()));
    // SHOULD ignore no-store if the status is understood.
    assert_eq!(status(200, &[both]), Ok(()));
    // MUST NOT store if it is not.
    assert_eq!(status(299, &[value]), Err(StoreRefusal::NotUnderstood));
    assert_eq!(status(299, &[both]), Err(StoreRefusal::NotUnderstood));
}

#[test]
fn section_3_1_must_not_store_fields_of_the_connection() {
    let stored = ok(&[
        FRESH,
        ("connection", "close, X-Hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("proxy-authenticate", "Basic"),
        ("proxy-authentication-info", "x"),
        ("proxy-authorization", "x"),
        ("age", "1"),
        ("date", DATE),
        ("content-type", "text/html"),
        ("x-unknown", "1"),
        ("x-unknown", "2"),
    ]);
    // MUST include all other fields, recognised or not, with each of their lines.
    let kept: Vec<_> = stored.headers().iter().collect();
    assert_eq!(
        kept,
        [
            ("cache-control", &b"max-age=60"[..]),
            ("date", DATE.as_bytes()),
            ("content-type", b"text/html"),
            ("x-unknown", b"1"),
            ("x-unknown", b"2"),
        ]
    );
}

#[test]
fn stores_the_time_of_receipt_as_date_if_there_is_none() {
    assert_eq!(ok(&[FRESH]).headers().get_str("date"), Some(DATE));
}

#[test]
fn does_not_store_responses_that_can_never_be_reused() {
    let old = date(-100);
    for lines in [
        &[("cache-control", "max-age=0")][..],
        &[("cache-control", "max-age=60"), ("age", "60")],
        &[("cache-control", "no-cache, max-age=60")],
        &[("expires", "0")],
    ] {
        assert_eq!(
            try_ok(lines).err(),
            Some(StoreRefusal::StaleOnArrival),
            "{lines:?}"
        );
        // With a validator it can be validated.
        for validator in [
            ("etag", "\"x\""),
            ("etag", "W/\"x\""),
            ("last-modified", old.as_str()),
        ] {
            let lines = [lines, &[validator]].concat();
            let stored = ok(&lines);
            assert!(!is_fresh(&stored, 0), "{lines:?}");
            assert!(stored.can_be_validated());
        }
        let broken = [lines, &[("etag", "x"), ("last-modified", "yesterday")]].concat();
        assert_eq!(
            try_ok(&broken).err(),
            Some(StoreRefusal::StaleOnArrival),
            "{broken:?}"
        );
    }
}

#[test]
fn does_not_store_cookies_unless_declared() {
    let lines = [FRESH, ("set-cookie", "sid=1"), ("x", "1")];
    let rules = |set_cookie| CacheRules {
        set_cookie,
        ..CacheRules::default()
    };
    assert_eq!(
        by_rules(&rules(SetCookieRule::Refuse), &lines),
        Err(StoreRefusal::SetCookie)
    );
    let public = [
        ("cache-control", "public, s-maxage=60"),
        ("set-cookie", "sid=1"),
    ];
    assert_eq!(try_ok(&public).err(), Some(StoreRefusal::SetCookie));
    for (set_cookie, is_kept) in [(SetCookieRule::Remove, false), (SetCookieRule::Keep, true)] {
        let reply = TestResponse::with(200, &lines);
        let stored = try_store(&TestRequest::with(&[]), &reply, &rules(set_cookie))
            .unwrap()
            .stored;
        assert_eq!(stored.headers().contains("set-cookie"), is_kept);
        assert!(stored.headers().contains("x"));
    }
}

#[test]
fn section_5_2_1_5_must_not_store_the_response_to_a_request_with_no_store() {
    let request = TestRequest::with(&[("cache-control", "no-store")]);
    let refused = try_store(
        &request,
        &TestResponse::with(200, &[FRESH]),
        &CacheRules::default(),
    );
    assert_eq!(refused.err(), Some(StoreRefusal::RequestNoStore));
}

#[test]
fn stores_client_errors_only_if_declared() {
    let errors = [
        400, 401, 403, 405, 408, 413, 414, 429, 431, 500, 501, 502, 503, 504,
    ];
    let ttl = StatusTtl {
        first: 400,
        last: 599,
        ttl: Duration::from_secs(5),
    };
    let named = CacheRules {
        ttl: vec![ttl],
        ..CacheRules::default()
    };
    let all = CacheRules {
        store_errors: true,
        ..CacheRules::default()
    };
    for error in errors {
        assert_eq!(
            status(error, &[FRESH]),
            Err(StoreRefusal::Status),
            "{error}"
        );
        for (rules, seconds) in [(&named, 60), (&all, 60)] {
            let stored = try_store(
                &TestRequest::with(&[]),
                &TestResponse::with(error, &[FRESH]),
                rules,
            )
            .unwrap();
            assert_eq!(stored.stored.fresh_until(), at(seconds), "{error}");
        }
        let short = try_store(
            &TestRequest::with(&[]),
            &TestResponse::with(error, &[]),
            &named,
        )
        .unwrap();
        assert_eq!(short.stored.fresh_until(), at(5));
    }
}

#[test]
fn honours_the_configuration_of_the_request() {
    let rules = CacheRules {
        minimum_uses: 3,
        ..CacheRules::default()
    };
    let store = |uses, no_store, bypass| {
        let conditions = CachingContext {
            uses,
            no_store,
            bypass,
            is_trusted: false,
        };
        let reply = TestResponse::with(200, &[FRESH]);
        may_store(
            &TestRequest::with(&[]).presented(),
            &reply.response(),
            &rules,
            &conditions,
        )
        .map(|_| ())
    };
    assert_eq!(store(2, false, false), Err(StoreRefusal::TooFewUses));
    assert_eq!(store(3, false, false), Ok(()));
    assert_eq!(store(3, true, false), Err(StoreRefusal::Configured));
    // A response that bypassed the cache is the newest.
    assert_eq!(store(3, false, true), Ok(()));
}

#[test]
fn refuses_bodies_that_are_known_to_be_too_large() {
    let rules = CacheRules {
        max_size: 100,
        ..CacheRules::default()
    };
    let sized = |length| by_rules(&rules, &[FRESH, ("content-length", length)]);
    assert_eq!(sized("100"), Ok(()));
    assert_eq!(sized("101"), Err(StoreRefusal::TooLarge));
    assert_eq!(by_rules(&rules, &[FRESH]), Ok(()));
}

#[test]
fn ignores_configured_fields() {
    let ttl = vec![StatusTtl {
        first: 200,
        last: 200,
        ttl: Duration::from_secs(7),
    }];
    let later = date(60);
    let until = |ignored, lines: Lines<'_>| {
        let rules = CacheRules {
            ignored,
            ttl: ttl.clone(),
            ..CacheRules::default()
        };
        try_store(
            &TestRequest::with(&[]),
            &TestResponse::with(200, lines),
            &rules,
        )
        .map(|storable| storable.stored.fresh_until())
    };
    let none = IgnoredFields::default();
    let cache_control = IgnoredFields {
        cache_control: true,
        ..none
    };
    let expires = IgnoredFields {
        expires: true,
        ..none
    };
    let vary = IgnoredFields { vary: true, ..none };
    for value in ["no-store", "private", "max-age=60", "no-cache"] {
        assert_eq!(
            until(cache_control, &[("cache-control", value)]),
            Ok(at(7)),
            "{value}"
        );
    }
    assert_eq!(
        until(cache_control, &[FRESH, ("expires", &later)]),
        Ok(at(60))
    );
    assert_eq!(until(expires, &[("expires", &later)]), Ok(at(7)));
    assert_eq!(until(expires, &[("expires", "0")]), Ok(at(7)));
    assert_eq!(until(expires, &[FRESH]), Ok(at(60)));
    assert_eq!(
        until(none, &[FRESH, ("vary", "*")]),
        Err(StoreRefusal::VaryAny)
    );
    assert_eq!(until(vary, &[FRESH, ("vary", "*")]), Ok(at(60)));
}

#[test]
fn does_not_store_responses_to_requests_with_unkeyed_input() {
    let store = |line, rules: &CacheRules| {
        try_store(
            &TestRequest::with(&[line]),
            &TestResponse::with(200, &[FRESH]),
            rules,
        )
        .err()
    };
    for line in [
        ("x-http-method-override", "POST"),
        ("x-original-url", "/admin"),
        ("x-rewrite-url", "/admin"),
    ] {
        assert_eq!(
            store(line, &CacheRules::default()),
            Some(StoreRefusal::UnkeyedInput),
            "{line:?}"
        );
    }
    // The body itself counts, whatever the fields say: HTTP/2 needs none to announce it.
    let with_body = TestRequest {
        has_body: true,
        ..TestRequest::with(&[("content-length", "0")])
    };
    let refused = try_store(
        &with_body,
        &TestResponse::with(200, &[FRESH]),
        &CacheRules::default(),
    )
    .err();
    assert_eq!(refused, Some(StoreRefusal::UnkeyedInput));
    assert_eq!(store(("content-length", "1"), &CacheRules::default()), None);
    let mut rules = CacheRules::default();
    rules.key.headers.push("x-original-url".into());
    assert_eq!(store(("x-original-url", "/admin"), &rules), None);
}

#[test]
fn stores_tags_and_hides_their_fields() {
    let lines = [
        FRESH,
        ("surrogate-key", "b a a"),
        ("cache-tag", "c d, e"),
        ("xkey", "f"),
    ];
    let stored = ok(&lines);
    let tags: Vec<_> = stored.tags().collect();
    assert_eq!(tags, [&b"a"[..], b"b", b"c d", b"e", b"f"]);
    assert!(!stored.headers().contains("surrogate-key"));
    let rules = CacheRules {
        hide_tags: false,
        ..CacheRules::default()
    };
    let shown = try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, &lines),
        &rules,
    )
    .unwrap();
    assert!(shown.stored.headers().contains("surrogate-key"));
    let many = (0..1000)
        .map(|tag| tag.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(ok(&[FRESH, ("surrogate-key", &many)]).tags().count(), 256);
}

#[test]
fn does_not_store_internal_redirects() {
    for name in ["x-accel-redirect", "x-sendfile"] {
        let lines = [FRESH, (name, "/protected/file")];
        assert_eq!(
            try_ok(&lines).err(),
            Some(StoreRefusal::InternalRedirect),
            "{name}"
        );
    }
}

#[test]
fn x_accel_expires_takes_precedence() {
    let no_store = ("cache-control", "no-store");
    let until = |value| {
        let lines = [no_store, ("expires", "0"), ("x-accel-expires", value)];
        try_ok(&lines).map(|stored| stored.fresh_until())
    };
    assert_eq!(until("10"), Ok(at(10)));
    assert_eq!(until("@784111797"), Ok(at(20)));
    assert_eq!(until("0"), Err(StoreRefusal::NoStore));
    assert_eq!(until("@1"), Err(StoreRefusal::NoStore));
    assert_eq!(until("soon"), Err(StoreRefusal::NoStore));
    let rules = CacheRules {
        accel_expires: false,
        ..CacheRules::default()
    };
    let lines = [FRESH, ("x-accel-expires", "10")];
    let stored = try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, &lines),
        &rules,
    )
    .unwrap()
    .stored;
    assert_eq!(stored.fresh_until(), at(60));
}

#[test]
fn uses_no_heuristic_if_it_is_disabled() {
    let old = date(-1000);
    let rules = CacheRules {
        heuristic: None,
        ..CacheRules::default()
    };
    let stored = try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, &[("last-modified", &old)]),
        &rules,
    );
    // It is stored for validation only.
    assert!(!is_fresh(&stored.unwrap().stored, 0));
}
