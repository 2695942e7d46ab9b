//! The offer of HTTP/3 over HTTP/1.1 and HTTP/2 (RFC 7838).

use std::net::{TcpListener, UdpSocket};

use apus_http::Network;
use apus_net::tls::{TlsSite, UnknownName};
use apus_net::{Http3Settings, ListenerPlan};
use apus_testkit::CertificateAuthority;

use super::{H3Server, h3_listener};
use crate::harness::{Server, paths, plan, tcp};
use crate::tls::{client_of, connect_tls, site, tls_listener};

/// The value of `Alt-Svc` over HTTP/1.1 for this authority.
fn offered(server: &Server, ca: &CertificateAuthority, host: &str) -> Option<String> {
    let config = client_of(ca);
    let mut client = connect_tls(server.address(), &config, "example.com").unwrap();
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = client.read_response();
    assert_eq!(response.status, 200);
    response.field("alt-svc").map(str::to_owned)
}

#[test]
fn http_3_is_offered_at_the_port_of_the_origin() {
    let authority = CertificateAuthority::generate();
    let server = Server::run(plan(vec![h3_listener(&authority, paths())]));
    for (host, port) in [("example.com", 443), ("example.com:8443", 8443)] {
        let offer = offered(&server, &authority, host);
        assert_eq!(offer, Some(format!("h3=\":{port}\"; ma=86400")));
    }
    let mut config = client_of(&authority);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let client = connect_tls(server.address(), &config, "example.com").unwrap();
    let mut peer = crate::h2::client::Peer::open(client.stream);
    let response = peer.fetch("/a");
    assert!(response.field("alt-svc").is_some());
}

#[test]
fn http_3_itself_offers_nothing() {
    let server = H3Server::start(paths());
    assert_eq!(server.open().get("/").field("alt-svc"), None);
}

#[test]
fn sites_and_listeners_without_http_3_offer_nothing() {
    let authority = CertificateAuthority::generate();
    let off = TlsSite {
        http3: false,
        ..site(&["example.com"], &[&authority.ecdsa(&["example.com"])])
    };
    let listener = ListenerPlan {
        http3: Some(Http3Settings::default()),
        ..tls_listener(&[off], UnknownName::FirstSite, paths())
    };
    let server = Server::run(plan(vec![listener]));
    assert_eq!(offered(&server, &authority, "example.com"), None);

    let mut listener = h3_listener(&authority, paths());
    listener.http3 = None;
    let server = Server::run(plan(vec![listener.clone()]));
    assert_eq!(offered(&server, &authority, "example.com"), None);

    // A reload may add it, and remove it again.
    let mut with = listener.clone();
    with.http3 = Some(Http3Settings::default());
    server.engine.reload(plan(vec![with])).unwrap();
    assert!(offered(&server, &authority, "example.com").is_some());
    server.engine.reload(plan(vec![listener])).unwrap();
    assert_eq!(offered(&server, &authority, "example.com"), None);
}

#[test]
fn the_other_protocols_are_served_where_the_udp_port_is_taken() {
    let authority = CertificateAuthority::generate();
    // A port that is free for UDP may be in use for TCP.
    let taken = std::iter::repeat_with(|| UdpSocket::bind("127.0.0.1:0").unwrap())
        .find(|taken| TcpListener::bind(taken.local_addr().unwrap()).is_ok())
        .unwrap();
    let mut listener = h3_listener(&authority, paths());
    listener.address = tcp(&taken.local_addr().unwrap().to_string());
    let server = Server::run(plan(vec![listener.clone()]));
    assert_eq!(offered(&server, &authority, "example.com"), None);
    // The next reload tries again.
    drop(taken);
    server.engine.reload(plan(vec![listener])).unwrap();
    assert!(offered(&server, &authority, "example.com").is_some());
}

#[test]
fn clients_of_proxies_do_not_reach_the_udp_port() {
    let authority = CertificateAuthority::generate();
    let mut listener = h3_listener(&authority, paths());
    listener.proxy_protocol_from = vec!["192.0.2.0/24".parse::<Network>().unwrap()];
    let server = Server::run(plan(vec![listener]));
    assert_eq!(offered(&server, &authority, "example.com"), None);
}
