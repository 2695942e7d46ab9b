//! Sections 3.3 and 3.4: partial content, and combining it.

use apus_cache::policy::{CacheRules, ContentRange, StoreRefusal, StoredResponse};
use apus_http::StatusCode;
use apus_http::fields::ByteRange;

use super::{DATE, Lines, TestRequest, TestResponse, date, headers, ok, try_store};

const FRESH: (&str, &str) = ("cache-control", "max-age=60");
const TAG: (&str, &str) = ("etag", "\"x\"");
const RANGE: (&str, &str) = ("content-range", "bytes 10-19/100");

fn store(
    lines: Lines<'_>,
    rules: &CacheRules,
) -> Result<(StoredResponse, Option<ContentRange>), StoreRefusal> {
    let reply = TestResponse::with(206, lines);
    try_store(
        &TestRequest::with(&[("range", "bytes=10-19")]),
        &reply,
        rules,
    )
    .map(|storable| (storable.stored, storable.part))
}

#[test]
fn a_partial_response_is_stored_as_part_of_the_complete_one() {
    let (stored, part) = store(
        &[FRESH, TAG, RANGE, ("content-length", "10")],
        &CacheRules::default(),
    )
    .unwrap();
    let range = ByteRange { start: 10, len: 10 };
    assert_eq!(
        part,
        Some(ContentRange {
            range,
            complete: 100
        })
    );
    // Section 3.4: a partial response MUST NOT be sent as the complete one, nor the reverse.
    assert_eq!(stored.status(), StatusCode::OK);
    assert_eq!(stored.headers().get_str("content-length"), Some("100"));
    assert!(!stored.headers().contains("content-range"));
}

#[test]
fn section_3_1_keeps_content_range_of_a_complete_response() {
    let lines = [FRESH, TAG, ("content-range", "bytes 10-19/100")];
    let stored = ok(&lines);
    assert_eq!(stored.headers().get_str("content-range"), Some(lines[2].1));
}

#[test]
fn section_3_must_not_store_parts_without_understanding_them() {
    let rules = CacheRules {
        store_parts: false,
        ..CacheRules::default()
    };
    assert_eq!(
        store(&[FRESH, TAG, RANGE], &rules).err(),
        Some(StoreRefusal::Part)
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
            store(&lines, &CacheRules::default()).err(),
            Some(StoreRefusal::Part),
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
            store(lines, &CacheRules::default()).err(),
            Some(StoreRefusal::Part),
            "{lines:?}"
        );
    }
    let small = CacheRules {
        max_size: 99,
        ..CacheRules::default()
    };
    assert_eq!(
        store(&[FRESH, TAG, RANGE], &small).err(),
        Some(StoreRefusal::TooLarge)
    );
}

#[test]
fn section_3_4_must_not_combine_without_the_same_strong_validator() {
    let (old, just_now) = (date(-100), DATE);
    let strong = ("last-modified", old.as_str());
    // With a strong validator, or without.
    for (lines, expected) in [
        (&[TAG][..], Some("\"x\"")),
        (&[("date", DATE), strong], Some(old.as_str())),
        (&[TAG, ("date", DATE), strong], Some("\"x\"")),
        (&[("etag", "W/\"x\"")], None),
        (&[("etag", "W/\"x\""), ("date", DATE), strong], None),
        // A resource that changed in this second can change again in it.
        (&[("date", DATE), ("last-modified", just_now)], None),
        (&[strong], None),
        (&[], None),
    ] {
        let whole = ok(&[&[FRESH], lines].concat());
        assert_eq!(
            whole.has_strong_validator(),
            expected.is_some(),
            "{lines:?}"
        );
        assert_eq!(whole.if_range(), expected.map(str::as_bytes), "{lines:?}");
        assert_eq!(whole.may_combine(&whole), expected.is_some(), "{lines:?}");
        let part = store(&[&[FRESH, RANGE], lines].concat(), &CacheRules::default());
        assert_eq!(part.is_ok(), expected.is_some(), "{lines:?}");
    }
    let [x, y] = ["\"x\"", "\"y\""].map(|tag| ok(&[FRESH, ("etag", tag)]));
    assert!(!x.may_combine(&y));
}

#[test]
fn ranges_are_honoured_only_for_the_version_in_if_range() {
    let stored = ok(&[FRESH, TAG]);
    let allow = |value| {
        stored
            .validators()
            .allow_range(&headers(&[("if-range", value)]))
    };
    assert!(allow("\"x\""));
    assert!(!allow("\"y\""));
    // It has no Last-Modified, and Date does not replace it.
    assert!(!allow(DATE));
}
