//! Section 4.4: invalidating stored responses.

use apus_cache::policy::{KeyRules, keys_to_invalidate};
use apus_http::{Method, StatusCode};

use super::{Lines, TestRequest, headers};

/// The keys that a request for `/a/page?q` invalidates.
fn outdated(method: &str, status: u16, lines: Lines<'_>) -> Vec<String> {
    let request =
        TestRequest::target("/a/page?q").method(Method::from_bytes(method.as_bytes()).unwrap());
    let status = StatusCode::from_u16(status).unwrap();
    let rules = KeyRules::default();
    keys_to_invalidate(&request.presented(), status, &headers(lines), &rules)
        .iter()
        .map(|key| key.to_string().replace("https://example.com", ""))
        .collect()
}

#[test]
fn invalidates_the_target_of_successful_unsafe_methods() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "MOVE", "INVENTED"] {
        for status in [200, 201, 204, 299, 301, 303, 304] {
            assert_eq!(
                outdated(method, status, &[]),
                ["/a/page?q"],
                "{method} {status}"
            );
        }
        for status in [400, 403, 404, 500, 503] {
            assert!(
                outdated(method, status, &[]).is_empty(),
                "{method} {status}"
            );
        }
    }
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"] {
        assert!(
            outdated(method, 200, &[("location", "/x")]).is_empty(),
            "{method}"
        );
    }
}

#[test]
fn invalidates_location_and_content_location_of_the_same_origin() {
    for name in ["location", "content-location"] {
        for (reference, expected) in [
            ("/x", "/x"),
            ("/x?y#z", "/x?y"),
            ("x", "/a/x"),
            ("./x/", "/a/x/"),
            ("../x", "/x"),
            ("../../../x", "/x"),
            ("/x/.", "/x/"),
            ("/x/..", "/"),
            ("?y", "/a/page?y"),
            ("https://example.com/x", "/x"),
            ("HTTPS://EXAMPLE.COM:443/x", "/x"),
            ("//example.com?y", "/?y"),
        ] {
            let keys = outdated("POST", 201, &[(name, reference)]);
            assert_eq!(keys, ["/a/page?q", expected], "{reference}");
        }
        assert_eq!(outdated("POST", 201, &[(name, "")]), ["/a/page?q"]);
    }
    let both = outdated(
        "POST",
        201,
        &[("location", "/x"), ("content-location", "/y")],
    );
    assert_eq!(both, ["/a/page?q", "/x", "/y"]);
}

#[test]
fn does_not_invalidate_targets_of_another_origin() {
    for reference in [
        "https://example.org/x",
        "http://example.com/x",
        "https://example.com:444/x",
        "https://example.com.evil/x",
        "https://example.com@evil/x",
        "//evil/x",
        "https:/x",
        "mailto:a",
    ] {
        let keys = outdated("POST", 201, &[("location", reference)]);
        assert_eq!(keys, ["/a/page?q"], "{reference}");
    }
}
