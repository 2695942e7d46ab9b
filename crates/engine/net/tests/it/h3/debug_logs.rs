//! Key logs of TLS and qlog files of connections.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use apus_net::tls::{TlsSite, UnknownName};
use apus_net::{Http3Settings, ListenerPlan};
use apus_testkit::{CertificateAuthority, wait_until};
use apus_transport::tls::KeyLogFile;
use serde_json::Value;

use super::{H3Client, H3ClientOptions, H3Server};
use crate::harness::{Server, paths, plan};
use crate::tls::{client_of, connect_tls, site, tls_listener};

/// A server whose page was loaded over HTTP/1.1 and HTTP/3.
fn load(key_log: Option<&KeyLogFile>, qlog: Option<&Path>) -> H3Server {
    let authority = CertificateAuthority::generate();
    let site = TlsSite {
        key_log: key_log.cloned(),
        ..site(&["example.com"], &[&authority.ecdsa(&["example.com"])])
    };
    let listener = ListenerPlan {
        http3: Some(Http3Settings {
            qlog: qlog.map(Path::to_owned),
            ..Http3Settings::default()
        }),
        ..tls_listener(&[site], UnknownName::FirstSite, paths())
    };
    let server = H3Server::of(Server::run(plan(vec![listener])), client_of(&authority));
    let mut client = connect_tls(server.server.address(), &server.tls, "example.com").unwrap();
    assert_eq!(client.get("/a").text(), "/a");
    let mut client = H3Client::open(
        server.server.address(),
        &H3ClientOptions::new(server.tls.clone()),
    );
    assert_eq!(client.get("/b").text(), "/b");
    client.close();
    server
}

fn files(folder: &Path) -> Vec<String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_page_over_http1_and_http3_leaves_its_secrets_and_its_packets() {
    let folder = tempfile::tempdir().unwrap();
    let (keys, qlog) = (folder.path().join("keys.log"), folder.path().join("qlog"));
    let key_log = KeyLogFile::open(&keys).unwrap();
    let _server = load(Some(&key_log), Some(&qlog));
    key_log.flush();
    let mode = fs::metadata(&keys).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let text = fs::read_to_string(&keys).unwrap();
    let mut clients = BTreeSet::new();
    for line in text.lines() {
        let parts: Vec<_> = line.split(' ').collect();
        let [label, random, secret] = parts[..] else {
            panic!("{line}");
        };
        assert!(is_hex(random, 64), "{line}");
        assert!(is_hex(secret, 64) || is_hex(secret, 96), "{line}");
        if label == "CLIENT_TRAFFIC_SECRET_0" {
            clients.insert(random);
        }
    }
    // One over TCP, and one over QUIC.
    assert_eq!(clients.len(), 2, "{text}");

    let read = || {
        let name = files(&qlog).pop()?;
        fs::read_to_string(qlog.join(name)).ok()
    };
    wait_until("the end in the qlog file", || {
        read().is_some_and(|text| text.contains("quic:connection_closed"))
    });
    assert_eq!(files(&qlog).len(), 1);
    let text = read().unwrap();
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line.strip_prefix('\u{1e}').unwrap()).unwrap())
        .collect();
    assert_eq!(
        records[0]["file_schema"],
        "urn:ietf:params:qlog:file:sequential"
    );
    let count = |name: &str| {
        let named = records.iter().filter(|record| record["name"] == name);
        named.count()
    };
    assert!(count("quic:packet_sent") > 2 && count("quic:packet_received") > 2);
    let has_stream = |name: &str| {
        let named = records.iter().filter(|record| record["name"] == name);
        named
            .flat_map(|record| record["data"]["frames"].as_array().unwrap())
            .any(|frame| frame["frame_type"] == "stream" && frame["stream_id"] == 0)
    };
    assert!(has_stream("quic:packet_sent") && has_stream("quic:packet_received"));
}

#[test]
fn without_the_settings_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let _server = load(None, None);
    assert!(files(folder.path()).is_empty());
}
