//! A cached WordPress: strangers share one page, who is known gets their own, and neither ever sees the
//! other's.

use super::server::Server;
use super::stack::Stack;
use super::visitor::{PageResponse, Visitor, Way};
use super::wordpress::{Author, PASSWORD, Quiet, blog};

const CACHE: &str = "fastcgi = { cache = { ttl = 600 }, cache_field = true }";

/// What the cache did for an answer.
fn did(reply: &PageResponse) -> &str {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.field("x-fastcgi-cache")
}

fn has_bar(reply: &PageResponse) -> bool {
    reply.text().contains("id=\"wpadminbar\"")
}

fn purge(server: &Server, arguments: &[&str]) {
    server
        .home
        .expect(&[&["cache", "purge"], arguments].concat(), 0);
}

#[test]
fn strangers_share_a_page_that_php_makes_once() {
    let _quiet = Quiet::begin();
    let server = blog(CACHE);
    let made = || {
        Stack::shared()
            .answered()
            .matches(" GET /swifts/\n")
            .count()
    };
    let before = made();
    let first = Visitor::new(Way::Http1).get(&server, "/swifts/");
    assert_eq!(did(&first), "MISS");
    for way in [Way::Http1, Way::Http2, Way::Http1] {
        let reply = Visitor::new(way).get(&server, "/swifts/");
        assert_eq!(did(&reply), "HIT", "{way:?}");
        assert!(reply.body == first.body, "{way:?}");
    }
    // What is sent over TLS names itself otherwise.
    let secure = Visitor::new(Way::Tls).get(&server, "/swifts/");
    assert_eq!(did(&secure), "MISS");
    assert!(secure.text().contains("https://blog.test/swifts/"));
    assert_eq!(made() - before, 2);
}

#[test]
fn whoever_is_known_gets_pages_of_their_own_and_strangers_never_do() {
    let _quiet = Quiet::begin();
    let server = blog(CACHE);
    let stranger = Visitor::new(Way::Http1);
    let author = Author::log_in(&server, Way::Http1).0;
    // Before anything is stored, and after.
    for stored in [false, true] {
        let reply = author.get(&server, "/");
        assert_eq!(did(&reply), "BYPASS", "{stored}");
        assert!(has_bar(&reply), "{stored}");
        let reply = stranger.get(&server, "/");
        assert_eq!(did(&reply), if stored { "HIT" } else { "MISS" });
        assert!(!has_bar(&reply), "{stored}");
    }
    for cookie in ["wp-postpass_1=x", "comment_author_1=Mallory", "PHPSESSID=1"] {
        let reply = stranger.ask(&server, "/", &["--header", &format!("Cookie: {cookie}")]);
        assert_eq!(did(&reply), "BYPASS", "{cookie}");
    }
    // Cookies that tell PHP nothing do not cost the page.
    let reply = stranger.ask(&server, "/", &["--header", "Cookie: _ga=1; theme=dark"]);
    assert_eq!(did(&reply), "HIT");
}

#[test]
fn what_is_private_or_changes_something_is_never_stored() {
    let _quiet = Quiet::begin();
    let server = blog(CACHE);
    let author = Author::log_in(&server, Way::Http1).0;
    let stranger = Visitor::new(Way::Http1);
    for path in [
        "/wp-login.php",
        "/wp-admin/profile.php",
        "/wp-admin/",
        "/nowhere/",
        "/wp-json/wp/v2/users/me",
    ] {
        author.get(&server, path);
        for _ in 0..2 {
            let reply = stranger.get(&server, path);
            assert_ne!(reply.field("x-fastcgi-cache"), "HIT", "{path}");
            assert!(!has_bar(&reply), "{path}");
        }
    }
    // Somebody logs in while the page is stored, and out: each sees what is theirs.
    let form = [
        "--data",
        "log=swift",
        "--data-urlencode",
        &format!("pwd={PASSWORD}"),
    ];
    let reply = stranger.ask(&server, "/wp-login.php", &form);
    assert_eq!(reply.status, 302);
    assert!(!reply.field("set-cookie").is_empty());
    assert!(has_bar(&stranger.get(&server, "/swifts/")));
    // A search differs by what is searched for.
    let found = |what: &str| stranger.get(&server, &format!("/?s={what}")).text();
    assert!(found("wing").contains("wing") && !found("nothing+such").contains("sleep on the wing"));
    // A poisoned host or field makes no page for others.
    let fresh = Visitor::new(Way::Http1);
    for field in [
        "X-Forwarded-Host: evil.test",
        "X-Forwarded-Proto: https",
        "X-Original-URL: /wp-admin/",
        "X-Rewrite-URL: /",
    ] {
        fresh.ask(&server, "/swifts/?poison", &["--header", field]);
        let text = Visitor::new(Way::Http1)
            .get(&server, "/swifts/?poison")
            .text();
        assert!(!text.contains("evil.test"), "{field}");
        assert!(!text.contains("https://blog.test"), "{field}");
        purge(&server, &["--all"]);
    }
}

#[test]
fn a_purge_shows_what_was_written() {
    let _quiet = Quiet::begin();
    let server = blog(CACHE);
    let author = Author::log_in(&server, Way::Http1);
    let stranger = Visitor::new(Way::Http1);
    for arguments in [
        &["--all"][..],
        &["--url", "http://blog.test/"],
        &["--site", "blog.test", "--all"],
    ] {
        purge(&server, &["--all"]);
        assert_eq!(did(&stranger.get(&server, "/")), "MISS");
        assert_eq!(did(&stranger.get(&server, "/")), "HIT");
        let slug = format!("news-{}", arguments.len());
        author.publish(&server, &slug, "Something has happened.");
        let reply = stranger.get(&server, "/");
        assert_eq!(did(&reply), "HIT", "{arguments:?}");
        assert!(!reply.text().contains(&slug), "{arguments:?}");
        purge(&server, arguments);
        let reply = stranger.get(&server, "/");
        assert_eq!(did(&reply), "MISS", "{arguments:?}");
        assert!(reply.text().contains(&slug), "{arguments:?}");
    }
}
