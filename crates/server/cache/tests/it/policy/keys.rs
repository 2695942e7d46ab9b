//! Section 2: cache keys.

use apus_cache::policy::{CacheNamePattern, KeyHostRule, KeyQueryRule, KeyRules, RequestKey};
use apus_http::Method;
use proptest::prelude::*;

use super::{Lines, TestRequest, headers};

fn key(request: &TestRequest) -> RequestKey {
    KeyRules::default().key(&request.presented())
}

fn target(target: &str, rules: &KeyRules) -> RequestKey {
    rules.key(&TestRequest::target(target).presented())
}

#[test]
fn keys_differ_by_scheme_host_path_and_query() {
    // CVE-2026-2836: keys without scheme or host.
    let one = TestRequest::target("/a?b");
    let others = [
        TestRequest {
            scheme: "http",
            ..one.clone()
        },
        TestRequest {
            authority: "example.org",
            ..one.clone()
        },
        TestRequest {
            authority: "example.com:8443",
            ..one.clone()
        },
        TestRequest {
            authority: "",
            ..one.clone()
        },
        TestRequest::target("/A?b"),
        TestRequest::target("/a?B"),
        TestRequest::target("/a?"),
        TestRequest::target("/a"),
        TestRequest::target("/a%3fb"),
        TestRequest::target("/a/?b"),
        TestRequest::target("//a?b"),
    ];
    for other in &others {
        assert_ne!(key(&one), key(other), "{}", key(other));
        assert_ne!(key(&one).bytes(), key(other).bytes());
    }
    assert_ne!(
        key(&TestRequest::target("/a?")),
        key(&TestRequest::target("/a"))
    );
}

#[test]
fn keys_are_equal_for_equivalent_requests() {
    let one = TestRequest::target("/a?b");
    // Requests have their authority in its normal form; purges may have any form.
    let of_uri =
        |scheme, authority| RequestKey::of_uri(&KeyRules::default(), scheme, authority, "/a?b");
    for authority in [
        "EXAMPLE.com",
        "example.com:443",
        "example.com:",
        "example.com:0443",
    ] {
        assert_eq!(key(&one), of_uri("https", authority), "{authority}");
    }
    let clear = |authority| of_uri("http", authority);
    assert_eq!(clear("example.com"), clear("example.com:80"));
    assert_ne!(clear("example.com"), clear("example.com:443"));
    assert_eq!(clear("[::1]"), clear("[::1]:80"));
    assert_ne!(clear("[::1]"), clear("[::1]:81"));
    assert_eq!(key(&one), key(&one.clone().method(Method::HEAD)));
}

#[test]
fn keys_omit_what_the_rules_exclude() {
    let with = |query| KeyRules {
        query,
        ..KeyRules::default()
    };
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| CacheNamePattern::new(name))
            .collect()
    };
    let ignored = with(KeyQueryRule::Ignored);
    assert_eq!(target("/a?b", &ignored), target("/a", &ignored));
    let only = with(KeyQueryRule::Only(names(&["id", "p*"])));
    assert_eq!(
        target("/a?x=1&id=2&page=3", &only),
        target("/a?id=2&page=3&y", &only)
    );
    assert_ne!(target("/a?id=2", &only), target("/a?id=3", &only));
    assert_ne!(target("/a?id=2&id=3", &only), target("/a?id=3&id=2", &only));
    assert_eq!(target("/a?x", &only), target("/a", &only));
    let except = with(KeyQueryRule::Except(names(&["utm_*"])));
    assert_eq!(
        target("/a?utm_source=1&id=2", &except),
        target("/a?id=2", &except)
    );
    assert_ne!(target("/a?xutm_source=1", &except), target("/a", &except));
    let sorted = KeyRules {
        sort_query: true,
        ..KeyRules::default()
    };
    assert_eq!(target("/a?b=1&a=2", &sorted), target("/a?a=2&b=1", &sorted));
    assert_ne!(target("/a?a=1&a=2", &sorted), target("/a?a=2&a=1", &sorted));
    let shared = KeyRules {
        scheme: false,
        ..KeyRules::default()
    };
    let clear = TestRequest {
        scheme: "http",
        ..TestRequest::target("/a")
    };
    assert_eq!(target("/a", &shared), shared.key(&clear.presented()));
    let named = KeyRules {
        host: KeyHostRule::Named("shop".into()),
        ..KeyRules::default()
    };
    let www = TestRequest {
        authority: "www.example.com",
        ..TestRequest::target("/a")
    };
    assert_eq!(target("/a", &named), named.key(&www.presented()));
    let requested = TestRequest {
        authority: "shop",
        ..TestRequest::target("/a")
    };
    assert_ne!(target("/a", &named), key(&requested));
}

#[test]
fn a_parameter_that_may_match_a_named_one_is_in_the_key() {
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| CacheNamePattern::new(name))
            .collect()
    };
    let only = KeyRules {
        query: KeyQueryRule::Only(names(&["id", "a_b"])),
        ..KeyRules::default()
    };
    let honest = target("/a?id=2", &only);
    for crafted in [
        "id=2&%69d=evil",
        "id=2&i%64=evil",
        "id=2&ID=evil",
        "id=2&id[]=evil",
        "id=2&id%5b%5d=evil",
        "id=2&+id=evil",
        "id=2&id%00x=evil",
        "id=2&x=1;id=evil",
        "id=2&id;x",
        "id=2&a.b=evil",
        "id=2&a+b=evil",
        "id=2&a[b=evil",
        "%69d=evil&id=2",
    ] {
        let crafted_key = target(&format!("/a?{crafted}"), &only);
        assert_ne!(honest, crafted_key, "{crafted}");
    }
    assert_eq!(honest, target("/a?x=id&id=2&x;y=1&a-b=2", &only));
    let except = KeyRules {
        query: KeyQueryRule::Except(names(&["utm_*", "fbclid"])),
        ..KeyRules::default()
    };
    let honest = target("/a?id=2", &except);
    for crafted in [
        "id=2&utm_a=1;id=evil",
        "id=2&utm[id]=evil",
        "id=2&utm.source=evil",
        "id=2&fbclid%00=evil",
        "id=2&fbclid[x]=evil",
        "id=2&FBCLID=evil",
    ] {
        let crafted_key = target(&format!("/a?{crafted}"), &except);
        assert_ne!(honest, crafted_key, "{crafted}");
    }
    assert_eq!(honest, target("/a?utm_x=1&id=2&%66bclid=3", &except));
}

#[test]
fn parameters_that_may_be_one_name_are_not_sorted() {
    let sorted = KeyRules {
        sort_query: true,
        ..KeyRules::default()
    };
    for (one, other) in [
        ("id=2", "%69d=1"),
        ("id=2", "ID=1"),
        ("id=2", "id[]=1"),
        ("id=2", "+id=1"),
        ("id=2", "a=1;id=1"),
        ("id=2", "[id]=1"),
        ("id=2", "id%00=1"),
        ("a_b=2", "a.b=1"),
        ("a_b=2", "a[b=1"),
    ] {
        assert_ne!(
            target(&format!("/a?{one}&{other}"), &sorted),
            target(&format!("/a?{other}&{one}"), &sorted),
            "{one} {other}"
        );
    }
    assert_eq!(
        target("/a?b[x]=1&a=2&b_c=3", &sorted),
        target("/a?b_c=3&a=2&b[x]=1", &sorted)
    );
}

#[test]
fn a_cookie_that_may_match_a_named_one_is_in_the_key() {
    let rules = KeyRules {
        cookies: vec!["my_id".into()],
        ..KeyRules::default()
    };
    let of = |line: &str| rules.key(&TestRequest::with(&[("cookie", line)]).presented());
    let (without, with) = (of("x=1"), of("my_id=1"));
    assert_ne!(without, with);
    for crafted in [
        "my.id=1",
        "my%5fid=1",
        "MY_ID=1",
        "my_id[]=1",
        "x=1,my_id=1",
        "x=1 my_id=1",
        "my_id",
    ] {
        assert_ne!(of(crafted), without, "{crafted}");
        assert_ne!(of(crafted), with, "{crafted}");
    }
    assert_eq!(of("x=1; my_id=1; y=my_id"), with);
    assert_eq!(of("x=2; xmy_id=3"), without);
}

#[test]
fn keys_contain_the_fields_cookies_and_devices_of_the_rules() {
    let rules = KeyRules {
        headers: vec!["x-tenant".into(), "accept-language".into()],
        cookies: vec!["currency".into()],
        device: true,
        ..KeyRules::default()
    };
    let of = |lines: Lines<'_>, device| {
        let request = TestRequest {
            device,
            ..TestRequest::with(lines)
        };
        rules.key(&request.presented())
    };
    let one = of(&[("x-tenant", "a"), ("cookie", "x=1; currency=eur")], None);
    for (lines, device) in [
        (&[][..], None),
        (&[("x-tenant", ""), ("cookie", "currency=eur")], None),
        (&[("x-tenant", "b"), ("cookie", "currency=eur")], None),
        (&[("x-tenant", "a"), ("cookie", "currency=usd")], None),
        (&[("x-tenant", "a"), ("cookie", "currency=")], None),
        (&[("x-tenant", "a"), ("cookie", "x=1")], None),
        (
            &[("x-tenant", "a"), ("cookie", "currency=eur; currency=usd")],
            None,
        ),
        (
            &[("x-tenant", "a"), ("cookie", "currency=eur")],
            Some("phone"),
        ),
        (
            &[
                ("x-tenant", "a"),
                ("cookie", "currency=eur"),
                ("accept-language", "de"),
            ],
            None,
        ),
    ] {
        assert_ne!(one, of(lines, device), "{lines:?} {device:?}");
        // The target is the same.
        assert_eq!(one.uri(), of(lines, device).uri());
    }
    assert_eq!(
        one,
        of(&[("cookie", "y=2;currency=eur"), ("x-tenant", "a")], None)
    );
    let german = |value| of(&[("accept-language", value)], None);
    assert_eq!(german("de, en;q=0.5"), german("de,en; q=0.5"));
}

#[test]
fn keys_begin_with_the_key_of_their_path_prefix() {
    let prefix = RequestKey::of_uri(&KeyRules::default(), "https", "Example.com:443", "/blog/");
    assert!(
        key(&TestRequest::target("/blog/1?x"))
            .uri()
            .starts_with(prefix.bytes())
    );
    assert!(
        !key(&TestRequest::target("/blo"))
            .uri()
            .starts_with(prefix.bytes())
    );
    let other = TestRequest {
        authority: "example.com.evil",
        ..TestRequest::target("/blog/1")
    };
    assert!(!key(&other).uri().starts_with(prefix.bytes()));
    let one = RequestKey::of_uri(&KeyRules::default(), "https", "example.com", "/blog/1?x");
    assert_eq!(one, key(&TestRequest::target("/blog/1?x")));
}

#[test]
fn the_variants_prefix_matches_one_target_only() {
    let rules = |headers: &[&str], cookies: &[&str], device| KeyRules {
        headers: headers.iter().map(|name| (*name).into()).collect(),
        cookies: cookies.iter().map(|name| (*name).into()).collect(),
        device,
        ..KeyRules::default()
    };
    for rules in [
        rules(&["x-tenant", "b"], &["c"], true),
        rules(&[], &["c"], true),
        rules(&[], &[], true),
    ] {
        let of = |target: &str, value: &str| {
            let request = TestRequest {
                headers: headers(&[("x-tenant", value), ("cookie", &format!("c={value}"))]),
                device: Some("phone"),
                ..TestRequest::target(target)
            };
            rules.key(&request.presented())
        };
        let uri = RequestKey::of_uri(&rules, "https", "example.com", "/");
        let prefix = rules.variants_of(&uri).unwrap();
        let shown = RequestKey::uri_of(of("/H?C=secret", "secret").bytes());
        assert_eq!(shown, "https://example.com/H?C=secret");
        for value in ["", "1", "a long one"] {
            assert!(of("/", value).bytes().starts_with(&prefix), "{value}");
        }
        for target in ["/H", "/C", "/D", "/Hx-tenant", "/a", "/?", "/?H"] {
            assert!(!of(target, "1").bytes().starts_with(&prefix), "{target}");
        }
    }
    let plain = KeyRules::default();
    let uri = RequestKey::of_uri(&plain, "https", "example.com", "/");
    assert_eq!(plain.variants_of(&uri), None);
    assert_eq!(RequestKey::uri_of(uri.bytes()), "https://example.com/");
    assert_eq!(RequestKey::uri_of(b""), "//");
}

#[test]
fn keys_are_displayed_as_uris() {
    assert_eq!(
        key(&TestRequest::target("/a?b")).to_string(),
        "https://example.com/a?b"
    );
    let rules = KeyRules {
        headers: vec!["x".into()],
        ..KeyRules::default()
    };
    let request = TestRequest {
        headers: headers(&[("x", "1\u{e9}")]),
        ..TestRequest::target("/a")
    };
    let shown = rules.key(&request.presented()).to_string();
    assert!(shown.starts_with("https://example.com/a H"), "{shown}");
    assert!(
        shown.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn different_requests_have_different_keys(
        one in ("/[a-c/?&=]{0,6}", "[a-c]{0,2}", "[a-c]{0,2}"),
        other in ("/[a-c/?&=]{0,6}", "[a-c]{0,2}", "[a-c]{0,2}"),
    ) {
        let rules = KeyRules {
            headers: vec!["a".into(), "b".into()],
            ..KeyRules::default()
        };
        let key = |(target, a, b): &(String, String, String)| {
            let request = TestRequest { headers: headers(&[("a", a), ("b", b)]), ..TestRequest::target(target) };
            rules.key(&request.presented())
        };
        prop_assert_eq!(one == other, key(&one).bytes() == key(&other).bytes());
    }
}
