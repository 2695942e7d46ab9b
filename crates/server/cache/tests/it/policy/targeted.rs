//! RFC 9213: targeted cache control.

use apus_cache::policy::{CacheRules, StoreRefusal};

use super::{Lines, TestRequest, TestResponse, at, date, try_ok, try_store};

fn until(lines: Lines<'_>) -> Result<super::Timestamp, StoreRefusal> {
    try_ok(lines).map(|stored| stored.fresh_until())
}

#[test]
fn replaces_cache_control_and_expires() {
    let later = date(20);
    let targeted = ("cdn-cache-control", "max-age=10");
    for line in [
        ("cache-control", "no-store"),
        ("cache-control", "private"),
        ("cache-control", "s-maxage=60"),
        ("expires", later.as_str()),
        ("expires", "0"),
    ] {
        assert_eq!(until(&[line, targeted]), Ok(at(10)), "{line:?}");
    }
    let lines = [
        ("cache-control", "max-age=60"),
        ("cdn-cache-control", "no-store"),
    ];
    assert_eq!(until(&lines), Err(StoreRefusal::NoStore));
    // Even without a lifetime in it, Expires does not count.
    let lines = [
        ("expires", later.as_str()),
        ("cdn-cache-control", "must-revalidate"),
    ];
    assert_eq!(until(&lines), Err(StoreRefusal::NoLifetime));
}

#[test]
fn an_invalid_dictionary_counts_as_absent() {
    for broken in [
        "",
        "max-age=10,",
        "MAX-AGE=10",
        "max-age= 10",
        "max-age=\"",
        "max-age=10, x=(",
    ] {
        let lines = [
            ("cache-control", "max-age=60"),
            ("cdn-cache-control", broken),
        ];
        assert_eq!(until(&lines), Ok(at(60)), "{broken}");
    }
}

#[test]
fn values_of_another_type_are_ignored() {
    for other in ["max-age=\"10\"", "max-age=10.5", "max-age", "max-age=?0"] {
        let lines = [
            ("cache-control", "max-age=60"),
            ("cdn-cache-control", other),
        ];
        assert_eq!(until(&lines), Err(StoreRefusal::NoLifetime), "{other}");
    }
}

#[test]
fn the_first_listed_field_counts() {
    let lines = [
        ("cdn-cache-control", "max-age=10"),
        ("apus-cache-control", "max-age=5"),
        ("other-cache-control", "max-age=1"),
    ];
    let rules = CacheRules {
        targeted: vec!["apus-cache-control".into(), "cdn-cache-control".into()],
        ..CacheRules::default()
    };
    let stored = try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, &lines),
        &rules,
    )
    .unwrap()
    .stored;
    assert_eq!(stored.fresh_until(), at(5));
    // The fields are forwarded.
    assert!(stored.headers().contains("cdn-cache-control"));
    let none = CacheRules {
        targeted: Vec::new(),
        ..CacheRules::default()
    };
    let refused = try_store(
        &TestRequest::with(&[]),
        &TestResponse::with(200, &lines),
        &none,
    );
    assert_eq!(refused.err(), Some(StoreRefusal::NoLifetime));
}
