//! Sections 3.5 and 7.3: requests that identify the client.

use apus_cache::policy::{
    CacheNamePattern, CacheRules, CredentialRules, ReuseDecision, SharingRule, StoreRefusal,
    decide_reuse,
};
use apus_http::fields::ForwardReason;

use super::{TestRequest, TestResponse, at, date, once, try_store};

const AUTHORIZED: (&str, &str) = ("authorization", "Basic YTpi");
const SESSION: (&str, &str) = ("cookie", "sid=1");

fn store(
    request: (&str, &str),
    cache_control: &str,
    rules: &CacheRules,
) -> Result<(), StoreRefusal> {
    let lines = [("cache-control", cache_control), ("etag", "\"x\"")];
    try_store(
        &TestRequest::with(&[request]),
        &TestResponse::with(200, &lines),
        rules,
    )
    .map(|_| ())
}

#[test]
fn section_3_5_must_not_store_responses_to_authorization_without_permission() {
    let rules = CacheRules::default();
    for (value, expected) in [
        ("max-age=60", Err(StoreRefusal::Authorization)),
        (
            "max-age=60, proxy-revalidate",
            Err(StoreRefusal::Authorization),
        ),
        ("max-age=60, public=x", Err(StoreRefusal::Authorization)),
        ("s-maxage=x, max-age=60", Err(StoreRefusal::Authorization)),
        ("max-age=60, public", Ok(())),
        ("s-maxage=60", Ok(())),
        ("max-age=60, must-revalidate", Ok(())),
        ("private, s-maxage=60", Err(StoreRefusal::Private)),
    ] {
        assert_eq!(store(AUTHORIZED, value, &rules), expected, "{value}");
    }
}

/// A response to a client certificate is for its owner, as with `Authorization`.
#[test]
fn does_not_store_responses_to_client_certificates_without_permission() {
    let always = CacheRules {
        credentials: CredentialRules {
            authorization: SharingRule::Always,
            ..CredentialRules::default()
        },
        ..CacheRules::default()
    };
    let rules = CacheRules::default();
    for (rules, value, expected) in [
        (&rules, "max-age=60", Err(StoreRefusal::ClientCertificate)),
        (
            &rules,
            "max-age=60, must-revalidate",
            Err(StoreRefusal::ClientCertificate),
        ),
        (&rules, "max-age=60, public", Ok(())),
        (&rules, "s-maxage=60", Ok(())),
        (&always, "max-age=60", Ok(())),
    ] {
        let request = TestRequest {
            has_certificate: true,
            ..TestRequest::with(&[])
        };
        let lines = [("cache-control", value), ("etag", "\"x\"")];
        let stored = try_store(&request, &TestResponse::with(200, &lines), rules).map(|_| ());
        assert_eq!(stored, expected, "{value}");
    }
}

#[test]
fn does_not_store_responses_to_session_cookies_without_permission() {
    let rules = CacheRules::default();
    for (value, expected) in [
        ("max-age=60", Err(StoreRefusal::SessionCookie)),
        // This directive is for Authorization only.
        (
            "max-age=60, must-revalidate",
            Err(StoreRefusal::SessionCookie),
        ),
        ("max-age=60, public", Ok(())),
        ("s-maxage=60", Ok(())),
    ] {
        assert_eq!(store(SESSION, value, &rules), expected, "{value}");
    }
}

#[test]
fn distinguishes_session_cookies_from_others() {
    let named = CacheRules {
        credentials: CredentialRules {
            session_cookies: vec![CacheNamePattern::new("wp_*"), CacheNamePattern::new("sid")],
            ..CredentialRules::default()
        },
        ..CacheRules::default()
    };
    for (cookie, by_default, by_name) in [
        ("sid=1", true, true),
        ("_ga=1; _gid=2; __utma=3", false, false),
        ("_ga=1; sid=2", true, true),
        ("_ga=1;sid=2", true, true),
        ("wp_logged_in=1", true, true),
        ("wp=1", true, false),
        ("other=sid=1", true, false),
        ("value", true, false),
        ("SID=1", true, true),
        ("%73id=1", true, true),
        ("wp.x=1", true, true),
        ("_ga=1,sid=1", true, true),
        ("_ga[sid]=1", false, false),
        ("", false, false),
        (";", false, false),
    ] {
        for (rules, is_session) in [(&CacheRules::default(), by_default), (&named, by_name)] {
            let stored = store(("cookie", cookie), "max-age=60", rules);
            assert_eq!(stored.is_err(), is_session, "{cookie}");
        }
    }
}

#[test]
fn stores_for_all_clients_if_the_configuration_declares_it() {
    let rules = CacheRules {
        credentials: CredentialRules {
            authorization: SharingRule::Always,
            cookies: SharingRule::Always,
            ..CredentialRules::default()
        },
        ..CacheRules::default()
    };
    for request in [AUTHORIZED, SESSION] {
        assert_eq!(store(request, "max-age=60", &rules), Ok(()));
        assert_eq!(
            store(request, "private", &rules),
            Err(StoreRefusal::Private)
        );
    }
}

#[test]
fn reuses_responses_for_them_only_if_the_origin_set_the_lifetime() {
    let old = date(-1000);
    let declared = ("cache-control", "max-age=60");
    let guessed = ("last-modified", old.as_str());
    for (line, for_session) in [
        (declared, ReuseDecision::Fresh { age: 0 }),
        (guessed, ReuseDecision::Forward(ForwardReason::Bypass)),
    ] {
        let rules = CacheRules::default();
        let reply = TestResponse::with(200, &[line]);
        let stored = try_store(&TestRequest::with(&[]), &reply, &rules)
            .unwrap()
            .stored;
        let decision = |lines| {
            let request = TestRequest::with(lines);
            decide_reuse(&request.presented(), &stored, &rules, &once(), at(0))
        };
        assert_eq!(decision(&[]), ReuseDecision::Fresh { age: 0 });
        assert_eq!(
            decision(&[("cookie", "_ga=1")]),
            ReuseDecision::Fresh { age: 0 }
        );
        assert_eq!(decision(&[AUTHORIZED]), for_session, "{line:?}");
        assert_eq!(decision(&[SESSION]), for_session, "{line:?}");
    }
}
