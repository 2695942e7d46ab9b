//! DokuWiki, whose page names follow the name of the script in the path: its installation, edits and
//! uploads over HTTP.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::compare::assert_same_response;
use super::server::{Server, Site};
use super::source;
use super::stack::Stack;
use super::visitor::{ClientProtocol, Visitor, between};

const APUS: &str = "fastcgi = { protected = [\"/{conf,bin,inc,data,vendor}/**\"] }";

const LOCATIONS: &str = "location / { }
    location ~ ^/(conf|bin|inc|data|vendor)/ { return 404; }";

fn site<T>(start: impl Fn(&Site<'_>) -> T) -> T {
    let stack = Stack::shared();
    start(&Site {
        host: "wiki.test",
        root: &stack.path("dokuwiki"),
        socket: &stack.socket(),
        apus: APUS,
        nginx: LOCATIONS,
    })
}

/// Apus in front of an installed wiki, which no other test changes meanwhile: its feeds list what was changed last.
fn wiki() -> (MutexGuard<'static, ()>, Server) {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let server = site(Server::apus);
    INSTALLED.get_or_init(|| {
        let visitor = Visitor::new(ClientProtocol::Http1);
        assert_eq!(visitor.get(&server, "/").status, 302);
        let form = [
            ("l", "en"),
            ("d[title]", "Apus apus"),
            ("d[acl]", "on"),
            ("d[superuser]", "swift"),
            ("d[fullname]", "A swift"),
            ("d[email]", "swift@wiki.test"),
            ("d[password]", "on the wing"),
            ("d[confirm]", "on the wing"),
            ("d[policy]", "0"),
            ("d[license]", "0"),
            ("submit", ""),
        ];
        let page = visitor.post(&server, "/install.php", &form).text();
        assert!(
            page.contains("The configuration was finished successfully"),
            "{page}"
        );
    });
    (turn, server)
}

/// A visitor who is logged in as the administrator.
fn log_in(server: &Server, protocol: ClientProtocol) -> Visitor {
    let visitor = Visitor::new(protocol);
    let page = visitor.get(server, "/doku.php?id=start&do=login").text();
    let token = between(&page, "name=\"sectok\" value=\"", "\"").to_owned();
    let form = [
        ("u", "swift"),
        ("p", "on the wing"),
        ("do", "login"),
        ("id", "start"),
        ("sectok", &token),
    ];
    let reply = visitor.post(server, "/doku.php", &form);
    assert!(matches!(reply.status, 200 | 302), "{}", reply.text());
    let page = visitor.get(server, "/doku.php?id=start").text();
    assert!(page.contains("Logged in as"), "{page}");
    visitor
}

#[test]
fn dokuwiki_stores_an_edited_page() {
    let (_turn, server) = wiki();
    for protocol in ClientProtocol::ALL {
        let author = log_in(&server, protocol);
        let id = format!("birds:{protocol:?}").to_lowercase();
        let page = author
            .get(&server, &format!("/doku.php?id={id}&do=edit"))
            .text();
        let hidden =
            |name: &str| between(&page, &format!("name=\"{name}\" value=\""), "\"").to_owned();
        let (token, changed) = (hidden("sectok"), hidden("changecheck"));
        let text =
            format!("====== Swifts ======\n\nThey **sleep** on the wing, über {protocol:?}.\n");
        let form = [
            ("sectok", token.as_str()),
            ("changecheck", &changed),
            ("id", &id),
            ("rev", "0"),
            ("date", ""),
            ("prefix", "."),
            ("suffix", ""),
            ("target", "section"),
            ("wikitext", &text),
            ("summary", "written"),
            ("do[save]", "1"),
        ];
        let reply = author.post(&server, "/doku.php", &form);
        assert_eq!(reply.status, 302, "{}", reply.text());
        let reader = Visitor::new(protocol);
        let path = format!("/doku.php/{id}");
        let page = reader.get(&server, &path);
        let sentence = format!("They <strong>sleep</strong> on the wing, über {protocol:?}.");
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text().contains(&sentence), "{path}: {}", page.text());
    }
}

#[test]
fn dokuwiki_accepts_media_uploads_and_serves_them() {
    let (_turn, server) = wiki();
    let file = source("../../../../../../examples/site/public/assets/icon.png");
    for protocol in ClientProtocol::ALL {
        let author = log_in(&server, protocol);
        let page = author.get(&server, "/lib/exe/mediamanager.php?ns=&tab_files=upload");
        let page = page.text();
        let token = format!(
            "sectok={}",
            between(&page, "name=\"sectok\" value=\"", "\"")
        );
        let name = format!("{protocol:?}.png").to_lowercase();
        let upload = format!("qqfile=@{};filename={name}", file.display());
        let form = [
            "--form",
            "call=mediaupload",
            "--form",
            &token,
            "--form",
            &upload,
        ];
        let reply = author.request(&server, "/lib/exe/ajax.php", &form);
        assert!(
            reply.text().contains("\"success\":true"),
            "{}",
            reply.text()
        );
        let reply = Visitor::new(protocol).get(&server, &format!("/lib/exe/fetch.php/{name}"));
        assert_eq!(
            (reply.status, reply.field("content-type")),
            (200, "image/png")
        );
        assert!(reply.body == std::fs::read(&file).unwrap());
    }
}

#[test]
fn dokuwiki_responds_as_behind_nginx() {
    let (_turn, server) = wiki();
    let nginx = site(Server::nginx);
    let reader = Visitor::new(ClientProtocol::Http1);
    reader.get(&nginx, "/doku.php?id=start");
    for path in [
        "/doku.php?id=wiki:syntax",
        "/doku.php/wiki:syntax",
        "/doku.php/wiki/w%C3%BCrste",
        "/doku.php/nowhere",
        "/lib/exe/fetch.php/wiki:dokuwiki-128.png",
        "/lib/exe/detail.php/wiki:dokuwiki-128.png",
        "/lib/tpl/dokuwiki/images/logo.png",
    ] {
        assert_same_response(&reader, &server, &nginx, path, &[]);
    }
    // A feed contains the time of its creation and is cached: both have to be created within one second.
    let modified = |server: &Server, path: &str| {
        let response = reader.get(server, path);
        response.head.get("last-modified").cloned()
    };
    let feed = (1..30)
        .map(|entries| format!("/feed.php?num={entries}"))
        .find(|path| modified(&server, path) == modified(&nginx, path))
        .expect("two feeds of the same second");
    assert_same_response(&reader, &server, &nginx, &feed, &[]);
    for path in [
        "/conf/local.php",
        "/data/pages/wiki/syntax.txt",
        "/inc/init.php",
    ] {
        assert_eq!(reader.get(&server, path).status, 404, "{path}");
    }
}
