//! Only purged responses are fetched again, after `apus cache purge` and after PURGE from clients with the
//! token.

use rustix::process::Signal;
use serde_json::Value;

use super::{
    MINUTE, cached_on_disk, configured, configured_with, get, is_hit, numbered, requests_to,
};
use crate::harness::{Home, free_port, wait_until};
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::proxy::{Front, VERSIONS, curl};

/// The targets whose responses are stored before each purge.
const TARGETS: [&str; 5] = ["/a/1", "/a/1?q", "/a/2", "/ab", "/b/1"];

/// An origin whose responses have the tag `all`, and the tag `one` if their target contains a 1.
fn tagged() -> ScriptedOrigin {
    numbered(|head| {
        let target = head.split(' ').nth(1).unwrap();
        let tags = if target.contains('1') {
            "one all"
        } else {
            "all"
        };
        format!("{MINUTE}Surrogate-Key: {tags}\r\n")
    })
}

/// Stores the responses to all targets, purges, and returns the targets that are not stored any more.
fn purged(front: &Front, purge: impl FnOnce()) -> Vec<&'static str> {
    for target in TARGETS {
        get(front, target, "");
        assert!(is_hit(front, target), "{target}");
    }
    purge();
    let purged = TARGETS.into_iter().filter(|target| !is_hit(front, target));
    purged.collect()
}

#[test]
fn apus_cache_purge_removes_exactly_what_it_names() {
    let origin = tagged();
    let front = configured(&origin).serve();
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--url", "http://localhost/a/1"], &["/a/1"]),
        (&["--url", "http://LOCALHOST:80/x/..//a/1?q"], &["/a/1?q"]),
        (&["--url", "https://localhost/a/1"], &[]),
        (&["--url", "http://other.test/a/1"], &[]),
        (
            &["--prefix", "http://localhost/a/"],
            &["/a/1", "/a/1?q", "/a/2"],
        ),
        (&["--tag", "one"], &["/a/1", "/a/1?q", "/b/1"]),
        (&["--tag", "on"], &[]),
        (&["--all"], &TARGETS),
    ];
    for (arguments, expected) in cases {
        let purge = || {
            let arguments = [&["cache", "purge"], arguments].concat();
            let noun = match expected.len() {
                1 => "response",
                _ => "responses",
            };
            let said = format!("purged {} {noun}\n", expected.len());
            assert_eq!(front.home.expect(&arguments, 0).0, said);
        };
        assert_eq!(purged(&front, purge), expected, "{arguments:?}");
    }
    let (_, errors) = front.home.expect(&["cache", "purge", "--url", "/a/1"], 1);
    assert!(errors.contains("`/a/1` is not a URL"), "{errors}");
    // The log has what was purged as text.
    for what in [
        "http://localhost/a/1",
        "http://localhost/a/*",
        "tag one",
        "all",
    ] {
        let field = format!("\"what\":\"{what}\"");
        wait_until("the log has it", || front.apus.log().contains(&field));
    }
}

#[test]
fn a_purge_says_how_many_responses_it_removed_in_memory_and_on_disk() {
    let origin = tagged();
    let mut front = cached_on_disk(&origin, Home::new(), free_port());
    let targets: Vec<_> = (0..50).map(|number| format!("/{number}")).collect();
    let fill = |front: &Front| {
        for target in &targets {
            get(front, target, "");
        }
        wait_until("all are on disk", || {
            front.status()["cache"]["disk"]["objects"] == targets.len()
        });
    };
    for (arguments, said) in [
        (&["--url", "http://localhost/7"][..], "purged 1 response\n"),
        (&["--prefix", "http://localhost/1"], "purged 11 responses\n"),
        (&["--tag", "one"], "purged 14 responses\n"),
        (&["--tag", "one", "--soft"], "made 14 responses stale\n"),
        (&["--all"], "purged 50 responses\n"),
    ] {
        for is_restarted in [false, true] {
            fill(&front);
            if is_restarted {
                // Nothing is in memory then.
                front.apus.signal(Signal::TERM);
                front.apus.wait();
                front.apus = front.home.serve(&[]);
                wait_until("the objects are found", || {
                    front.status()["cache"]["disk"]["scanned"] == 1000
                });
            }
            let arguments = [&["cache", "purge"], arguments].concat();
            assert_eq!(front.home.expect(&arguments, 0).0, said, "{is_restarted}");
            if !arguments.contains(&"--soft") {
                let again = front.home.expect(&arguments, 0).0;
                assert_eq!(again, "purged 0 responses\n", "{arguments:?}");
            }
        }
    }
}

#[test]
fn a_purge_and_a_warming_refuse_hosts_and_ports_that_no_site_has() {
    let origin = tagged();
    let port = free_port();
    let home = Home::new();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = [\"one.test\", \"*.two.test\"]\nlisten = \"127.0.0.1:{port}\"\n\
             upstream = \"http://{}\"\ncache = true\n",
            origin.address()
        ),
    );
    let _apus = home.serve(&[]);
    let listed = home.path("urls.txt");
    for (authority, is_known) in [
        ("one.test".to_owned(), true),
        ("ONE.test.".to_owned(), true),
        ("a.two.test".to_owned(), true),
        (format!("one.test:{port}"), true),
        ("one.test:80".to_owned(), true),
        ("two.test".to_owned(), false),
        ("three.test".to_owned(), false),
        ("one.test:1".to_owned(), false),
    ] {
        let url = format!("http://{authority}/1");
        for what in ["--url", "--prefix"] {
            let status = i32::from(!is_known);
            let (_, errors) = home.expect(&["cache", "purge", what, &url], status);
            assert_eq!(errors.contains("no site"), !is_known, "{url}: {errors}");
        }
        // A listener at port 80 is not there to be warmed.
        if authority.ends_with(":80") {
            continue;
        }
        std::fs::write(&listed, &url).unwrap();
        let arguments = ["cache", "warm", "urls.txt"];
        let (output, errors) = home.expect(&arguments, i32::from(!is_known));
        let said = format!("{output}{errors}");
        assert_eq!(said.contains("no site"), !is_known, "{url}: {said}");
    }
}

#[test]
fn a_purge_of_one_site_leaves_the_others() {
    let origins = [tagged(), tagged()];
    let other = format!(
        "[[sites]]\nserver_name = \"other.test\"\nlisten = [\"127.0.0.1:{}\"]\n\
         [[sites.locations]]\npath = \"/\"\nupstream = \"http://{}\"\ncache = true",
        free_port(),
        origins[1].address()
    );
    let front = configured(&origins[0]).after(&other).serve();
    let address = crate::harness::address_of(&front.apus.urls()[1]);
    let fetch_from_other = || {
        let mut wire = crate::wire::Wire::connect(address);
        wire.send("GET /a/1 HTTP/1.1\r\nHost: other.test\r\n\r\n");
        wire.read().text()
    };
    for (number, what) in [["--all", ""], ["--tag", "all"]].into_iter().enumerate() {
        assert_eq!(fetch_from_other(), format!("answer {}", number + 1));
        let what = what.into_iter().filter(|word| !word.is_empty());
        let site = ["cache", "purge", "--site", "other.test"];
        let arguments: Vec<_> = site.into_iter().chain(what).collect();
        let purge = || drop(front.home.expect(&arguments, 0));
        assert_eq!(purged(&front, purge), [""; 0], "{arguments:?}");
    }
    assert_eq!(fetch_from_other(), "answer 3");
}

#[test]
fn a_soft_purge_makes_responses_stale_that_stale_if_error_may_still_serve() {
    let lines = "Cache-Control: max-age=60, stale-if-error=600\r\nSurrogate-Key: all\r\n";
    let origin = numbered(move |_| lines.to_owned());
    let front = configured(&origin).serve();
    let purge = |arguments: &[&str]| {
        front
            .home
            .expect(&[&["cache", "purge"], arguments].concat(), 0);
    };
    assert_eq!(front.get("/").text(), "answer 1");
    for (number, what) in [
        &["--url", "http://localhost/"][..],
        &["--prefix", "http://localhost/"],
        &["--tag", "all"],
        &["--all"],
    ]
    .into_iter()
    .enumerate()
    {
        purge(&[what, &["--soft"]].concat());
        let before = requests_to(&origin);
        assert_eq!(front.get("/").text(), format!("answer {}", number + 2));
        assert_eq!(requests_to(&origin), before + 1, "{what:?}");
        assert!(is_hit(&front, "/"), "{what:?}");
    }
    let last = front.get("/").text();
    drop(origin);
    purge(&["--all", "--soft"]);
    for _ in 0..2 {
        let reply = front.get("/");
        assert_eq!((reply.status, reply.text()), (200, last.clone()));
    }
    purge(&["--all"]);
    assert_eq!(front.get("/").status, 502);
}

#[test]
fn clients_with_the_token_purge_over_http() {
    let origin = tagged();
    let token = "a-long-secret-that-nobody-knows";
    let cache = format!("cache = {{ purge_token = \"{token}\" }}");
    let front = configured_with(&origin, &cache).serve();
    let cases: [(&str, &[&str], &[&str]); 5] = [
        ("/a/1", &[], &["/a/1"]),
        ("/x/..//a/1?q", &[], &["/a/1?q"]),
        (
            "/a/",
            &["--header", "Purge-Prefix: 1"],
            &["/a/1", "/a/1?q", "/a/2"],
        ),
        (
            "/",
            &["--header", "Purge-Tag: none, one"],
            &["/a/1", "/a/1?q", "/b/1"],
        ),
        ("/", &["--header", "Purge-Prefix: 1"], &TARGETS),
    ];
    let bearer = format!("Authorization: Bearer {token}");
    for version in VERSIONS {
        for (target, fields, expected) in cases {
            let purge = || {
                let reply = curl(version)
                    .args(&["--request", "PURGE", "--path-as-is"])
                    .args(&["--header", "Host: localhost", "--header", &bearer])
                    .args(fields)
                    .get(&front.url(target));
                assert_eq!(reply.status, 204, "{version} {target}");
            };
            assert_eq!(
                purged(&front, purge),
                expected,
                "{version} {target} {fields:?}"
            );
        }
    }
    // The origin receives neither PURGE nor the token.
    let received = origin.received();
    assert!(!received.contains("PURGE") && !received.contains(token));
}

#[test]
fn purged_responses_do_not_return_after_a_crash() {
    for what in [
        &["--prefix", "http://localhost/"][..],
        &["--tag", "all"],
        &["--all"],
    ] {
        let origin = tagged();
        let mut front = cached_on_disk(&origin, Home::new(), free_port());
        let targets: Vec<_> = (0..200).map(|number| format!("/{number}")).collect();
        for target in &targets {
            assert_eq!(front.get(target).text(), "answer 1");
        }
        wait_until("all are on disk", || {
            front.status()["cache"]["disk"]["objects"] == targets.len()
        });
        front.home.expect(&[&["cache", "purge"], what].concat(), 0);
        front.apus.signal(Signal::KILL);
        front.apus.wait();
        front.apus = front.home.serve(&[]);
        for target in &targets {
            assert_eq!(front.get(target).text(), "answer 2", "{what:?} {target}");
        }
    }
}

/// The stored responses that `apus cache list` shows, by URL.
fn listed(front: &Front, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["cache", "list", "--json"], arguments].concat();
    let (out, _) = front.home.expect(&arguments, 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert!(!out.contains("what-nobody-may-see"), "{out}");
    let mut responses = value["responses"].as_array().unwrap().clone();
    responses.sort_by_key(|one| one["url"].to_string());
    responses
}

fn listed_urls(front: &Front, arguments: &[&str]) -> Vec<String> {
    let listed = listed(front, arguments).into_iter();
    listed
        .map(|one| one["url"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn apus_cache_list_shows_what_is_stored_in_memory_and_on_disk() {
    let origin = tagged();
    let mut front = configured_with(&origin, "cache = { key.headers = \"x-tenant\" }")
        .global("cache = { dir = \"cache\", size = 512 }")
        .serve();
    assert_eq!(listed_urls(&front, &[]), Vec::<String>::new());
    for target in TARGETS {
        get(&front, target, "X-Tenant: what-nobody-may-see\r\n");
    }
    let all = TARGETS.map(|target| format!("http://localhost{target}"));
    wait_until("all are stored", || listed_urls(&front, &[]) == all);
    for is_restarted in [false, true] {
        if is_restarted {
            front.home.expect(&["stop"], 0);
            front.apus.wait();
            front.apus = front.home.serve(&[]);
            wait_until("the disk is searched", || listed_urls(&front, &[]) == all);
        }
        let urls = |arguments: &[&str]| listed_urls(&front, arguments);
        assert_eq!(urls(&["--tag", "one"]).len(), 3);
        let one = "http://localhost/a/1";
        assert_eq!(urls(&["--url", one]), [one]);
        assert_eq!(urls(&["--prefix", "http://localhost/a/"]).len(), 3);
        assert_eq!(urls(&["--most", "2"]).len(), 2);
        let found = &listed(&front, &["--url", one])[0];
        assert_eq!(
            (&found["status"], &found["is_fresh"]),
            (&200.into(), &true.into())
        );
        assert_eq!(found["in_memory"], !is_restarted);
        assert_eq!(found["tags"], serde_json::json!(["all", "one"]));
    }
    front.home.expect(&["cache", "purge", "--all", "--soft"], 0);
    get(&front, "/ab", "X-Tenant: other\r\n");
    let fresh = || {
        listed(&front, &[])
            .iter()
            .filter(|one| one["is_fresh"] == true)
            .count()
    };
    wait_until("only one is fresh", || fresh() == 1);
    front.home.expect(&["cache", "purge", "--tag", "one"], 0);
    let (ab, a2) = (all[3].clone(), all[2].clone());
    assert_eq!(listed_urls(&front, &[]), [a2, ab.clone(), ab]);
}
