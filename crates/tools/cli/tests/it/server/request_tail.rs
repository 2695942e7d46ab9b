//! Requests as they end, by the API.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::admin_api::ApiTest;
use crate::harness::{address_of, connect, get};

const READER: &[&str] = &["reader", "--token"];

/// The events of a stream: their names and data.
struct TailReader(BufReader<TcpStream>);

impl TailReader {
    fn open(test: &ApiTest, token: &str, filter: &str) -> Self {
        let mut stream = connect(test.admin);
        write!(
            stream,
            "GET /api/v1/requests{filter} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut reader = Self(BufReader::new(stream));
        assert!(reader.line().starts_with("HTTP/1.1 200 "));
        while reader.line() != "\r\n" {}
        reader
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(
            self.0.read_line(&mut line).unwrap() > 0,
            "the stream has ended"
        );
        line
    }

    /// The next event of this name.
    fn next(&mut self, name: &str) -> Value {
        loop {
            if self.line().trim_end() == format!("event: {name}") {
                let data = self.line();
                return serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn requests_are_sent_as_they_end_to_those_who_may_see_them() {
    let (test, tokens) = ApiTest::new(&[READER, &["blogger", "--site", "blog", "--token"]]);
    let shop = test.apus.address();
    let blog = address_of(&test.apus.urls()[1]);
    let mut all = TailReader::open(&test, &tokens[0], "");
    let mut missing = TailReader::open(
        &test,
        &tokens[0],
        "?filter=status%20%3E%3D%20400%20and%20site%20%3D%3D%20shop",
    );
    let mut own = TailReader::open(&test, &tokens[1], "");
    assert_eq!(get(shop, "/?token=secret").status, 200);
    assert_eq!(get(shop, "/none").status, 404);
    assert_eq!(get(blog, "/other").status, 404);
    let first = all.next("request");
    assert_eq!(
        (&first["path"], &first["status"], &first["site"]),
        (&"/".into(), &200.into(), &"shop".into())
    );
    assert!(!first.to_string().contains("secret"), "{first}");
    assert_eq!(all.next("request")["path"], "/none");
    assert_eq!(all.next("request")["path"], "/other");
    assert_eq!(missing.next("request")["path"], "/none");
    assert_eq!(own.next("request")["path"], "/other");
    // The id is that by which it is explained.
    let line = format!(
        "GET /api/v1/requests/explain?id={}",
        first["id"].as_str().unwrap()
    );
    assert_eq!(test.ask(&line, &tokens[0], None).1["path"], "/");
}

#[test]
fn more_requests_than_a_reader_gets_at_once_are_counted() {
    let (test, tokens) = ApiTest::new(&[READER]);
    let mut all = TailReader::open(&test, &tokens[0], "");
    let mut stream = connect(test.apus.address());
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let sent = 3000;
    let writer = std::thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        move || stream.write_all(request.repeat(sent).as_bytes()).unwrap()
    });
    let mut received = BufReader::new(&mut stream);
    let mut answered = 0;
    while answered < sent {
        let mut line = String::new();
        assert!(received.read_line(&mut line).unwrap() > 0);
        answered += line.matches("HTTP/1.1 200").count();
    }
    writer.join().unwrap();
    // Each request is one event, or counted in one.
    let mut counted = 0;
    while counted < sent as u64 {
        let line = all.line();
        if line.starts_with("event: request") {
            counted += 1;
        } else if line.starts_with("event: missed") {
            let data = all.line();
            let missed: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            counted += missed["requests"].as_u64().unwrap();
        }
    }
    assert_eq!(counted, sent as u64);
}
