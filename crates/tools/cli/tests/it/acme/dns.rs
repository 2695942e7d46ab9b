//! Names that are verified by DNS without a program: dynamic updates of a real name server (Knot DNS), acme-dns and webhooks.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::{CertificateTest, PebbleOptions};
use crate::harness::{Home, free_port, is_open, wait_until};

const SECRET: &str = "c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtISEhISE=";

/// The name server of `example.com`, which takes updates that are signed by the key `acme`.
struct NameServer {
    program: Child,
    port: u16,
}

impl NameServer {
    fn start(home: &Home) -> Self {
        let folder = home.path("knot");
        fs::create_dir(&folder).unwrap();
        let port = free_port();
        let shown = folder.display();
        let config = format!(
            "server:\n  listen: 127.0.0.1@{port}\n  rundir: \"{shown}\"\n\
             database:\n  storage: \"{shown}\"\n\
             log:\n  - target: stderr\n    any: info\n\
             key:\n  - id: acme.\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
             acl:\n  - id: updates\n    key: acme.\n    action: update\n\
             zone:\n  - domain: example.com\n    storage: \"{shown}\"\n    file: zone\n    acl: updates\n"
        );
        fs::write(folder.join("knot.conf"), config).unwrap();
        let zone = "@ 60 SOA ns1 admin 1 60 60 60 60\n@ 60 NS ns1\nns1 60 A 127.0.0.1\n@ 60 A 127.0.0.1\n\
                    shop 60 A 127.0.0.1\n_acme-challenge.shop 60 CNAME of-shop.challenges\n";
        fs::write(folder.join("zone"), format!("$ORIGIN example.com.\n{zone}")).unwrap();
        let log = File::create(folder.join("log")).unwrap();
        let program = Command::new("/usr/sbin/knotd")
            .arg("-c")
            .arg(folder.join("knot.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("`make test` installs Knot DNS");
        wait_until("the name server", || is_open(([127, 0, 0, 1], port).into()));
        Self { program, port }
    }

    fn keys(&self, secret: &str) -> String {
        let port = self.port;
        format!(
            "[global.acme_dns]\nprovider = \"rfc2136\"\n\
             server = \"127.0.0.1:{port}\"\nkey_name = \"acme.\"\nkey = \"{secret}\"\n"
        )
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn names_are_verified_by_signed_updates_of_their_zone_and_delegation_is_followed() {
    let home = Home::new();
    let server = NameServer::start(&home);
    let test = CertificateTest::in_home(
        home,
        PebbleOptions {
            name_server: Some(server.port),
            ..PebbleOptions::default()
        },
    );
    let names = "[\"example.com\", \"*.example.com\", \"shop.example.com\"]";
    test.configure(&server.keys(SECRET), names, "");
    let apus = test.serve();
    test.wait_until_served("a.example.com");
    test.wait_until_served("shop.example.com");
    let log = test.home.read("knot/log");
    assert!(!log.contains("error"), "{log}");
    assert!(!apus.log().contains(SECRET));
    assert_eq!(test.pebble.orders(), 1, "{}", apus.log());
}

#[test]
fn a_key_that_is_wrong_is_told() {
    let home = Home::new();
    let server = NameServer::start(&home);
    let test = CertificateTest::in_home(home, PebbleOptions::default());
    let wrong = "d3Jvbmctb2YtdGhpcnR5LXR3by1ieXRlcy0hISEhISE=";
    test.configure(&server.keys(wrong), "\"*.example.com\"", "");
    let apus = test.serve();
    wait_until("the failure", || test.list().contains("attempts failed"));
    assert!(
        test.list().contains("the secret of the key is wrong"),
        "{}",
        test.list()
    );
    assert!(!apus.log().contains(wrong));
}

/// A web server that gets requests with JSON, and publishes TXT records by the management of pebble's DNS server.
struct RecordServer {
    port: u16,
    /// The request line, the fields and the body of each request.
    requests: Arc<Mutex<Vec<(String, String, Value)>>>,
}

impl RecordServer {
    fn start(publish: impl Fn(&Value) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<_>>> = Arc::default();
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut fields, mut length) = (String::new(), String::new(), 0);
                let _ = reader.read_line(&mut first);
                loop {
                    let mut line = String::new();
                    let _ = reader.read_line(&mut line);
                    if line.trim().is_empty() {
                        break;
                    }
                    let line = line.to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    fields += &line;
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap();
                publish(&body);
                seen.lock()
                    .unwrap()
                    .push((first.trim().to_owned(), fields, body));
                let response =
                    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                let _ = stream.write_all(response.as_bytes());
            }
        });
        Self { port, requests }
    }
}

#[test]
fn a_webhook_publishes_and_removes_records() {
    let test = CertificateTest::new(PebbleOptions::default());
    let records = test.pebble.records();
    let hook = RecordServer::start(move |request| {
        let action = match request["action"].as_str() {
            Some("present") => "set-txt",
            _ => "clear-txt",
        };
        let host = format!("{}.", request["name"].as_str().unwrap());
        records.change(action, &json!({ "host": host, "value": request["value"] }));
    });
    let keys = format!(
        "[global.acme_dns]\nprovider = \"webhook\"\n\
         url = \"http://127.0.0.1:{}/records\"\ntoken = \"hidden-token\"\n",
        hook.port
    );
    test.configure(&keys, "\"*.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("a.example.com");
    wait_until("the record is removed", || {
        let requests = hook.requests.lock().unwrap();
        requests
            .iter()
            .any(|(_, _, body)| body["action"] == "cleanup")
    });
    let requests = hook.requests.lock().unwrap();
    let (line, fields, body) = &requests[0];
    assert_eq!(line, "POST /records HTTP/1.1");
    assert!(
        fields.contains("authorization: bearer hidden-token"),
        "{fields}"
    );
    assert_eq!(body["name"], "_acme-challenge.example.com");
    assert!(!apus.log().contains("hidden-token"));
}

#[test]
fn an_account_of_acme_dns_is_used_for_a_name_that_is_delegated() {
    let test = CertificateTest::new(PebbleOptions::default());
    let records = test.pebble.records();
    let delegation =
        json!({ "host": "_acme-challenge.example.com.", "target": "sub.auth.example.org." });
    records.change("set-cname", &delegation);
    let server = RecordServer::start(move |request| {
        assert_eq!(request["subdomain"], "sub");
        let value = &request["txt"];
        records.change(
            "set-txt",
            &json!({ "host": "sub.auth.example.org.", "value": value }),
        );
    });
    let keys = format!(
        "[global.acme_dns]\nprovider = \"acme-dns\"\n\
         url = \"http://127.0.0.1:{}\"\nuser = \"user-1\"\npassword = \"hidden-password\"\nsubdomain = \"sub\"\n",
        server.port
    );
    test.configure(&keys, "\"*.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("a.example.com");
    let requests = server.requests.lock().unwrap();
    let (line, fields, _) = &requests[0];
    assert_eq!(line, "POST /update HTTP/1.1");
    assert!(fields.contains("x-api-user: user-1"), "{fields}");
    assert!(fields.contains("x-api-key: hidden-password"), "{fields}");
    drop(requests);
    assert!(!apus.log().contains("hidden-password"));
}
