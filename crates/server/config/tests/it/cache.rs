//! Reading configurations of caches: what is stored, under which keys, and where.

use std::time::Duration;

use apus_cache::policy::{CacheNamePattern, KeyHostRule, KeyQueryRule, SetCookieRule};
use apus_cache::service::CacheSettings;
use apus_cache::store::{DiskSettings, StoreSettings};
use apus_config::HandlerPlan;

use crate::documents::{findings, folder, parse_in};

/// A file in which `SITE` has an upstream, and what is found wrong with it.
const MISTAKES_ABOUT_CACHES: &[(&str, &str)] = &[
    (
        "SITE\ncache = 5\n",
        "4:9 expected true, false, or a table, found a number",
    ),
    (
        "SITE\ncache.ttl = true\n",
        "4:13 expected a number of seconds, or a table, found a boolean",
    ),
    (
        "SITE\ncache.ttl = { \"6xx\" = 1 }\n",
        "4:15 `6xx` is not a status from 200 to 599",
    ),
    (
        "SITE\ncache.ttl = { \"304\" = 1 }\n",
        "4:15 `304`: responses with this status are never stored",
    ),
    (
        "SITE\ncache.ttl = { \"200\" = -1 }\n",
        "4:23 the number is out of range",
    ),
    (
        "SITE\ncache.ttl_overrides = true\n",
        "4:23 `ttl_overrides` has no effect; there is no `ttl`",
    ),
    (
        "SITE\ncache.ignore = \"pragma\"\n",
        "4:16 `pragma` is not what can be ignored; expected \"cache_control\" or \"expires\"",
    ),
    (
        "SITE\ncache.set_cookie = \"drop\"\n",
        "4:20 `drop` is not what becomes of Set-Cookie; expected \"refuse\"",
    ),
    (
        "SITE\ncache = { cookies = \"always\", session_cookies = \"sid\" }\n",
        "4:49 `session_cookies` has no effect",
    ),
    (
        "SITE\ncache = { cookies = \"always\", harmless_cookies = \"theme\" }\n",
        "4:50 `harmless_cookies` has no effect",
    ),
    (
        "SITE\ncache = { client_directives = \"honour\", trusted_clients = \"::1\" }\n",
        "4:59 `trusted_clients` has no effect; it is for `client_directives = \"trusted\"`",
    ),
    (
        "SITE\ncache = { tag_fields = [], hide_tags = false }\n",
        "4:40 `hide_tags` has no effect; there are no `tag_fields`",
    ),
    (
        "SITE\ncache.bypass_cookies = \"a*b\"\n",
        "4:24 `a*b`: `*` stands at the front and at the end of a name only",
    ),
    (
        "SITE\ncache.key.query = 5\n",
        "4:19 expected true, false, a list of names, or { except = a list of names }, found a number",
    ),
    (
        "SITE\ncache.key.query = { only = \"a\" }\n",
        "4:19 a table with other keys than `except`",
    ),
    (
        "SITE\ncache.key = { query = false, sort_query = true }\n",
        "4:43 `sort_query` has no effect; nothing of the query counts",
    ),
    (
        "SITE\ncache.key.host = \"a b\"\n",
        "4:18 `a b` is not `$host`, or a host",
    ),
    (
        "SITE\ncache.purge_token = \"secret\"\n",
        "4:21 the secret is shorter than 16 characters",
    ),
    (
        "SITE\ncache.purge_token = \"not one word but several\"\n",
        "4:21 the secret has characters that a token in a field cannot have",
    ),
    (
        "SITE\ncache.purge_token = \"${NOT_SET}\"\n",
        "4:21 the environment variable NOT_SET is not set",
    ),
    (
        "SITE\ncache.heuristic = { percent = 0 }\n",
        "4:31 the number is out of range",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nroot = \"public\"\ncache = true\n",
        "7:9 `cache` has no effect; the handler of this location is `static`",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\ncache = true\n",
        "4:9 `cache` has no effect; neither the site nor a location has an `upstream`",
    ),
    (
        "SITE\ncache = true\n[global.cache]\nsize = 100\n",
        "6:8 `size` has no effect; there is no `dir`",
    ),
    (
        "SITE\ncache = true\n[global.cache]\nopen_files = 100\n",
        "6:14 `open_files` has no effect; there is no `dir`",
    ),
    (
        "SITE\ncache = true\n[global.cache]\ndir = \"stored\"\n",
        "6:7 `dir` without `size`",
    ),
    (
        "SITE\n[global.cache]\nmemory_size = 100\n",
        "4:1 nothing is cached; no site uses this",
    ),
];

#[test]
fn reports_each_mistake_about_caches_with_its_position() {
    let site = "[[sites]]\nlisten = 80\nupstream = \"http://[::1]:1\"\n";
    let mut failed = Vec::new();
    for (text, expected) in MISTAKES_ABOUT_CACHES {
        let text = text.replace("SITE\n", site);
        let found = findings(&text);
        if found.len() != 1 || !found.iter().all(|found| found.starts_with(expected)) {
            failed.push(format!(
                "{text}\n  expected {expected:?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// How the site and its locations cache.
fn caches(text: &str) -> Vec<Option<CacheSettings>> {
    let folder = folder();
    let text =
        format!("[[sites]]\nname = \"a\"\nlisten = 80\nupstream = \"http://[::1]:1\"\n{text}");
    let plan = match parse_in(folder.path(), &text) {
        Ok(plan) => plan,
        Err(mistakes) => panic!("{mistakes}"),
    };
    let cache = |handler: &HandlerPlan| match handler {
        HandlerPlan::Proxy(proxy) => proxy.cache.clone(),
        _ => None,
    };
    plan.sites[0].handlers().map(cache).collect()
}

fn cache(text: &str) -> CacheSettings {
    let first = caches(text).into_iter().next();
    first.flatten().expect("the site has a cache")
}

#[test]
fn the_defaults_of_a_cache_are_those_of_the_rules() {
    let expected = format!("{:?}", CacheSettings::default());
    for text in [
        "cache = true\n",
        "[sites.cache]\n",
        "[sites.cache]\nkey = {}\n",
    ] {
        assert_eq!(format!("{:?}", cache(text)), expected, "{text}");
    }
    assert!(caches("cache = false\n")[0].is_none());
    assert!(caches("")[0].is_none());
}

#[test]
fn each_key_of_a_cache_changes_its_setting() {
    let cache = cache(
        "[sites.cache]\nttl = { \"5xx\" = 1, \"404\" = 10, \"503\" = 0 }\nttl_overrides = true\n\
         set_cookie = \"remove\"\nbypass_headers = \"X-Preview\"\n\
         purge_token = \"${TOKEN:-0123456789abcdef}\"\n\
         key = { host = \"Example.com\", query = { except = [\"utm_*\", \"fbclid\"] }, headers = \"X-A\" }\n",
    );
    let ttl: Vec<_> = cache
        .rules
        .ttl
        .iter()
        .map(|ttl| (ttl.first, ttl.last, ttl.ttl))
        .collect();
    let seconds = Duration::from_secs;
    assert_eq!(
        ttl,
        [
            (404, 404, seconds(10)),
            (503, 503, seconds(0)),
            (500, 599, seconds(1)),
        ]
    );
    assert!(cache.rules.ttl_overrides);
    assert_eq!(cache.rules.set_cookie, SetCookieRule::Remove);
    assert_eq!(cache.bypass_headers, [Box::from("x-preview")]);
    assert_eq!(cache.purge.unwrap().token, Box::from("0123456789abcdef"));
    let key = cache.rules.key;
    assert_eq!(key.host, KeyHostRule::Named("Example.com".into()));
    let except = ["utm_*", "fbclid"].map(CacheNamePattern::new);
    assert_eq!(key.query, KeyQueryRule::Except(except.into()));
    assert_eq!(key.headers, [Box::from("x-a")]);
}

#[test]
fn keys_of_a_locations_cache_override_those_of_its_site() {
    let all = caches(
        "[sites.cache]\nttl = 60\nignore = \"vary\"\nkey = { device = true, scheme = false }\n\
         [[sites.locations]]\npath = \"/same/\"\n\
         [[sites.locations]]\npath = \"/off/\"\ncache = false\n\
         [[sites.locations]]\npath = \"/on/\"\ncache = true\n\
         [[sites.locations]]\npath = \"/own/\"\n\
         cache = { ttl = 5, ignore = [], key.device = false }\n\
         [[sites.locations]]\npath = \"/files/\"\nroot = \"public\"\n",
    );
    let shown: Vec<_> = all
        .iter()
        .map(|cache| {
            let rules = &cache.as_ref()?.rules;
            let key = &rules.key;
            let ttl = rules.ttl[0].ttl.as_secs();
            Some((ttl, rules.ignored.vary, key.device, key.scheme))
        })
        .collect();
    let of_site = Some((60, true, true, false));
    let own = Some((5, false, false, false));
    assert_eq!(shown, [of_site, of_site, None, of_site, own, None]);
    let one = caches("[[sites.locations]]\npath = \"/a/\"\ncache.ttl = 5\n");
    assert!(one[0].is_none() && one[1].is_some());
    let of_off = caches("cache = false\n[[sites.locations]]\npath = \"/a/\"\ncache.ttl = 5\n");
    assert!(of_off[0].is_none() && of_off[1].is_some());
}

#[test]
fn keys_of_a_site_for_other_locations_are_no_mistake_of_a_location() {
    let all = caches(
        "[sites.cache]\nttl = 60\nttl_overrides = true\ntrusted_clients = \"::1\"\n\
         session_cookies = \"sid\"\nhide_tags = false\nkey = { sort_query = true }\n\
         [[sites.locations]]\npath = \"/a/\"\n\
         cache = { ttl = {}, client_directives = \"ignore\", cookies = \"always\", tag_fields = [], \
         key.query = false }\n",
    );
    assert_eq!(
        all[1].as_ref().unwrap().rules.key.query,
        KeyQueryRule::Ignored
    );
    let mistakes = findings(
        "[[sites]]\nlisten = 80\nupstream = \"http://[::1]:1\"\ncache.cookies = \"always\"\n\
         [[sites.locations]]\npath = \"/a/\"\ncache.session_cookies = \"sid\"\n",
    );
    assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
    assert!(
        mistakes[0].starts_with("7:25 `session_cookies` has no effect"),
        "{mistakes:#?}"
    );
}

#[test]
fn the_store_has_the_settings_of_the_global_table() {
    let folder = folder();
    let site = "[[sites]]\nlisten = 80\nupstream = \"http://[::1]:1\"\ncache = true\n";
    let store = |text: &str| {
        let plan = parse_in(folder.path(), &format!("{text}{site}"));
        plan.unwrap_or_else(|mistakes| panic!("{mistakes}"))
            .global
            .cache
    };
    for text in ["", "[global.cache]\n"] {
        let store = store(text);
        assert_eq!(store.settings, StoreSettings::default());
        assert_eq!(store.disk, None);
    }
    let with_disk = store("[global.cache]\ndir = \"stored\"\nsize = 100\n");
    let dir = folder.path().join("stored");
    assert_eq!(with_disk.settings, StoreSettings::default());
    assert_eq!(
        with_disk.disk,
        Some(DiskSettings::new(dir.clone(), 100 << 20))
    );
    let all = store(
        "[global.cache]\nmemory_size = 10\nmemory_object_size = 0.5\nmax_variants = 3\n\
         shared_window = 128\nshared_lag = 2\ndir = \"stored\"\nsize = 100\nobject_size = 7\n\
         min_free = 3\nthreads = 2\nwrite_buffer = 512\nopen_files = 9\n",
    );
    let settings = StoreSettings {
        memory_bytes: 10 << 20,
        memory_object_bytes: 512 << 10,
        max_variants: 3,
        window_bytes: 128 << 10,
        unwritten_bytes: 512 << 10,
        open_files: 9,
        lag: Duration::from_secs(2),
    };
    let disk = DiskSettings {
        path: dir,
        bytes: 100 << 20,
        object_bytes: 7 << 20,
        min_free_bytes: 3 << 20,
        threads: 2,
    };
    assert_eq!((all.settings, all.disk), (settings, Some(disk)));
}
