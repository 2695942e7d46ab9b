//! Section 5.2.1: what clients ask for.

use apus_cache::policy::{ClientDirectives, Conditions, Reuse, Rules, reuse};
use apus_http::fields::ForwardReason;

use super::{Ask, Lines, at, ok, once, trusted};

const FRESH: Reuse = Reuse::Fresh { age: 10 };
const REQUEST: Reuse = Reuse::Validate(ForwardReason::Request);
const STALE: Reuse = Reuse::Validate(ForwardReason::Stale);

/// Ten seconds old of sixty, or seventy seconds old.
fn answer(lines: Lines<'_>, stored: &str, seconds: i64, conditions: &Conditions) -> Reuse {
    let stored = ok(&[("cache-control", stored), ("etag", "\"x\"")]);
    let ask = Ask::with(lines);
    reuse(
        &ask.presented(),
        &stored,
        &Rules::default(),
        conditions,
        at(seconds),
    )
}

#[test]
fn are_ignored_by_default_as_nginx_and_varnish_do() {
    for line in [
        ("cache-control", "no-cache"),
        ("cache-control", "max-age=0"),
        ("cache-control", "min-fresh=1000"),
        ("pragma", "no-cache"),
    ] {
        assert_eq!(
            answer(&[line], "max-age=60", 10, &once()),
            FRESH,
            "{line:?}"
        );
    }
    let stale = [("cache-control", "max-stale")];
    assert_eq!(answer(&stale, "max-age=60", 70, &once()), STALE);
}

#[test]
fn count_for_whom_the_configuration_says() {
    let stored = ok(&[("cache-control", "max-age=60")]);
    let ask = Ask::with(&[("cache-control", "no-cache")]);
    for (client_directives, by_others, by_trusted) in [
        (ClientDirectives::Ignore, FRESH, FRESH),
        (ClientDirectives::Trusted, FRESH, REQUEST),
        (ClientDirectives::Honour, REQUEST, REQUEST),
    ] {
        let rules = Rules {
            client_directives,
            ..Rules::default()
        };
        for (conditions, expected) in [(once(), by_others), (trusted(), by_trusted)] {
            assert_eq!(
                reuse(&ask.presented(), &stored, &rules, &conditions, at(10)),
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
            answer(&lines, "max-age=60", 10, &trusted()),
            expected,
            "{value}"
        );
    }
}

#[test]
fn section_5_4_pragma_counts_without_cache_control() {
    let pragma = ("pragma", "no-cache");
    assert_eq!(answer(&[pragma], "max-age=60", 10, &trusted()), REQUEST);
    let both = [pragma, ("cache-control", "max-age=60")];
    assert_eq!(answer(&both, "max-age=60", 10, &trusted()), FRESH);
}

#[test]
fn section_5_2_1_2_max_stale_of_trusted_clients() {
    let stale = Reuse::Stale {
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
            answer(&lines, "max-age=60", 70, &trusted()),
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
            answer(&lines, forbidden, 70, &trusted()),
            STALE,
            "{forbidden}"
        );
    }
}

#[test]
fn rfc_8246_what_is_immutable_is_not_asked_about_again() {
    let lines = [("cache-control", "max-age=0")];
    assert_eq!(
        answer(&lines, "max-age=60, immutable", 10, &trusted()),
        FRESH
    );
    assert_eq!(
        answer(&lines, "max-age=60, immutable", 70, &trusted()),
        STALE
    );
    let reload = [("cache-control", "no-cache")];
    assert_eq!(
        answer(&reload, "max-age=60, immutable", 10, &trusted()),
        REQUEST
    );
}
