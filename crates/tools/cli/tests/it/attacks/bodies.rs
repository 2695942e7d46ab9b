//! Ranges, compression and large bodies: no response is wrong or larger than the file, and no client can
//! multiply work or memory.

use super::Victim;
use crate::wire::Received;

const TEXT: usize = 208_890;

fn text() -> String {
    let text: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    assert_eq!(text.len(), TEXT);
    text
}

fn ranged(victim: &Victim, ranges: &str, fields: &str) -> Received {
    victim.get("/text.txt", &format!("Range: bytes={ranges}\r\n{fields}"))
}

#[test]
fn many_or_overlapping_ranges_send_no_more_than_the_file() {
    let victim = Victim::with_defaults();
    let many: Vec<_> = (0..1300).map(|start| format!("5-{start}")).collect();
    let tiny: Vec<_> = (0..1300).map(|at| format!("{at}-{at}")).collect();
    for ranges in [
        many.join(","),
        tiny.join(","),
        vec!["0-"; 1000].join(","),
        vec!["-1"; 1000].join(","),
        "0-200000,1-200001,2-200002".to_owned(),
    ] {
        let received = ranged(&victim, &ranges, "");
        assert!(matches!(received.status, 200 | 206 | 416));
        assert!(
            received.body.len() <= TEXT + 4096,
            "{} bytes for {ranges:.40}",
            received.body.len()
        );
    }
    victim.assert_healthy();
}

#[test]
fn ranges_that_overflow_are_not_served() {
    let victim = Victim::with_defaults();
    for (ranges, status) in [
        ("18446744073709551615-", 416),
        ("9223372036854775807-9223372036854775808", 416),
        ("208890-", 416),
        ("-0", 416),
        ("-18446744073709551615", 206),
        ("0-18446744073709551616", 206),
        ("-9223372036854775608,-9223372036854775608", 206),
        ("5-4", 200),
        ("--5", 200),
        ("a-b", 200),
    ] {
        let received = ranged(&victim, ranges, "");
        let text = text();
        assert!(received.body.len() <= TEXT + 1000, "{ranges}");
        match received.status {
            416 => assert_eq!(
                received.field("content-range"),
                Some("bytes */208890"),
                "{ranges}"
            ),
            // Each range that is served begins at the first byte.
            206 | 200 => assert!(
                text.starts_with(received.text().get(..9).unwrap()),
                "{ranges}"
            ),
            other => panic!("{other} for {ranges}"),
        }
        assert!(
            received.status == status || matches!((received.status, status), (200 | 416, 206)),
            "{ranges}: {}",
            received.status
        );
    }
    victim.assert_healthy();
}

#[test]
fn a_range_is_of_the_representation_that_its_etag_names() {
    let victim = Victim::with_defaults();
    let coded = "Accept-Encoding: gzip\r\n";
    // The stored form is made while the first response is sent.
    crate::harness::wait_until("the compressed form is stored", || {
        victim
            .get("/text.txt", coded)
            .field("content-encoding")
            .is_some()
    });
    let gzip = victim.get("/text.txt", coded);
    assert_eq!(gzip.field("content-encoding"), Some("gzip"));
    let plain = victim.get("/text.txt", "");
    assert_ne!(gzip.field("etag"), plain.field("etag"));

    let part = ranged(&victim, "10-109", coded);
    assert_eq!(part.status, 206);
    let whole = match part.field("content-encoding") {
        Some("gzip") => &gzip,
        None => &plain,
        Some(other) => panic!("{other}"),
    };
    assert_eq!(part.body, whole.body[10..110]);
    assert_eq!(part.field("etag"), whole.field("etag"));

    // If-Range with the entity tag of another representation, or of none, gets the whole body.
    for tag in [gzip.field("etag").unwrap(), "\"other\"", "W/\"weak\""] {
        let received = ranged(&victim, "10-109", &format!("If-Range: {tag}\r\n"));
        assert_eq!((received.status, received.body.len()), (200, TEXT), "{tag}");
    }
    let tag = plain.field("etag").unwrap();
    let received = ranged(&victim, "10-109", &format!("If-Range: {tag}\r\n"));
    assert_eq!((received.status, received.body.len()), (206, 100));
    victim.assert_healthy();
}

#[test]
fn unknown_content_codings_change_no_response() {
    let victim = Victim::with_defaults();
    let text = text();
    for number in 0..300 {
        let mut accepted = vec![format!("x{number};q=0.{number}"), "*;q=0".to_owned()];
        accepted.push(format!(
            "{};q=0.5",
            ["gzip", "br", "zstd", "identity"][number % 4]
        ));
        let received = victim.get(
            "/text.txt",
            &format!("Accept-Encoding: {}\r\n", accepted.join(", ")),
        );
        assert_eq!(received.status, 200, "{accepted:?}");
        let coding = received.field("content-encoding");
        assert!(
            matches!(coding, None | Some("gzip" | "br" | "zstd")),
            "{coding:?}"
        );
        if coding.is_none() {
            assert_eq!(received.text(), text);
        }
    }
    let all = (0..2000)
        .map(|n| format!("x{n}"))
        .collect::<Vec<_>>()
        .join(",");
    let received = victim.get("/text.txt", &format!("Accept-Encoding: {all}\r\n"));
    assert_eq!((received.status, received.body.len()), (200, TEXT));
    victim.assert_healthy();
}

#[test]
fn large_and_endless_request_bodies_are_refused_and_take_no_memory() {
    for victim in [Victim::with_defaults(), Victim::configured("", "")] {
        for length in ["104857600", "18446744073709551615"] {
            let mut wire = victim.connect();
            wire.send(format!(
                "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\nstart"
            ));
            let received = wire.read();
            assert!(matches!(received.status, 405 | 413), "{}", received.status);
            assert_eq!(received.field("connection"), Some("close"));
        }
        let mut wire = victim.connect();
        wire.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        let mut sent = 0;
        // The server discards the rest of the body for a while, so that the client gets the response.
        while sent < 128 << 20 && wire.send(&chunk) {
            sent += chunk.len();
        }
        let received = wire.read();
        assert_eq!(received.status, 405);
        wire.assert_closed();
        victim.assert_healthy();
    }
}
