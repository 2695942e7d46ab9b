//! Sections 3.3 and 3.4: partial content, and combining it.

use apus_cache::policy::{Part, Refusal, Rules, Stored};
use apus_http::StatusCode;
use apus_http::fields::ByteRange;

use super::{Ask, DATE, Lines, Reply, date, headers, try_store};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");
const TAG: (&str, &str) = ("etag", "\"x\"");
const RANGE: (&str, &str) = ("content-range", "bytes 10-19/100");

fn store(lines: Lines<'_>, rules: &Rules) -> Result<(Stored, Option<Part>), Refusal> {
    let reply = Reply::with(206, lines);
    try_store(&Ask::with(&[("range", "bytes=10-19")]), &reply, rules)
        .map(|storable| (storable.stored, storable.part))
}

#[test]
fn a_part_is_stored_as_one_of_the_whole() {
    let (stored, part) = store(
        &[FRESH, TAG, RANGE, ("content-length", "10")],
        &Rules::default(),
    )
    .unwrap();
    let range = ByteRange { start: 10, len: 10 };
    assert_eq!(
        part,
        Some(Part {
            range,
            complete: 100
        })
    );
    // Section 3.4: MUST NOT be sent as if it were the whole, nor the whole as it.
    assert_eq!(stored.status(), StatusCode::OK);
    assert_eq!(stored.headers().get_str("content-length"), Some("100"));
    assert!(!stored.headers().contains("content-range"));
}

#[test]
fn section_3_must_not_store_parts_without_understanding_them() {
    let rules = Rules {
        store_parts: false,
        ..Rules::default()
    };
    assert_eq!(
        store(&[FRESH, TAG, RANGE], &rules).err(),
        Some(Refusal::Part)
    );
    for range in [
        "bytes 10-19/*",
        "bytes */100",
        "bytes 19-10/100",
        "bytes 10-100/100",
        "bytes 10-/100",
        "bytes 1 0-19/100",
        "bytes +10-19/100",
        "lines 10-19/100",
        "10-19/100",
        "bytes 10-19/18446744073709551616",
        "",
    ] {
        let lines = [FRESH, TAG, ("content-range", range)];
        assert_eq!(
            store(&lines, &Rules::default()).err(),
            Some(Refusal::Part),
            "{range}"
        );
    }
    for lines in [
        &[FRESH, TAG][..],
        &[FRESH, TAG, RANGE, RANGE],
        &[FRESH, TAG, RANGE, ("content-length", "11")],
        &[
            FRESH,
            TAG,
            ("content-type", "multipart/byteranges; boundary=x"),
        ],
    ] {
        assert_eq!(
            store(lines, &Rules::default()).err(),
            Some(Refusal::Part),
            "{lines:?}"
        );
    }
    let small = Rules {
        max_size: 99,
        ..Rules::default()
    };
    assert_eq!(
        store(&[FRESH, TAG, RANGE], &small).err(),
        Some(Refusal::TooLarge)
    );
}

#[test]
fn section_3_4_must_not_combine_without_the_same_strong_validator() {
    let (old, just_now) = (date(-100), DATE);
    let strong = ("last-modified", old.as_str());
    // A strong validator, or none.
    for (lines, expected) in [
        (&[TAG][..], Some("\"x\"")),
        (&[("date", DATE), strong], Some(old.as_str())),
        (&[TAG, ("date", DATE), strong], Some("\"x\"")),
        (&[("etag", "W/\"x\"")], None),
        (&[("etag", "W/\"x\""), ("date", DATE), strong], None),
        // What changed in the very second can change again in it.
        (&[("date", DATE), ("last-modified", just_now)], None),
        (&[strong], None),
        (&[], None),
    ] {
        let whole = super::ok(&[&[FRESH], lines].concat());
        assert_eq!(
            whole.has_strong_validator(),
            expected.is_some(),
            "{lines:?}"
        );
        assert_eq!(whole.if_range(), expected.map(str::as_bytes), "{lines:?}");
        assert_eq!(whole.may_combine(&whole), expected.is_some(), "{lines:?}");
        let part = store(&[&[FRESH, RANGE], lines].concat(), &Rules::default());
        assert_eq!(part.is_ok(), expected.is_some(), "{lines:?}");
    }
    let [x, y] = ["\"x\"", "\"y\""].map(|tag| super::ok(&[FRESH, ("etag", tag)]));
    assert!(!x.may_combine(&y));
}

#[test]
fn ranges_are_honoured_only_for_the_version_that_if_range_names() {
    let stored = super::ok(&[FRESH, TAG]);
    let allow = |value| {
        stored
            .validators()
            .allow_range(&headers(&[("if-range", value)]))
    };
    assert!(allow("\"x\""));
    assert!(!allow("\"y\""));
    // It has no Last-Modified; its Date is not one.
    assert!(!allow(DATE));
}
