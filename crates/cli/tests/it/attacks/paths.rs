//! Paths and programs: nothing but what lies below the root is served, hidden files and source never,
//! and no field of a client passes for something that the server says.

use std::os::unix::fs::symlink;

use super::{SECRET, Victim};
use crate::harness::wait_until;

/// None of these targets may be answered with the secret, nor with anything else that is whole.
fn assert_kept(victim: &Victim, targets: &[&str]) {
    for target in targets {
        let received = victim.get(target, "");
        assert!(
            matches!(received.status, 400 | 403 | 404),
            "{target}: {:?}",
            received.head
        );
        assert!(!received.text().contains(SECRET), "{target}");
    }
    victim.assert_stands();
}

#[test]
fn dots_lead_nowhere_however_they_are_written() {
    assert_kept(
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
fn an_encoded_slash_is_no_slash() {
    assert_kept(
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
fn hidden_files_are_not_there() {
    assert_kept(
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
fn source_is_never_sent() {
    assert_kept(
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
fn names_that_differ_by_case_are_other_names() {
    assert_kept(
        &Victim::with_defaults(),
        &["/INDEX.HTML", "/Files/a.txt", "/files/A.TXT"],
    );
}

#[test]
fn links_out_of_the_root_are_not_followed() {
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
    assert_kept(
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
fn a_prefix_without_its_slash_is_no_way_out_of_an_alias() {
    let victim = Victim::configured(
        "",
        "[[sites.locations]]\npath = \"/docs\"\nalias = \"outside/\"\n\
         [[sites.locations]]\npath = \"/pages/\"\nalias = \"site/files\"",
    );
    assert_kept(
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
fn location_and_file_are_found_by_the_same_path() {
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
    victim.assert_stands();
}

#[test]
fn names_like_those_of_framing_fields_do_not_frame() {
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
    victim.assert_stands();
}

#[test]
fn fields_of_a_client_pass_for_no_address_no_scheme_and_no_host() {
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
    wait_until("the lines are there", || {
        victim.home.read("access.log") == lines
    });
}

#[test]
fn a_stranger_is_nobody_else_by_the_proxy_protocol() {
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
    victim.assert_stands();
}
