//! Clients that hold a body back for `100 Continue`, and origins that send their final head first (RFC 9110
//! section 10.1.1).

use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front, VERSIONS, curl};

/// Servers that reach the origin over HTTP/1.1, HTTP/2 and HTTP/3.
fn fronts(origin: &ScriptedOrigin) -> [(&'static str, Front); 3] {
    let direct = || Configuration::of([origin.address()]);
    [
        ("HTTP/1.1", direct().serve()),
        ("HTTP/2", direct().serve().behind_http2()),
        ("HTTP/3", direct().tls().serve().behind_http3(|front| front)),
    ]
}

#[test]
fn a_body_that_a_client_holds_back_reaches_an_origin_that_sends_its_final_head_first() {
    for connection_field in ["", "Connection: close\r\n"] {
        let head = format!("HTTP/1.1 200 OK\r\n{connection_field}Content-Length: 7\r\n\r\n");
        let origin = ScriptedOrigin::start(move |connection| {
            while connection.read_head().is_some() {
                connection.send(&head);
                let Some(body) = connection.read_bytes(7) else {
                    return;
                };
                connection.send(body);
            }
        });
        for (protocol, front) in fronts(&origin) {
            for version in VERSIONS {
                let who = format!("{version}, {protocol} to the origin, {connection_field:?}");
                let options = ["--header", "Expect: 100-continue", "--max-time", "40"];
                let client = curl(version).args(&options);
                let client =
                    client.args(&["--expect100-timeout", "30", "--data-binary", "content"]);
                let reply = client.run(&front.url("/")).expect(&who);
                assert_eq!(
                    (reply.status, reply.text()),
                    (200, "content".into()),
                    "{who}"
                );
            }
        }
    }
}

#[test]
fn a_body_that_a_client_holds_back_is_not_asked_for_after_a_status_that_refuses_it() {
    for connection_field in ["", "Connection: close\r\n"] {
        let head =
            format!("HTTP/1.1 403 Forbidden\r\n{connection_field}Content-Length: 2\r\n\r\nno");
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(&head);
            connection.freeze();
        });
        for (protocol, front) in fronts(&origin) {
            for version in VERSIONS {
                let who = format!("{version}, {protocol} to the origin, {connection_field:?}");
                let options = ["--header", "Expect: 100-continue", "--max-time", "40"];
                let client = curl(version).args(&options);
                let client =
                    client.args(&["--expect100-timeout", "30", "--data-binary", "content"]);
                let reply = client.run(&front.url("/")).expect(&who);
                assert_eq!((reply.status, reply.text()), (403, "no".into()), "{who}");
            }
        }
        assert!(
            !origin.received().contains("content\r\n"),
            "{}",
            origin.received()
        );
        assert!(
            !origin.received().ends_with("content"),
            "{}",
            origin.received()
        );
    }
}
