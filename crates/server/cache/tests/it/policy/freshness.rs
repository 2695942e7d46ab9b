//! Section 4.2: freshness.

use std::time::Duration;

use apus_cache::policy::{CacheRules, HeuristicLifetime, StatusTtl, Timestamp};

use super::{
    DATE, Lines, NOW, TestRequest, TestResponse, assert_fresh_until, at, date, ok, try_store,
};

#[test]
fn section_4_2_1_uses_the_first_source_that_is_present() {
    let (later, old) = (date(30), date(-1000));
    let all = [
        ("cache-control", "s-maxage=10"),
        ("cache-control", "max-age=20"),
        ("expires", later.as_str()),
        ("last-modified", old.as_str()),
    ];
    for (skipped, seconds) in [(0, 10), (1, 20), (2, 30), (3, 100)] {
        assert_fresh_until(&ok(&all[skipped..]), seconds, &skipped);
    }
}

#[test]
fn section_4_2_1_honours_the_most_restrictive_of_conflicting_directives() {
    let (early, late) = (date(10), date(20));
    let validator = ("etag", "\"x\"");
    for (lines, seconds) in [
        (&[("cache-control", "max-age=10, max-age=10")][..], 10),
        (&[("cache-control", "max-age=10, max-age=20")], 0),
        (
            &[
                ("cache-control", "max-age=20"),
                ("cache-control", "max-age=10"),
            ],
            0,
        ),
        (
            &[("cache-control", "s-maxage=10, s-maxage=20, max-age=30")],
            0,
        ),
        (&[("expires", &early), ("expires", &late)], 0),
        (&[("expires", &early), ("expires", &early)], 10),
        // SHOULD consider responses with invalid freshness information stale.
        (&[("cache-control", "max-age=10.0")], 0),
        (&[("cache-control", "max-age=-10")], 0),
        (&[("cache-control", "max-age=x")], 0),
        (&[("cache-control", "max-age"), ("expires", &late)], 0),
        (&[("cache-control", "s-maxage=x, max-age=10")], 0),
        (&[("cache-control", "max-age=\"10\"")], 10),
    ] {
        let lines = [lines, &[validator]].concat();
        assert_fresh_until(&ok(&lines), seconds, &lines);
    }
}

#[test]
fn section_1_2_2_takes_numbers_that_are_too_large_for_the_largest() {
    for value in ["max-age=2147483648", "max-age=99999999999999999999999"] {
        let stored = ok(&[("cache-control", value)]);
        assert_eq!(stored.fresh_until(), at(1 << 31), "{value}");
    }
}

#[test]
fn section_5_3_must_take_invalid_expires_for_the_past() {
    let late = date(20);
    for value in [
        "0",
        "-1",
        "",
        "never",
        "20",
        "Sun, 06 Nov 2094 08:49:37",
        "Sun, 06 Nov 2094 08:49:37 PST",
        DATE,
    ] {
        let stored = ok(&[("expires", value), ("etag", "\"x\"")]);
        assert_fresh_until(&stored, 0, &value);
    }
    // All three forms of dates count.
    for value in [
        "Sun, 06 Nov 1994 08:49:57 GMT",
        "Sunday, 06-Nov-94 08:49:57 GMT",
        "Sun Nov  6 08:49:57 1994",
    ] {
        assert_fresh_until(&ok(&[("expires", value)]), 20, &value);
    }
    // MUST ignore it beside max-age or s-maxage.
    for value in ["max-age=10", "s-maxage=10"] {
        assert_fresh_until(
            &ok(&[("cache-control", value), ("expires", "0")]),
            10,
            &value,
        );
        assert_fresh_until(
            &ok(&[("cache-control", value), ("expires", &late)]),
            10,
            &value,
        );
    }
}

#[test]
fn section_4_2_should_take_names_in_dates_in_any_case() {
    for value in [
        "sun, 06 nov 1994 08:49:57 gmt",
        "SUN, 06 NOV 1994 08:49:57 GMT",
        "sUNDAY, 06-nOV-94 08:49:57 gMT",
        "sun nov  6 08:49:57 1994",
    ] {
        assert_fresh_until(&ok(&[("expires", value)]), 20, &value);
        // The clock of the origin is twenty seconds ahead.
        let late = date(60);
        let stored = ok(&[("date", value), ("expires", &late)]);
        assert_fresh_until(&stored, 40, &value);
    }
}

#[test]
fn section_4_2_1_counts_expires_from_date() {
    // The clock of the origin is ten seconds behind.
    let (earlier, later) = (date(-10), date(20));
    let stored = ok(&[("date", &earlier), ("expires", &later)]);
    assert_fresh_until(&stored, 20, &"the lifetime is 30, and the age 10");
    let ahead = date(10);
    let stored = ok(&[("date", &ahead), ("expires", &later)]);
    assert_fresh_until(&stored, 10, &"the lifetime is 10, and the age 0");
}

#[test]
fn section_4_2_2_guesses_a_part_of_the_time_since_the_last_change() {
    let until = |rules: &CacheRules, target: &str, lines: Lines<'_>| {
        let stored = try_store(
            &TestRequest::target(target),
            &TestResponse::with(200, lines),
            rules,
        );
        stored.map(|storable| storable.stored.fresh_until())
    };
    let rules = CacheRules::default();
    let (old, older) = (date(-1000), date(-100_000_000));
    let later = date(60);
    assert_eq!(until(&rules, "/", &[("last-modified", &old)]), Ok(at(100)));
    // Up to a day.
    assert_eq!(
        until(&rules, "/", &[("last-modified", &older)]),
        Ok(at(86400))
    );
    // Not for dynamic responses.
    assert_eq!(until(&rules, "/?q", &[("last-modified", &old)]), Ok(at(0)));
    // MUST NOT use a heuristic if there is an explicit time.
    let lines = [
        ("last-modified", old.as_str()),
        ("cache-control", "max-age=0"),
    ];
    assert_eq!(until(&rules, "/", &lines), Ok(at(0)));
    assert_eq!(
        until(&rules, "/", &[("last-modified", &old), ("expires", "0")]),
        Ok(at(0))
    );
    // A modification in the future is not in the past.
    let lines = [("last-modified", later.as_str()), ("etag", "\"x\"")];
    assert_eq!(until(&rules, "/", &lines), Ok(at(0)));
    let other = CacheRules {
        heuristic: Some(HeuristicLifetime {
            percent: 50,
            max: Duration::from_secs(200),
            with_query: true,
        }),
        ..CacheRules::default()
    };
    let recent = date(-100);
    assert_eq!(
        until(&other, "/?q", &[("last-modified", &recent)]),
        Ok(at(50))
    );
    assert_eq!(
        until(&other, "/?q", &[("last-modified", &old)]),
        Ok(at(200))
    );
}

#[test]
fn section_4_2_3_calculates_the_age() {
    let lines = |age: &'static str| {
        [
            ("cache-control", "max-age=60"),
            ("date", DATE),
            ("age", age),
        ]
    };
    let age_of = |reply: &TestResponse, seconds| {
        let stored = try_store(&TestRequest::with(&[]), reply, &CacheRules::default())
            .unwrap()
            .stored;
        (stored.age(at(seconds)), stored.fresh_until())
    };
    // `age_value`
    assert_eq!(
        age_of(&TestResponse::with(200, &lines("7")), 3),
        (10, at(53))
    );
    assert_eq!(
        age_of(&TestResponse::with(200, &lines("7, 50")), 3),
        (10, at(53))
    );
    // Section 5.1: invalid values SHOULD be ignored.
    for invalid in ["-7", "7.5", "x", ""] {
        assert_eq!(
            age_of(&TestResponse::with(200, &lines(invalid)), 3),
            (3, at(60)),
            "{invalid}"
        );
    }
    // apparent_age: the response was five seconds old by its Date at its receipt.
    assert_eq!(
        age_of(&TestResponse::with(200, &lines("0")).received(5), 8),
        (8, at(60))
    );
    // `response_delay` counts, because the age may have been computed when the response began.
    let slow = TestResponse {
        requested: at(-4),
        ..TestResponse::with(200, &lines("7"))
    };
    assert_eq!(age_of(&slow, 3), (14, at(49)));
    // The larger of both.
    assert_eq!(
        age_of(&TestResponse::with(200, &lines("7")).received(5), 8),
        (10, at(58))
    );
    assert_eq!(
        age_of(&TestResponse::with(200, &lines("2")).received(5), 8),
        (8, at(60))
    );
    // A clock that is ahead makes no response younger than new.
    let future = date(100);
    let ahead = TestResponse::with(200, &[("cache-control", "max-age=60"), ("date", &future)]);
    assert_eq!(age_of(&ahead, 3), (3, at(60)));
    // Invalid dates.
    let broken = TestResponse::with(200, &[("cache-control", "max-age=60"), ("date", "today")]);
    assert_eq!(age_of(&broken, 3), (3, at(60)));
}

#[test]
fn fractions_of_a_second_are_not_age() {
    let reply = TestResponse {
        requested: Timestamp::from_unix_millis(NOW * 1000 + 990),
        received: Timestamp::from_unix_millis(NOW * 1000 + 990),
        ..TestResponse::with(200, &[("cache-control", "max-age=1"), ("date", DATE)])
    };
    let stored = try_store(&TestRequest::with(&[]), &reply, &CacheRules::default())
        .unwrap()
        .stored;
    assert_eq!(stored.fresh_until().as_unix_millis(), NOW * 1000 + 1990);
    assert!(stored.is_fresh(Timestamp::from_unix_millis(NOW * 1000 + 1989)));
    assert!(!stored.is_fresh(stored.fresh_until()));
}

#[test]
fn uses_configured_lifetimes() {
    let ttl = |first, last, seconds| StatusTtl {
        first,
        last,
        ttl: Duration::from_secs(seconds),
    };
    let rules = CacheRules {
        ttl: vec![ttl(200, 200, 5), ttl(404, 404, 2), ttl(100, 599, 9)],
        ..CacheRules::default()
    };
    let overriding = CacheRules {
        ttl_overrides: true,
        ..rules.clone()
    };
    let capped = CacheRules {
        max_ttl: Some(Duration::from_secs(3)),
        ..rules.clone()
    };
    let until = |rules: &CacheRules, status, lines: Lines<'_>| {
        let reply = TestResponse::with(status, lines);
        try_store(&TestRequest::with(&[]), &reply, rules)
            .unwrap()
            .stored
            .fresh_until()
    };
    let (old, long_ago) = (date(-1000), date(-50));
    for (status, seconds) in [(200, 5), (404, 2), (302, 9)] {
        assert_eq!(until(&rules, status, &[]), at(seconds));
        // Before heuristics, and from the receipt, whatever the clock of the origin says.
        assert_eq!(
            until(&rules, status, &[("last-modified", &old)]),
            at(seconds)
        );
        assert_eq!(until(&rules, status, &[("date", &long_ago)]), at(seconds));
        // With a longer or a shorter lifetime than the origin gives.
        let lines = [("cache-control", "max-age=60")];
        assert_eq!(until(&rules, status, &lines), at(60));
        assert_eq!(until(&overriding, status, &lines), at(seconds));
        assert_eq!(until(&capped, status, &lines), at(3));
    }
    let refused = TestResponse::with(200, &[("cache-control", "private")]);
    assert!(try_store(&TestRequest::with(&[]), &refused, &overriding).is_err());
}

#[test]
fn reports_the_remaining_lifetime() {
    let stored = ok(&[("cache-control", "max-age=60")]);
    for (seconds, ttl) in [(0, 60), (59, 1), (60, 0), (70, -10)] {
        assert_eq!(stored.ttl(at(seconds)), ttl);
    }
}
