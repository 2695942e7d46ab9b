//! Lines of the log that clients cause.

use std::io::Write;
use std::time::Instant;

use serde_json::Value;

use crate::clients::certificate;
use crate::harness::{Home, address_of, connect, free_port, wait_until};
use crate::proxy::scripted_origin::ScriptedOrigin;

/// The lines of a log with this message.
fn lines(log: &str, message: &str) -> Vec<Value> {
    let parsed = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    parsed
        .filter(|line: &Value| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.contains(message))
        })
        .collect()
}

/// A ClientHello with this server name (RFC 6066 section 3), as a record.
fn client_hello(name: &[u8]) -> Vec<u8> {
    fn vector(length_bytes: usize, data: &[u8]) -> Vec<u8> {
        let length = data.len().to_be_bytes();
        [&length[length.len() - length_bytes..], data].concat()
    }
    let extension = |kind: u16, data: &[u8]| [&kind.to_be_bytes()[..], &vector(2, data)].concat();
    let server_name = vector(2, &[&[0][..], &vector(2, name)].concat());
    let extensions = [
        extension(0, &server_name),
        extension(43, &[2, 3, 4]),
        extension(10, &[0, 2, 0, 29]),
        extension(13, &[0, 4, 4, 3, 8, 4]),
    ]
    .concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &vector(2, &[0x13, 1, 0xc0, 0x2b]),
        &[1, 0],
        &vector(2, &extensions),
    ]
    .concat();
    let message = [&[1][..], &vector(3, &body)].concat();
    [&[22, 3, 1][..], &vector(2, &message)].concat()
}

#[test]
fn a_flood_of_lines_that_clients_cause_is_limited_and_counted() {
    const REQUESTS: u64 = 600;
    let origin = ScriptedOrigin::start(|connection| {
        if connection.read_request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbroken");
        }
    });
    let home = Home::new();
    certificate(&home, "front", "localhost");
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = \"_\"\nlisten = \"127.0.0.1:{}\"\nlisten_tls = \"127.0.0.1:{}\"\n\
             tls = {{ cert = \"front.pem\", key = \"front.key\" }}\nupstream = \"http://{}\"\n",
            free_port(),
            free_port(),
            origin.address()
        ),
    );
    let apus = home.serve(&[]);
    let tls = apus.urls().iter().find(|url| url.starts_with("https"));
    let tls = address_of(tls.unwrap());
    // rustls warns of these names.
    for name in [&b"192.0.2.1"[..], b"a..b", b"-"]
        .into_iter()
        .cycle()
        .take(300)
    {
        let mut socket = connect(tls);
        socket.write_all(&client_hello(name)).unwrap();
    }
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let mut socket = connect(apus.address());
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).unwrap();
        // The end of the body is the end of the connection.
        let _ = std::io::copy(&mut socket, &mut std::io::sink());
    }
    let withheld = |log: &str| -> u64 {
        let counts = lines(log, "log lines were withheld");
        let of_place = counts.iter().filter(|line| {
            let place = line["place"].as_str();
            place.is_some_and(|place| place.starts_with("apus_net::h1::send"))
        });
        of_place.filter_map(|line| line["withheld"].as_u64()).sum()
    };
    let written = |log: &str| lines(log, "the body of a response broke off").len() as u64;
    wait_until("all lines are counted", || {
        let log = apus.log();
        written(&log) + withheld(&log) == REQUESTS
    });
    let log = apus.log();
    let most = 100 + 10 * (start.elapsed().as_secs() + 2);
    assert!(written(&log) >= 100, "{} lines", written(&log));
    assert!(written(&log) <= most, "{} lines", written(&log));
    assert!(!log.contains("rustls") && !log.contains("SNI"), "{log}");
}
