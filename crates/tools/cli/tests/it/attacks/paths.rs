//! Paths and client fields: only files below the root are served, hidden files and source files never are,
//! and no field of a client is taken for a fact of the request.

use std::os::unix::fs::symlink;

use super::{SECRET, Victim};
use crate::harness::wait_until;

/// Expects an error without the secret for each target.
fn assert_not_served(victim: &Victim, targets: &[&str]) {
    for target in targets {
        let received = victim.get(target, "");
        assert!(
            matches!(received.status, 400 | 403 | 404),
            "{target}: {:?}",
            received.head
        );
        assert!(!received.text().contains(SECRET), "{target}");
    }
    victim.assert_healthy();
}

#[test]
fn encoded_and_plain_dot_segments_never_leave_the_root() {
    assert_not_served(
        &Victim::with_defaults(),
        &[
            "/../secret.txt",
            "/files/../../secret.txt",
            "/%2e%2e/secret.txt",
            "/%2E%2e/secret.txt",
            "/.%2e/secret.txt",
            "/%2e./secret.txt",
            "/files/..%2f..%2fsecret.txt",
            "/..%2fsecret.txt",
            "/..%5csecret.txt",
            "/..\\secret.txt",
            "/%252e%252e/secret.txt",
            "/%252e%252e%252fsecret.txt",
            "/..%00/secret.txt",
            "/../secret.txt%00.html",
            "/%c0%ae%c0%ae/secret.txt",
            "/%c0%ae%c0%ae%c0%afsecret.txt",
            "/%e0%80%ae%e0%80%ae/secret.txt",
            "/..%c0%afsecret.txt",
            "/%uff0e%uff0e/secret.txt",
            "/..;/secret.txt",
            "/....//secret.txt",
            "//../secret.txt",
            "/./../secret.txt",
            "http://localhost/../secret.txt",
            "/%",
            "/%2",
            "/%zz",
        ],
    );
}

#[test]
fn an_encoded_slash_does_not_separate_segments() {
    assert_not_served(
        &Victim::with_defaults(),
        &[
            "/files%2fa.txt",
            "/files%2Fa.txt",
            "/%2ffiles/a.txt",
            "/files%5ca.txt",
        ],
    );
}

#[test]
fn hidden_files_are_not_served() {
    assert_not_served(
        &Victim::with_defaults(),
        &[
            "/.env",
            "/%2eenv",
            "/.htaccess",
            "/.git/config",
            "/%2egit/config",
            "/.git/",
            "/.git",
            "/./.env",
            "/files/../.env",
        ],
    );
}

#[test]
fn source_files_are_never_sent() {
    assert_not_served(
        &Victim::with_defaults(),
        &[
            "/page.php",
            "/page.PHP",
            "/page%2ephp",
            "/page.ph%70",
            "/page.php/",
            "/page.php/x",
            "/page.php/x.css",
            "/page.phtml",
            "/files/run.PHP",
            "/index.html/run.php",
            "/page.php%00.html",
            "/page.php%20",
            "/page.php.",
            "/page.php::$DATA",
        ],
    );
}

#[test]
fn file_names_are_case_sensitive() {
    assert_not_served(
        &Victim::with_defaults(),
        &["/INDEX.HTML", "/Files/a.txt", "/files/A.TXT"],
    );
}

#[test]
fn symbolic_links_out_of_the_root_are_not_followed() {
    let victim = Victim::with_defaults();
    let link = |from: &str, to: &str| symlink(from, victim.home.path(to)).unwrap();
    let outside = victim.home.path("outside");
    link(outside.to_str().unwrap(), "site/out");
    link("../outside", "site/relative");
    link("../secret.txt", "site/link.txt");
    link("/etc/passwd", "site/passwd.txt");
    link("loop", "site/loop");
    link(".env", "site/plain.txt");
    link("files", "site/inside");
    assert_not_served(
        &victim,
        &[
            "/out/secret.txt",
            "/relative/secret.txt",
            "/link.txt",
            "/passwd.txt",
            "/loop",
            "/loop/x",
        ],
    );
    assert_eq!(victim.get("/inside/a.txt", "").text(), "a");
}

#[test]
fn a_location_prefix_without_a_trailing_slash_does_not_escape_its_alias() {
    let victim = Victim::configured(
        "",
        "[[sites.locations]]\npath = \"/docs\"\nalias = \"outside/\"\n\
         [[sites.locations]]\npath = \"/pages/\"\nalias = \"site/files\"",
    );
    assert_not_served(
        &victim,
        &[
            "/docs../secret.txt",
            "/docs../outside/secret.txt",
            "/docs/../secret.txt",
            "/docs%2e%2e/secret.txt",
            "/docs..%2fsecret.txt",
            "/docssecret.txt",
            "/pages../.env",
            "/pages/../.env",
        ],
    );
    assert_eq!(victim.get("/docs/secret.txt", "").text(), SECRET);
    assert_eq!(victim.get("/pages/a.txt", "").text(), "a");
}

#[test]
fn the_location_and_the_file_are_selected_by_the_same_normalized_path() {
    let victim = Victim::configured(
        "",
        "[[sites.locations]]\npath = \"/files/\"\nreturn = { status = 403 }",
    );
    for target in [
        "/files/a.txt",
        "//files/a.txt",
        "/%66iles/a.txt",
        "/./files/a.txt",
        "/x/../files/a.txt",
        "/files//a.txt",
        "/files/./a.txt",
        "http://localhost/files/a.txt",
    ] {
        assert_eq!(victim.get(target, "").status, 403, "{target}");
    }
    victim.assert_healthy();
}

#[test]
fn fields_with_names_similar_to_framing_fields_do_not_affect_framing() {
    let victim = Victim::with_defaults();
    for field in [
        "Content_Length: 100",
        "Content.Length: 100",
        "Transfer_Encoding: chunked",
        "Proxy: http://evil/",
        "Host_: evil",
        "X_Forwarded_For: 1.2.3.4",
    ] {
        let mut wire = victim.connect();
        for _ in 0..2 {
            wire.send(format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n"
            ));
            assert_eq!(wire.read().text(), "<h1>hello</h1>", "{field}");
        }
    }
    victim.assert_healthy();
}

#[test]
fn fields_of_a_client_change_neither_its_address_nor_scheme_nor_host() {
    let victim = Victim::configured(
        "",
        "access_log = { path = \"access.log\", format = \"$remote_addr $scheme $host\" }\n\
         [[sites.locations]]\npath = \"= /moved\"\n\
         return = { status = 301, location = \"$scheme://$host/\" }",
    );
    let fields = "X-Forwarded-For: 1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n\
                  Forwarded: for=1.2.3.4;proto=https;host=evil\r\nX-Forwarded-Host: evil\r\n\
                  X-Original-URL: /smuggled\r\nX-Rewrite-URL: /smuggled\r\n\
                  X-HTTP-Method-Override: DELETE\r\n";
    assert_eq!(victim.get("/", fields).text(), "<h1>hello</h1>");
    let received = victim.get("/moved", fields);
    assert_eq!(received.field("location"), Some("http://localhost/"));
    let lines = "127.0.0.1 http localhost\n".repeat(3);
    wait_until("the lines are in the log", || {
        victim.home.read("access.log") == lines
    });
}

#[test]
fn a_proxy_protocol_header_of_an_untrusted_client_is_refused() {
    let victim = Victim::with_defaults();
    for head in [
        &b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"[..],
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x01\x0a\0\0\x02\0\x01\0\x02",
    ] {
        let mut wire = victim.connect();
        wire.send([head, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
        assert_eq!(wire.read().status, 400);
        wire.assert_closed();
    }
    assert_eq!(victim.total("bad_requests"), 2);
    victim.assert_healthy();
}
