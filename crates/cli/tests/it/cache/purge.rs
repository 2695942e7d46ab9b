//! What is purged is fetched again and nothing else is: by `apus cache purge`, and by PURGE from who
//! has the token.

use rustix::process::Signal;

use super::{MINUTE, asked, cached_on_disk, configured, configured_with, get, is_hit, numbered};
use crate::harness::{Home, free_port, wait_until};
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::proxy::{Front, VERSIONS, curl};

/// What is stored before each purge.
const TARGETS: [&str; 5] = ["/a/1", "/a/1?q", "/a/2", "/ab", "/b/1"];

/// An origin whose answers have the tag `one` if a 1 is in their target, and the tag `all`.
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

/// Has everything stored, purges, and says what is gone.
fn gone(front: &Front, purge: impl FnOnce()) -> Vec<&'static str> {
    for target in TARGETS {
        get(front, target, "");
        assert!(is_hit(front, target), "{target}");
    }
    purge();
    let gone = TARGETS.into_iter().filter(|target| !is_hit(front, target));
    gone.collect()
}

#[test]
fn what_an_operator_purges_is_fetched_again_and_nothing_else() {
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
            assert_eq!(front.home.expect(&arguments, 0).0, "purged\n");
        };
        assert_eq!(gone(&front, purge), expected, "{arguments:?}");
    }
    let (_, errors) = front.home.expect(&["cache", "purge", "--url", "/a/1"], 1);
    assert!(errors.contains("`/a/1` is not a URL"), "{errors}");
}

#[test]
fn a_site_is_purged_without_the_others() {
    let origins = [tagged(), tagged()];
    let other = format!(
        "[[sites]]\nserver_name = \"other.test\"\nlisten = [\"127.0.0.1:{}\"]\n\
         [[sites.locations]]\npath = \"/\"\nupstream = \"http://{}\"\ncache = true",
        free_port(),
        origins[1].address()
    );
    let front = configured(&origins[0]).after(&other).serve();
    let address = crate::harness::address_of(&front.apus.urls()[1]);
    let of_other = || {
        let mut wire = crate::wire::Wire::connect(address);
        wire.send("GET /a/1 HTTP/1.1\r\nHost: other.test\r\n\r\n");
        wire.read().text()
    };
    for (number, what) in [["--all", ""], ["--tag", "all"]].into_iter().enumerate() {
        assert_eq!(of_other(), format!("answer {}", number + 1));
        let what = what.into_iter().filter(|word| !word.is_empty());
        let site = ["cache", "purge", "--site", "other.test"];
        let arguments: Vec<_> = site.into_iter().chain(what).collect();
        let purge = || drop(front.home.expect(&arguments, 0));
        assert_eq!(gone(&front, purge), [""; 0], "{arguments:?}");
    }
    assert_eq!(of_other(), "answer 3");
}

#[test]
fn a_soft_purge_makes_stale_what_may_stand_in_for_an_origin_that_fails() {
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
        let asked_before = asked(&origin);
        assert_eq!(front.get("/").text(), format!("answer {}", number + 2));
        assert_eq!(asked(&origin), asked_before + 1, "{what:?}");
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
fn who_has_the_token_purges_over_http() {
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
                gone(&front, purge),
                expected,
                "{version} {target} {fields:?}"
            );
        }
    }
    // The token stays here.
    let received = origin.received();
    assert!(!received.contains("PURGE") && !received.contains(token));
}

#[test]
fn what_was_purged_does_not_come_back_after_a_crash() {
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
