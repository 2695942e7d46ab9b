//! Section 4.3.5: freshening responses with HEAD.

use apus_cache::policy::{CacheRules, HeadUpdate, StoredResponse, update_by_head};
use apus_http::Method;

use super::{Lines, TestRequest, TestResponse, assert_fresh_until, date, ok};

fn stored() -> StoredResponse {
    let old = date(-100);
    ok(&[
        ("cache-control", "max-age=60"),
        ("etag", "\"x\""),
        ("last-modified", &old),
        ("content-length", "5"),
        ("x", "1"),
    ])
}

fn update(status: u16, lines: Lines<'_>) -> HeadUpdate {
    let request = TestRequest::with(&[]).method(Method::HEAD);
    let reply = TestResponse::with(status, lines).received(10);
    update_by_head(
        &request.presented(),
        &stored(),
        &reply.response(),
        &CacheRules::default(),
    )
}

#[test]
fn updates_if_validators_and_length_match() {
    let old = date(-100);
    for lines in [
        &[][..],
        &[("etag", "\"x\"")],
        &[
            ("etag", "\"x\""),
            ("last-modified", &old),
            ("content-length", "5"),
        ],
    ] {
        let lines = [lines, &[("x", "2")]].concat();
        match update(200, &lines) {
            HeadUpdate::Stored(newer) => {
                assert_eq!(newer.headers().get_str("x"), Some("2"));
                assert_eq!(newer.headers().get_str("content-length"), Some("5"));
                assert_fresh_until(&newer, 70, &lines);
            }
            other => panic!("{lines:?}: {other:?}"),
        }
    }
}

#[test]
fn invalidates_if_they_do_not_match() {
    let other = date(-99);
    for line in [
        ("etag", "\"y\""),
        ("etag", "W/\"x\""),
        ("last-modified", other.as_str()),
        ("content-length", "6"),
        ("content-encoding", "gzip"),
        ("cache-control", "no-store"),
    ] {
        assert!(
            matches!(update(200, &[line]), HeadUpdate::Invalid),
            "{line:?}"
        );
    }
}

#[test]
fn changes_nothing_if_it_is_about_another_response() {
    assert!(matches!(update(404, &[]), HeadUpdate::Unchanged));
    assert!(matches!(
        update(503, &[("etag", "\"y\"")]),
        HeadUpdate::Unchanged
    ));
    let varying = ok(&[("cache-control", "max-age=60"), ("vary", "x")]);
    let request = TestRequest::with(&[("x", "1")]).method(Method::HEAD);
    let reply = TestResponse::with(200, &[("etag", "\"y\"")]);
    let update = update_by_head(
        &request.presented(),
        &varying,
        &reply.response(),
        &CacheRules::default(),
    );
    assert!(matches!(update, HeadUpdate::Unchanged));
}
