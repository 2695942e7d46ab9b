//! What compressed and replaced bodies say of themselves (RFC 9110 sections 8 and 9.3.2): HEAD, 304 and 206 have
//! the fields of the complete response, and nothing resumes one body by the bytes of another.

use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front, VERSIONS, curl};
use crate::clients::Reply;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// An origin with pages of the length in their path, in chunks below `/chunked`, which responds to HEAD, conditions
/// and ranges.
fn origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|connection| {
        while let Some(head) = connection.read_request() {
            let target = head.split(' ').nth(1).unwrap().to_owned();
            let length: usize = target.rsplit('/').next().unwrap().parse().unwrap();
            let is_chunked = target.starts_with("/chunked");
            let body = "http://inside/".repeat(length / 14 + 1)[..length].to_owned();
            let lower = head.to_ascii_lowercase();
            let field = |name: &str| lower.contains(&format!("\r\n{name}: "));
            let own =
                format!("ETag: \"v1\"\r\nLast-Modified: {DATE}\r\nCache-Control: max-age=60\r\n");
            let text = format!("{own}Content-Type: text/html\r\nAccept-Ranges: bytes\r\n");
            if field("if-none-match") {
                connection.send(format!("HTTP/1.1 304 Not Modified\r\n{own}\r\n"));
                continue;
            }
            if field("range") {
                connection.send(format!(
                    "HTTP/1.1 206 Partial Content\r\n{text}Content-Length: 5\r\n\
                     Content-Range: bytes 5-9/{length}\r\n\r\n{}",
                    &body[5..10]
                ));
                continue;
            }
            let framing = if is_chunked {
                "Transfer-Encoding: chunked".to_owned()
            } else {
                format!("Content-Length: {length}")
            };
            connection.send(format!("HTTP/1.1 200 OK\r\n{text}{framing}\r\n\r\n"));
            if !head.starts_with("HEAD") {
                connection.send(if is_chunked {
                    format!("{length:x}\r\n{body}\r\n0\r\n\r\n")
                } else {
                    body
                });
            }
        }
    })
}

/// The proxy, with the cache, and with HTTP/3 to another one.
fn fronts(origin: &ScriptedOrigin, lines: &[&str]) -> Vec<(&'static str, Front)> {
    let configured = || {
        let configuration = Configuration::of([origin.address()]);
        lines
            .iter()
            .fold(configuration, |all, line| all.proxy(line))
    };
    vec![
        ("proxy", configured().serve()),
        ("cache", configured().location("cache = true").serve()),
        (
            "HTTP/3",
            configured().tls().serve().behind_http3(|front| front),
        ),
    ]
}

/// The fields that describe the representation.
fn described(reply: &Reply) -> [String; 5] {
    [
        "vary",
        "content-encoding",
        "etag",
        "accept-ranges",
        "last-modified",
    ]
    .map(|name| reply.field(name).to_owned())
}

#[test]
fn head_304_and_206_say_what_the_complete_response_says() {
    let origin = origin();
    for (door, front) in fronts(&origin, &[]) {
        for version in VERSIONS {
            for path in ["/1023", "/1024", "/40000", "/chunked/40000"] {
                for coding in ["br", "zstd", "gzip", "identity"] {
                    let name = format!("{door} {version} {path} {coding}");
                    let accept = format!("accept-encoding: {coding}");
                    let request = || curl(version).args(&["--header", &accept]);
                    let url = front.url(path);
                    let head = request().args(&["--head"]).get(&url);
                    // The cache makes the compressed form of a long body in the background.
                    let whole = request().get(&url);
                    assert_eq!(described(&head), described(&whole), "{name}");
                    let varies = path != "/1023";
                    let vary = if varies { "accept-encoding" } else { "" };
                    assert_eq!(whole.field("vary"), vary, "{name}");
                    let is_coded = varies && coding != "identity";
                    assert_eq!(
                        whole.field("content-encoding") == coding,
                        is_coded,
                        "{name}"
                    );
                    let length = head.field("content-length");
                    assert!(
                        length.is_empty() || length == whole.field("content-length"),
                        "{name}"
                    );
                    let tag = format!("if-none-match: {}", whole.field("etag"));
                    let same = request().args(&["--header", &tag]).get(&url);
                    assert_eq!(same.status, 304, "{name}");
                    assert_eq!(same.field("etag"), whole.field("etag"), "{name}");
                    // Whether text of an unknown length is compressed is not known of a 304.
                    if varies {
                        assert_eq!(same.field("vary"), vary, "{name}");
                    }
                    let part = request().args(&["--range", "5-9"]).get(&url);
                    assert_eq!((part.status, part.field("vary")), (206, vary), "{name}");
                    let by_date = format!("if-range: {DATE}");
                    let resumed = request().args(&["--range", "5-9", "--header", &by_date]);
                    let status = if is_coded { 200 } else { 206 };
                    assert_eq!(resumed.get(&url).status, status, "{name}");
                }
            }
        }
    }
}

#[test]
fn a_range_of_a_body_with_replaced_texts_is_sent_whole() {
    let origin = origin();
    let lines = ["replace = { \"http://inside/\" = \"https://a-longer.example/\" }"];
    for (door, front) in fronts(&origin, &lines) {
        for version in VERSIONS {
            let url = front.url("/140");
            let whole = "https://a-longer.example/".repeat(10);
            let reply = curl(version).get(&url);
            assert_eq!(reply.text(), whole, "{door} {version}");
            assert_eq!(reply.field("etag"), "W/\"v1\"", "{door} {version}");
            assert_eq!(reply.field("last-modified"), "", "{door} {version}");
            for if_range in ["\"v1\"", "W/\"v1\"", DATE] {
                let if_range = format!("if-range: {if_range}");
                let part = curl(version).args(&["--range", "5-9", "--header", &if_range]);
                let part = part.get(&url);
                assert_eq!(
                    (part.status, part.text()),
                    (200, whole.clone()),
                    "{door} {if_range}"
                );
            }
            let part = curl(version).args(&["--range", "5-9"]).get(&url);
            match door {
                // The cache has the replaced body, and its ranges.
                "cache" => {
                    assert_eq!((part.status, part.text()), (206, whole[5..10].to_owned()));
                    assert_eq!(part.field("content-range"), "bytes 5-9/250");
                }
                _ => assert_eq!((part.status, part.text()), (200, whole.clone())),
            }
        }
    }
}
