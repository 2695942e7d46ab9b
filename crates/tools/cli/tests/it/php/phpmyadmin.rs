//! phpMyAdmin: a login with cookies, and pages of databases and tables.

use super::compare::assert_same_response;
use super::server::{Server, Site};
use super::stack::Stack;
use super::visitor::{ClientProtocol, Visitor, between};

const KEEPER: (&str, &str) = ("keeper", "of the shop");

fn site<T>(start: impl Fn(&Site<'_>) -> T) -> T {
    let stack = Stack::shared();
    start(&Site {
        host: "admin.test",
        root: &stack.path("phpmyadmin"),
        socket: &stack.socket(),
        apus: "",
        nginx: "",
    })
}

/// The hidden field of this name.
fn hidden(page: &str, name: &str) -> String {
    between(page, &format!("name=\"{name}\" value=\""), "\"").to_owned()
}

/// Logs in with these credentials; the page that follows.
fn log_in(server: &Server, visitor: &Visitor, (user, password): (&str, &str)) -> String {
    let page = visitor.get(server, "/").text();
    let (token, session) = (hidden(&page, "token"), hidden(&page, "set_session"));
    let form = [
        ("route", "/"),
        ("token", token.as_str()),
        ("set_session", &session),
        ("pma_username", user),
        ("pma_password", password),
        ("server", "1"),
    ];
    visitor.post(server, "/index.php?route=/", &form);
    visitor.get(server, "/index.php?route=/").text()
}

#[test]
fn phpmyadmin_accepts_only_the_right_password_and_shows_tables() {
    let server = site(Server::apus);
    for protocol in ClientProtocol::ALL {
        let rejected = Visitor::new(protocol);
        let page = log_in(&server, &rejected, ("keeper", "guessed"));
        assert!(page.contains("pma_password"), "{page}");
        let visitor = Visitor::new(protocol);
        let page = log_in(&server, &visitor, KEEPER);
        assert!(page.contains("keeper@localhost"), "{protocol:?}: {page}");
        let page = visitor
            .get(&server, "/index.php?route=/server/databases")
            .text();
        assert!(
            page.contains(">shop<") || page.contains("db=shop"),
            "{page}"
        );
        let path = "/index.php?route=/sql&db=shop&table=users&pos=0";
        let page = visitor.get(&server, path).text();
        assert!(page.contains("Tachymarptis melba"), "{protocol:?}: {page}");
    }
}

#[test]
fn phpmyadmin_responds_as_behind_nginx() {
    let server = site(Server::apus);
    let nginx = site(Server::nginx);
    let visitor = Visitor::new(ClientProtocol::Http1);
    log_in(&server, &visitor, KEEPER);
    for path in [
        "/js/messages.php?l=en",
        "/js/dist/ajax.js",
        "/themes/pmahomme/css/theme.css",
        "/themes/pmahomme/img/logo_left.png",
        "/url.php?url=https://www.phpmyadmin.net/",
    ] {
        assert_same_response(&visitor, &server, &nginx, path, &[]);
    }
    for path in ["/nowhere", "/libraries/nowhere.php", "/index.php.bak"] {
        assert_eq!(visitor.get(&server, path).status, 404, "{path}");
    }
}
