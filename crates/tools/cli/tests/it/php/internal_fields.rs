//! Fields by which a script tells the server what to do: what they do not do is logged, and no client sees them.

use super::doors::doors;
use super::server::Server;
use crate::wire::{Received, Wire};

fn send(server: &Server, method: &str, path: &str, fields: &str) -> Received {
    let mut wire = Wire::connect(server.clear());
    wire.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n"
    ));
    match method {
        "HEAD" => wire.read_head(),
        _ => wire.read(),
    }
}

/// Sends the header fields of its query.
const SEND_FIELDS: &str = "<?php foreach ($_GET['h'] ?? [] as $line) header($line);
    if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
    if (!isset($_GET['empty'])) echo 'of the script';";

fn files() -> Vec<(&'static str, &'static str)> {
    vec![
        ("index.php", SEND_FIELDS),
        ("kept/a.png", "an image"),
        ("kept/a.txt", "a text"),
        ("kept/page.html", "a page"),
        ("kept/unknown", "unknown"),
    ]
}

/// The names of fields that are for the server.
fn internal(reply: &Received) -> Vec<&String> {
    let is_internal = |line: &&String| {
        ["x-accel-", "x-apus-", "x-sendfile:"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    reply.head.iter().filter(is_internal).collect()
}

#[test]
fn an_internal_redirect_that_is_not_allowed_is_logged_and_no_empty_page() {
    for keys in ["", "preset = \"wordpress\""] {
        for (door, server) in doors("accel-off", &files(), keys) {
            for (field, target) in [
                ("X-Accel-Redirect", "/kept/a.txt"),
                ("X-Sendfile", "/srv/kept/a.txt"),
            ] {
                for method in ["GET", "HEAD", "POST"] {
                    let path = format!("/index.php?empty=1&h[]={field}:%20{target}");
                    let reply = send(&server, method, &path, "");
                    assert_eq!(reply.status, 500, "{door} {keys} {field} {method}");
                    assert!(internal(&reply).is_empty(), "{door} {:?}", reply.head);
                }
                let log = server.wait_for_log(target);
                assert!(log.contains("`accel` does not allow it"), "{door} {log}");
            }
        }
    }
    let keys = "fastcgi.accel = { files = { \"/srv/files/\" = \"/kept/\" } }";
    for (door, server) in doors("accel-off", &files(), keys) {
        let path = "/index.php?empty=1&h[]=X-Sendfile:%20/etc/passwd";
        assert_eq!(send(&server, "GET", path, "").status, 500, "{door}");
        let log = server.wait_for_log("/etc/passwd");
        assert!(
            log.contains("no folder of `accel.files` holds"),
            "{door} {log}"
        );
    }
}

#[test]
fn a_file_that_a_script_has_sent_has_its_own_type_unless_the_script_names_one() {
    let keys = "fastcgi.accel = { files = { \"/srv/files/\" = \"/kept/\" } }";
    for (door, server) in doors("accel-types", &files(), keys) {
        for (file, more, media, body) in [
            ("a.png", "", "image/png", "an image"),
            ("a.txt", "", "text/plain; charset=utf-8", "a text"),
            ("page.html", "", "text/html; charset=utf-8", "a page"),
            ("unknown", "", "application/octet-stream", "unknown"),
            (
                "a.txt",
                "&h[]=Content-Type:%20text/css",
                "text/css;charset=UTF-8",
                "a text",
            ),
            (
                "unknown",
                "&h[]=Content-Type:%20application/pdf",
                "application/pdf",
                "unknown",
            ),
        ] {
            for field in ["X-Accel-Redirect:%20/kept/", "X-Sendfile:%20/srv/files/"] {
                for method in ["GET", "HEAD"] {
                    let path = format!("/index.php?h[]={field}{file}{more}");
                    let reply = send(&server, method, &path, "");
                    let what = format!("{door} {method} {path}");
                    assert_eq!(reply.status, 200, "{what}");
                    assert_eq!(reply.field("content-type"), Some(media), "{what}");
                    assert!(internal(&reply).is_empty(), "{what} {:?}", reply.head);
                    if method == "GET" {
                        assert_eq!(reply.text(), body, "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn no_client_sees_a_field_that_a_script_has_for_the_server() {
    const FIELDS: &str = "h[]=X-Accel-Buffering:%20no&h[]=X-Accel-Expires:%2060&h[]=X-Accel-Charset:%20utf-8\
        &h[]=X-Accel-Limit-Rate:%201000&h[]=X-Apus-Other:%201";
    for keys in ["", "fastcgi.cache = { ttl = 600 }", "fastcgi.accel = true"] {
        for (door, server) in doors("fields", &files(), keys) {
            for events in ["", "&h[]=X-Apus-Events:%20news"] {
                for status in [200, 204, 302, 304, 404, 500, 503] {
                    for method in ["GET", "HEAD", "POST"] {
                        // The stream of events goes on.
                        let is_stream = door == "resident" && !events.is_empty() && status == 200;
                        let path = format!("/index.php?status={status}&{FIELDS}{events}");
                        let mut wire = Wire::connect(server.clear());
                        wire.send(format!(
                            "{method} {path} HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n"
                        ));
                        let reply = wire.read_head();
                        let what = format!("{door} {keys} {method} {path}");
                        assert_eq!(reply.status, status, "{what}");
                        assert!(internal(&reply).is_empty(), "{what} {:?}", reply.head);
                        if is_stream {
                            let media = reply.field("content-type");
                            assert_eq!(media, Some("text/event-stream"), "{what}");
                        }
                    }
                }
            }
        }
    }
}
