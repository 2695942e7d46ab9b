//! A cached WordPress: anonymous clients share one page, authenticated clients get their own, and neither
//! sees the page of the other.

use super::server::Server;
use super::stack::Stack;
use super::visitor::{ClientProtocol, PageResponse, Visitor};
use super::wordpress::{Author, ExclusiveBlog, PASSWORD, blog};

const CACHE: &str = "fastcgi = { cache = { ttl = 600 }, cache_field = true }";

/// The result of the cache for a response.
fn cache_result(reply: &PageResponse) -> &str {
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
fn anonymous_clients_share_a_page_that_php_generates_once() {
    let _blog = ExclusiveBlog::lock();
    let server = blog(CACHE);
    let generated = || {
        Stack::shared()
            .access_log()
            .matches(" GET /swifts/\n")
            .count()
    };
    let before = generated();
    let first = Visitor::new(ClientProtocol::Http1).get(&server, "/swifts/");
    assert_eq!(cache_result(&first), "MISS");
    for protocol in [
        ClientProtocol::Http1,
        ClientProtocol::Http2,
        ClientProtocol::Http1,
    ] {
        let reply = Visitor::new(protocol).get(&server, "/swifts/");
        assert_eq!(cache_result(&reply), "HIT", "{protocol:?}");
        assert!(reply.body == first.body, "{protocol:?}");
    }
    // A page over TLS contains other URLs.
    let secure = Visitor::new(ClientProtocol::Tls).get(&server, "/swifts/");
    assert_eq!(cache_result(&secure), "MISS");
    assert!(secure.text().contains("https://blog.test/swifts/"));
    assert_eq!(generated() - before, 2);
}

#[test]
fn authenticated_clients_get_their_own_pages_and_anonymous_clients_never_do() {
    let _blog = ExclusiveBlog::lock();
    let server = blog(CACHE);
    let anonymous = Visitor::new(ClientProtocol::Http1);
    let author = Author::log_in(&server, ClientProtocol::Http1).0;
    // Before anything is stored, and after.
    for stored in [false, true] {
        let reply = author.get(&server, "/");
        assert_eq!(cache_result(&reply), "BYPASS", "{stored}");
        assert!(has_bar(&reply), "{stored}");
        let reply = anonymous.get(&server, "/");
        assert_eq!(cache_result(&reply), if stored { "HIT" } else { "MISS" });
        assert!(!has_bar(&reply), "{stored}");
    }
    for cookie in ["wp-postpass_1=x", "comment_author_1=Mallory", "PHPSESSID=1"] {
        let reply = anonymous.request(&server, "/", &["--header", &format!("Cookie: {cookie}")]);
        assert_eq!(cache_result(&reply), "BYPASS", "{cookie}");
    }
    // Cookies that PHP does not use do not bypass the cache.
    let reply = anonymous.request(&server, "/", &["--header", "Cookie: _ga=1; theme=dark"]);
    assert_eq!(cache_result(&reply), "HIT");
}

#[test]
fn private_or_state_changing_responses_are_never_stored() {
    let _blog = ExclusiveBlog::lock();
    let server = blog(CACHE);
    let author = Author::log_in(&server, ClientProtocol::Http1).0;
    let anonymous = Visitor::new(ClientProtocol::Http1);
    for path in [
        "/wp-login.php",
        "/wp-admin/profile.php",
        "/wp-admin/",
        "/nowhere/",
        "/wp-json/wp/v2/users/me",
    ] {
        author.get(&server, path);
        for _ in 0..2 {
            let reply = anonymous.get(&server, path);
            assert_ne!(reply.field("x-fastcgi-cache"), "HIT", "{path}");
            assert!(!has_bar(&reply), "{path}");
        }
    }
    // A client that logs in while the page is stored gets its own page.
    let form = [
        "--data",
        "log=swift",
        "--data-urlencode",
        &format!("pwd={PASSWORD}"),
    ];
    let reply = anonymous.request(&server, "/wp-login.php", &form);
    assert_eq!(reply.status, 302);
    assert!(!reply.field("set-cookie").is_empty());
    assert!(has_bar(&anonymous.get(&server, "/swifts/")));
    // Searches for different words are stored separately.
    let found = |what: &str| anonymous.get(&server, &format!("/?s={what}")).text();
    assert!(found("wing").contains("wing") && !found("nothing+such").contains("sleep on the wing"));
    // A forged field does not change the page of other clients.
    let fresh = Visitor::new(ClientProtocol::Http1);
    for field in [
        "X-Forwarded-Host: evil.test",
        "X-Forwarded-Proto: https",
        "X-Original-URL: /wp-admin/",
        "X-Rewrite-URL: /",
    ] {
        fresh.request(&server, "/swifts/?poison", &["--header", field]);
        let text = Visitor::new(ClientProtocol::Http1)
            .get(&server, "/swifts/?poison")
            .text();
        assert!(!text.contains("evil.test"), "{field}");
        assert!(!text.contains("https://blog.test"), "{field}");
        purge(&server, &["--all"]);
    }
}

#[test]
fn a_purge_makes_a_new_post_visible() {
    let _blog = ExclusiveBlog::lock();
    let server = blog(CACHE);
    let author = Author::log_in(&server, ClientProtocol::Http1);
    let anonymous = Visitor::new(ClientProtocol::Http1);
    for arguments in [
        &["--all"][..],
        &["--url", "http://blog.test/"],
        &["--site", "blog.test", "--all"],
    ] {
        purge(&server, &["--all"]);
        assert_eq!(cache_result(&anonymous.get(&server, "/")), "MISS");
        assert_eq!(cache_result(&anonymous.get(&server, "/")), "HIT");
        let slug = format!("news-{}", arguments.len());
        author.publish(&server, &slug, "Something has happened.");
        let reply = anonymous.get(&server, "/");
        assert_eq!(cache_result(&reply), "HIT", "{arguments:?}");
        assert!(!reply.text().contains(&slug), "{arguments:?}");
        purge(&server, arguments);
        let reply = anonymous.get(&server, "/");
        assert_eq!(cache_result(&reply), "MISS", "{arguments:?}");
        assert!(reply.text().contains(&slug), "{arguments:?}");
    }
}
