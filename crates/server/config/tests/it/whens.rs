//! Conditions of limits, caches, compression and access logs: what they may be about, and their mistakes with places.

use crate::documents::findings;

#[track_caller]
fn check(site: &str, expected: &[&str]) {
    let found = findings(&format!(
        "[[sites]]\nlisten = 80\nupstream = \"http://[::1]:1\"\n{site}\n"
    ));
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\nlacks {expected}");
    }
}

#[test]
fn a_limit_is_for_requests_that_are_known_when_it_is_met() {
    let limit = |keys: &str| format!("limits = [{{ name = \"a\", rate = \"1/s\", {keys} }}]");
    check(&limit("when = 'method == \"POST\"'"), &[]);
    check(&limit("when = { path = \"/api/**\" }, key = \"user\""), &[]);
    check(&limit("when = 'user == \"ada\"', key = \"user\""), &[]);
    check(
        &limit("when = 'user == \"ada\"'"),
        &["4:47 `user` is known after the authentication"],
    );
    check(
        &limit("when = 'status == 404'"),
        &["4:47 `status` is known with the response"],
    );
    check(
        &limit("when = 'methd == \"POST\"'"),
        &["did you mean `method`?"],
    );
}

#[test]
fn a_cache_is_bypassed_by_what_is_known_of_requests() {
    check(
        "cache = { bypass_when = 'query.preview exists or user == \"ada\"' }",
        &[],
    );
    check(
        "cache = { bypass_when = 'status == 404' }",
        &["`status` is known with the response"],
    );
    // A location has the condition of its site, unless it has its own.
    check(
        "cache = { bypass_when = 'tls' }\nlocations = [{ path = \"/a/\", cache = { ttl = 10 } }, { path = \"/b/\", cache = { bypass_when = 'not tls' } }]",
        &[],
    );
}

#[test]
fn responses_are_compressed_by_what_is_known_before() {
    check(
        "compress.when = 'not cookie.session exists and user != \"ada\"'",
        &[],
    );
    check(
        "compress.when = { response_type = \"text/css\", status = 200 }",
        &[],
    );
    check(
        "compress.when = 'response_length > 10kb and response.x-secret != \"1\" and tag.plain'",
        &[],
    );
    for fact in ["time_taken > 1s", "cache == \"hit\"", "upstream == \"a\""] {
        let name = fact.split(' ').next().unwrap();
        check(
            &format!("compress.when = 'tls and {fact}'"),
            &[&format!(
                "4:17 `{name}` is not known yet when a response is compressed"
            )],
        );
    }
    check(
        "compress.when = 'not user_agnt exists'",
        &["did you mean `user_agent`?"],
    );
    check(
        "compress.when = 'status == 200 and status == 404'",
        &["it is never true"],
    );
    // One mistake for all sites is told once.
    let sites = "[[sites]]\nlisten = 80\nroot = \".\"\n".repeat(2);
    let found = findings(&format!(
        "[global]\ncompress.when = 'methd == \"GET\"'\n{sites}"
    ));
    let about = found.iter().filter(|found| found.contains("methd")).count();
    assert_eq!(about, 1, "{found:#?}");
}

#[test]
fn a_log_has_the_requests_for_which_its_condition_holds() {
    check(
        "access_log = { path = \"log\", when = 'status >= 400 or time_taken > 1s' }",
        &[],
    );
    check(
        "access_log = { path = \"log\", when = 'status >= 400 and status < 300' }",
        &["it is never true"],
    );
    check(
        "access_log = { path = \"log\", when = 'statuz >= 400' }",
        &["did you mean `status`?"],
    );
}

#[test]
fn conditions_ask_for_the_limits_that_there_are() {
    let rule = |when: &str| {
        format!(
            "limits = [{{ name = \"pages\", rate = \"20/s\" }}, {{ name = \"mine\", quota = \"9/day\", key = \"user\" }}, {{ name = \"once\", concurrent = 3 }}]\n\
             rules = [{{ when = '{when}', deny = 403 }}]"
        )
    };
    check(&rule("limit.pages < 5 and limit.pages exists"), &[]);
    check(
        &rule("limit.page < 5"),
        &["5:20 unknown fact or condition `limit.page`; did you mean `limit.pages`?"],
    );
    // Nothing is left of a number of requests at once.
    check(
        &rule("limit.once < 2"),
        &["unknown fact or condition `limit.once`"],
    );
    check(
        &rule("limit.mine < 1"),
        &["`limit.mine` is known after the authentication"],
    );
    check(&rule("limit.pages < 5 and limit.pages > 5"), &["never"]);
}
