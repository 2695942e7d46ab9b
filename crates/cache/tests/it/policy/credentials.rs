//! Section 3.5 and 7.3: requests that tell who the client is.

use apus_cache::policy::{Credentials, NamePattern, Refusal, Reuse, Rules, Sharing, reuse};
use apus_http::fields::ForwardReason;

use super::{Ask, Reply, at, date, once, try_store};

const AUTHORIZED: (&str, &str) = ("authorization", "Basic YTpi");
const SESSION: (&str, &str) = ("cookie", "sid=1");

fn store(request: (&str, &str), cache_control: &str, rules: &Rules) -> Result<(), Refusal> {
    let lines = [("cache-control", cache_control), ("etag", "\"x\"")];
    try_store(&Ask::with(&[request]), &Reply::with(200, &lines), rules).map(|_| ())
}

#[test]
fn section_3_5_must_not_store_the_answer_to_authorization_without_permission() {
    let rules = Rules::default();
    for (value, expected) in [
        ("max-age=60", Err(Refusal::Authorization)),
        ("max-age=60, proxy-revalidate", Err(Refusal::Authorization)),
        ("max-age=60, public=x", Err(Refusal::Authorization)),
        ("s-maxage=x, max-age=60", Err(Refusal::Authorization)),
        ("max-age=60, public", Ok(())),
        ("s-maxage=60", Ok(())),
        ("max-age=60, must-revalidate", Ok(())),
        ("private, s-maxage=60", Err(Refusal::Private)),
    ] {
        assert_eq!(store(AUTHORIZED, value, &rules), expected, "{value}");
    }
}

/// What an origin makes for one certificate is for its owner, as with `Authorization`.
#[test]
fn does_not_store_the_answer_to_a_client_certificate_without_permission() {
    let always = Rules {
        credentials: Credentials {
            authorization: Sharing::Always,
            ..Credentials::default()
        },
        ..Rules::default()
    };
    let rules = Rules::default();
    for (rules, value, expected) in [
        (&rules, "max-age=60", Err(Refusal::ClientCertificate)),
        (
            &rules,
            "max-age=60, must-revalidate",
            Err(Refusal::ClientCertificate),
        ),
        (&rules, "max-age=60, public", Ok(())),
        (&rules, "s-maxage=60", Ok(())),
        (&always, "max-age=60", Ok(())),
    ] {
        let ask = Ask {
            has_certificate: true,
            ..Ask::with(&[])
        };
        let lines = [("cache-control", value), ("etag", "\"x\"")];
        let stored = try_store(&ask, &Reply::with(200, &lines), rules).map(|_| ());
        assert_eq!(stored, expected, "{value}");
    }
}

#[test]
fn does_not_store_the_answer_to_a_session_cookie_without_permission() {
    let rules = Rules::default();
    for (value, expected) in [
        ("max-age=60", Err(Refusal::SessionCookie)),
        // That is for Authorization only.
        ("max-age=60, must-revalidate", Err(Refusal::SessionCookie)),
        ("max-age=60, public", Ok(())),
        ("s-maxage=60", Ok(())),
    ] {
        assert_eq!(store(SESSION, value, &rules), expected, "{value}");
    }
}

#[test]
fn tells_cookies_of_sessions_from_others() {
    let named = Rules {
        credentials: Credentials {
            session_cookies: vec![NamePattern::new("wp_*"), NamePattern::new("sid")],
            ..Credentials::default()
        },
        ..Rules::default()
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
        for (rules, is_session) in [(&Rules::default(), by_default), (&named, by_name)] {
            let stored = store(("cookie", cookie), "max-age=60", rules);
            assert_eq!(stored.is_err(), is_session, "{cookie}");
        }
    }
}

#[test]
fn stores_for_all_what_the_configuration_declares() {
    let rules = Rules {
        credentials: Credentials {
            authorization: Sharing::Always,
            cookies: Sharing::Always,
            ..Credentials::default()
        },
        ..Rules::default()
    };
    for request in [AUTHORIZED, SESSION] {
        assert_eq!(store(request, "max-age=60", &rules), Ok(()));
        assert_eq!(store(request, "private", &rules), Err(Refusal::Private));
    }
}

#[test]
fn answers_them_from_the_cache_only_if_the_origin_named_the_lifetime() {
    let old = date(-1000);
    let declared = ("cache-control", "max-age=60");
    let guessed = ("last-modified", old.as_str());
    for (line, for_session) in [
        (declared, Reuse::Fresh { age: 0 }),
        (guessed, Reuse::Forward(ForwardReason::Bypass)),
    ] {
        let rules = Rules::default();
        let reply = Reply::with(200, &[line]);
        let stored = try_store(&Ask::with(&[]), &reply, &rules).unwrap().stored;
        let answer = |lines| {
            let ask = Ask::with(lines);
            reuse(&ask.presented(), &stored, &rules, &once(), at(0))
        };
        assert_eq!(answer(&[]), Reuse::Fresh { age: 0 });
        assert_eq!(answer(&[("cookie", "_ga=1")]), Reuse::Fresh { age: 0 });
        assert_eq!(answer(&[AUTHORIZED]), for_session, "{line:?}");
        assert_eq!(answer(&[SESSION]), for_session, "{line:?}");
    }
}
