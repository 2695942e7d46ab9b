//! Certificates for names that are first seen in a handshake.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use super::{CertificateTest, PebbleOptions};
use crate::harness::{connect, wait_until};

/// A web server that permits certificates for names that begin with `good`, and counts the questions.
struct PermissionServer {
    port: u16,
    questions: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl PermissionServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let questions: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let counts = Arc::clone(&questions);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut line = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let _ = reader.read_line(&mut line);
                let target = line.split(' ').nth(1).unwrap_or_default();
                let name = target
                    .split("domain=")
                    .nth(1)
                    .unwrap_or_default()
                    .to_owned();
                *counts.lock().unwrap().entry(name.clone()).or_default() += 1;
                let status = if name.starts_with("good") {
                    "200 OK"
                } else {
                    "403 Forbidden"
                };
                let response =
                    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(response.as_bytes());
            }
        });
        Self { port, questions }
    }

    fn count(&self, name: &str) -> usize {
        let questions = self.questions.lock().unwrap();
        questions.get(name).copied().unwrap_or(0)
    }

    fn keys(&self) -> String {
        let port = self.port;
        format!(
            "[sites.tls]\nacme_on_demand = {{ ask = \"http://127.0.0.1:{port}/may\", names = \"listed.shops.example.com\" }}\n"
        )
    }
}

#[test]
fn a_name_that_is_permitted_gets_its_certificate_in_the_first_handshakes() {
    let test = CertificateTest::new(PebbleOptions::default());
    let permission = PermissionServer::start();
    test.configure("", "\"*.shops.example.com\"", &permission.keys());
    let apus = test.serve();
    assert_eq!(test.pebble.orders(), 0);
    let root = test.pebble.root();
    // Handshakes at the same time wait for one order.
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                wait_until("the certificate", || {
                    test.is_served(&root, "good-1.shops.example.com")
                });
            });
        }
    });
    assert_eq!(test.pebble.orders(), 1);
    assert_eq!(permission.count("good-1.shops.example.com"), 1);
    // A list needs no question.
    wait_until("the certificate", || {
        test.is_served(&root, "listed.shops.example.com")
    });
    assert_eq!(permission.count("listed.shops.example.com"), 0);
    let list = test.list();
    assert!(
        list.contains("certificate good-1.shops.example.com: expires in "),
        "{list}"
    );
    // A name that is not permitted costs one question.
    for _ in 0..3 {
        let output = test.fetch(&root, "bad.shops.example.com");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("unrecognized name"), "{error}");
    }
    assert_eq!(permission.count("bad.shops.example.com"), 1);
    assert_eq!(test.pebble.orders(), 2);
    // The certificates are still there after a restart, and after a reload.
    let serial = test.serial("good-1.shops.example.com");
    drop(apus);
    let apus = test.serve();
    assert!(test.is_served(&root, "good-1.shops.example.com"));
    assert_eq!(test.serial("good-1.shops.example.com"), serial);
    test.home.expect(&["reload"], 0);
    assert!(test.is_served(&root, "good-1.shops.example.com"));
    let renew = ["cert", "renew", "good-1.shops.example.com"];
    test.home.expect(&renew, 0);
    wait_until("the new certificate", || {
        test.serial("good-1.shops.example.com") != serial
    });
    assert_eq!(permission.count("good-1.shops.example.com"), 2);
    assert_eq!(test.pebble.orders(), 3, "{}", apus.log());
}

#[test]
fn a_flood_of_invented_names_causes_no_order_and_takes_no_memory() {
    let test = CertificateTest::new(PebbleOptions::default());
    let keys = "[sites.tls]\nacme_on_demand = { names = \"good.shops.example.com\" }\n";
    test.configure("", "\"*.shops.example.com\"", keys);
    let apus = test.serve();
    let hello = |number: u32| {
        let name = format!("invented-{number}.shops.example.com");
        let mut stream = connect(([127, 0, 0, 1], test.https).into());
        stream.write_all(&client_hello(&name)).unwrap();
        let mut alert = Vec::new();
        let _ = stream.read_to_end(&mut alert);
        // The fatal alert `unrecognized_name`.
        assert_eq!(alert, [21, 3, 3, 0, 2, 2, 112], "{name}");
    };
    for number in 0..500 {
        hello(number);
    }
    let before = resident_kilobytes(apus.pid());
    for number in 500..10_000 {
        hello(number);
    }
    let after = resident_kilobytes(apus.pid());
    assert!(after < before + 20_000, "{before} {after}");
    assert_eq!(test.pebble.orders(), 0);
    let root = test.pebble.root();
    wait_until("the certificate", || {
        test.is_served(&root, "good.shops.example.com")
    });
}

#[test]
fn orders_on_demand_are_limited_by_the_hour() {
    let test = CertificateTest::new(PebbleOptions::default());
    let keys =
        "[sites.tls]\nacme_on_demand = { names = \"*.shops.example.com\", orders_per_hour = 1 }\n";
    test.configure("", "\"*.shops.example.com\"", keys);
    let apus = test.serve();
    let root = test.pebble.root();
    wait_until("the certificate", || {
        test.is_served(&root, "a.shops.example.com")
    });
    let output = test.fetch(&root, "b.shops.example.com");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("alert internal error"), "{error}");
    wait_until("the reason", || {
        apus.log().contains("too many orders on demand")
    });
    assert!(test.is_served(&root, "a.shops.example.com"));
    assert_eq!(test.pebble.orders(), 1);
}

fn resident_kilobytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A ClientHello with this server name (RFC 8446 section 4.1.2).
fn client_hello(name: &str) -> Vec<u8> {
    let sized = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[..], bytes].concat()
    };
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes()[..], &sized(body)].concat();
    let server_name = sized(&[&[0][..], &sized(name.as_bytes())].concat());
    let extensions = [
        extension(0, &server_name),
        extension(10, &sized(&[0, 29])),
        extension(13, &sized(&[4, 3, 8, 4])),
        extension(43, &[2, 3, 4]),
        extension(51, &sized(&[&[0, 29][..], &sized(&[7; 32])].concat())),
    ]
    .concat();
    let body = [
        &[3, 3][..],
        &[9; 32],
        &[0],
        &sized(&[0x13, 0x01]),
        &[1, 0],
        &sized(&extensions),
    ]
    .concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}

/// A server that gave up root could not open it later, and clients that come by HTTP/3 would get no response at all.
#[test]
fn a_listener_with_sites_on_demand_alone_has_its_udp_socket_from_the_start() {
    let test = CertificateTest::new(PebbleOptions::default());
    let keys = "[sites.tls]\nacme_on_demand = { names = \"good.shops.example.com\" }\n";
    test.configure("", "\"*.shops.example.com\"", keys);
    let _apus = test.serve();
    let taken = std::net::UdpSocket::bind(("127.0.0.1", test.https)).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
}

/// Names that no authority accepts are no names of shops, whatever the web server of the operator says.
#[test]
fn a_name_that_no_authority_accepts_is_not_asked_for() {
    let test = CertificateTest::new(PebbleOptions::default());
    let permission = PermissionServer::start();
    test.configure("", "\"*.shops.example.com\"", &permission.keys());
    let _apus = test.serve();
    let root = test.pebble.root();
    for name in ["good_shop.shops.example.com", "-good.shops.example.com"] {
        let mut stream = connect(([127, 0, 0, 1], test.https).into());
        stream.write_all(&client_hello(name)).unwrap();
        let mut alert = Vec::new();
        let _ = stream.read_to_end(&mut alert);
        assert_eq!(permission.count(name), 0, "{alert:?}");
    }
    // Upper case is the same name.
    wait_until("the certificate", || {
        test.is_served(&root, "good-1.shops.example.com")
    });
    assert!(test.is_served(&root, "GOOD-1.shops.example.com"));
    assert_eq!(test.pebble.orders(), 1);
}

#[test]
fn one_client_that_invents_names_causes_few_questions() {
    let test = CertificateTest::new(PebbleOptions::default());
    let permission = PermissionServer::start();
    test.configure("", "\"*.shops.example.com\"", &permission.keys());
    let _apus = test.serve();
    let begun = std::time::Instant::now();
    for number in 0..200 {
        let name = format!("bad-{number}.shops.example.com");
        let mut stream = connect(([127, 0, 0, 1], test.https).into());
        stream.write_all(&client_hello(&name)).unwrap();
        let mut alert = Vec::new();
        let _ = stream.read_to_end(&mut alert);
        assert!(alert.starts_with(&[21, 3, 3, 0, 2, 2]), "{name} {alert:?}");
    }
    // Sixteen, and one more each four seconds.
    let questions = permission.questions.lock().unwrap().len();
    let most = 17 + usize::try_from(begun.elapsed().as_secs()).unwrap() / 4;
    assert!((16..=most).contains(&questions), "{questions} {most}");
}
