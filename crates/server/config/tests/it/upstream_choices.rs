//! Rules that choose the origins of a request, and their mistakes.

use crate::documents::findings;

#[track_caller]
fn check(site: &str, expected: &[&str]) {
    let found = findings(&format!("[[sites]]\nlisten = 80\n{site}\n"));
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\nlacks {expected}");
    }
}

/// A site with two groups of origins.
fn groups(lines: &str) -> String {
    format!(
        "upstream = \"one\"\nupstreams = [{{ name = \"one\", nodes = [\"[::1]:1\"] }}, {{ name = \"two\", nodes = [\"[::1]:2\"] }}]\n{lines}"
    )
}

#[test]
fn a_rule_names_a_group_of_the_site_or_a_url() {
    check(&groups("rules = [{ upstream = \"two\" }]"), &[]);
    check(
        &groups("rules = [{ upstream = \"two\" }, { upstream = \"https://[::1]:3\" }]"),
        &[],
    );
    check(
        &groups("rules = [{ jump = \"a\" }]\nchains = { a = [{ upstream = \"two\" }] }"),
        &[],
    );
    check(
        &groups("locations = [{ path = \"/a/\", rules = [{ upstream = \"two\" }] }]"),
        &[],
    );
    check(
        &groups("rules = [{ upstream = \"twoo\" }, { upstream = \"two\" }]"),
        &[
            "5:23 the site has no group of origins `twoo`; expected the name of one of its `upstreams`, or a URL; did you mean \"two\"?",
        ],
    );
    check(
        &groups("rules = [{ upstream = \"two/path\" }, { upstream = \"two\" }]"),
        &["5:23 a path in the `upstream` of a rule"],
    );
    check(
        "upstream = \"http://[::1]:1\"\nupstreams = [{ name = \"php\", protocol = \"fastcgi\", nodes = [\"[::1]:2\"] }]\nrules = [{ upstream = \"php\" }]",
        &["5:23 a group that speaks FastCGI, where HTTP is spoken"],
    );
}

#[test]
fn a_rule_that_chooses_origins_is_for_requests_that_are_proxied() {
    check(
        "root = \".\"\nrules = [{ upstream = \"http://[::1]:1\" }]",
        &["4:23 `upstream` has no effect; neither the site nor a location has an `upstream`"],
    );
    check(
        "root = \".\"\nlocations = [{ path = \"/a/\", upstream = \"http://[::1]:1\" }, { path = \"/b/\", rules = [{ upstream = \"http://[::1]:2\" }] }]",
        &["`upstream` has no effect; this location has no `upstream` that it could replace"],
    );
    check(
        "root = \".\"\nlocations = [{ path = \"/a/\", upstream = \"http://[::1]:1\" }, { path = \"/b/\", rules = [{ rewrite = \"/a/\", upstream = \"http://[::1]:2\" }] }]",
        &[],
    );
    check(
        &groups("rules = [{ on = \"response\", upstream = \"two\" }]"),
        &["`upstream` is for requests; this rule is for responses"],
    );
    check(
        &groups("rules = [{ deny = 403, upstream = \"two\" }]"),
        &["`upstream` has no effect; `deny` ends the way of the request"],
    );
    let found = findings(
        "[global]\nrules = [{ upstream = \"a\" }]\n[[sites]]\nlisten = 80\nupstream = \"http://[::1]:1\"\n",
    );
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("2:23 `upstream` is for rules of a site or a location"));
}

#[test]
fn a_host_of_the_origin_is_known_for_each_of_them() {
    check(
        "upstream = \"https://a.example\"\nproxy.host = \"$proxy_host\"\nrules = [{ upstream = \"https://b.example\" }]",
        &[],
    );
    check(
        "upstream = \"https://a.example\"\nproxy.host = \"$proxy_host\"\nupstreams = [{ name = \"two\", nodes = [\"[::1]:2\"] }]\nrules = [{ upstream = \"two\" }]",
        &["4:14 `$proxy_host` without a URL whose host it could be"],
    );
}
