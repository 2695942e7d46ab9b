//! Early data (RFC 8470, RFC 9001 section 4.6).

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus_http::Method;
use apus_net::tls::{TlsSite, UnknownName};
use apus_net::{Http3Settings, ListenerPlan};
use apus_testkit::{CertificateAuthority, wait_until};

use super::{H3Client, H3ClientOptions, H3Request, H3Server};
use crate::harness::{Server, ok, plan, service};
use crate::tls::{client_of, site, tls_listener};

/// Passes datagrams between a client and a server, and keeps the datagrams of the client.
struct RecordingRelay {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<Vec<u8>>>>,
    ended: Arc<AtomicBool>,
}

impl RecordingRelay {
    fn start(server: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        back.connect(server).unwrap();
        for socket in [&front, &back] {
            let pause = Some(Duration::from_millis(1));
            socket.set_read_timeout(pause).unwrap();
        }
        let relay = Self {
            address: front.local_addr().unwrap(),
            recorded: Arc::default(),
            ended: Arc::default(),
        };
        let (recorded, ended) = (Arc::clone(&relay.recorded), Arc::clone(&relay.ended));
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            let mut client = None;
            while !ended.load(Ordering::SeqCst) {
                if let Ok((len, from)) = front.recv_from(&mut buffer) {
                    client = Some(from);
                    recorded.lock().unwrap().push(buffer[..len].to_vec());
                    let _ = back.send(&buffer[..len]);
                }
                if let (Ok(len), Some(client)) = (back.recv(&mut buffer), client) {
                    let _ = front.send_to(&buffer[..len], client);
                }
            }
        });
        relay
    }
}

impl Drop for RecordingRelay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// A server that responds with the value of `early-data`, and a client with sessions of it.
fn known(early_data: bool) -> (H3Server, H3ClientOptions) {
    let authority = CertificateAuthority::generate();
    let echo = service(|request| {
        let early = request.headers().get_str("early-data").unwrap_or("-");
        ok(early.to_owned()).into()
    });
    let site = TlsSite {
        early_data,
        ..site(&["example.com"], &[&authority.ecdsa(&["example.com"])])
    };
    let listener = ListenerPlan {
        http3: Some(Http3Settings::default()),
        ..tls_listener(&[site], UnknownName::FirstSite, echo)
    };
    let mut tls = client_of(&authority);
    tls.enable_early_data = true;
    let server = H3Server::of(Server::run(plan(vec![listener])), tls);
    let mut client = server.open();
    assert_eq!(client.get("/").text(), "-");
    client.close();
    let options = server.options.clone();
    (server, options)
}

#[test]
fn a_get_in_early_data_is_served_and_marked() {
    let (server, options) = known(true);
    let mut client = H3Client::begin(server.server.address(), &options);
    assert!(client.state().quic.can_send_early());
    let id = client.request(&H3Request::get("/"));
    let response = client.response(id);
    assert!(client.state().early_data_accepted);
    assert_eq!((response.status, response.text().as_str()), (200, "1"));
    assert_eq!(client.get("/").text(), "-");
}

#[test]
fn a_request_with_effects_in_early_data_gets_425() {
    let (server, options) = known(true);
    for (method, has_body) in [
        (Method::POST, false),
        (Method::DELETE, false),
        (Method::GET, true),
    ] {
        let mut client = H3Client::begin(server.server.address(), &options);
        assert!(client.state().quic.can_send_early());
        let id = client.request(&H3Request {
            method: method.clone(),
            has_body,
            ..H3Request::get("/")
        });
        let response = client.response(id);
        assert!(client.state().early_data_accepted);
        assert_eq!(response.status, 425, "{method}");
        let id = client.request(&H3Request {
            method,
            ..H3Request::get("/")
        });
        assert_eq!(client.response(id).text(), "-");
        client.close();
    }
}

#[test]
fn a_client_cannot_claim_that_its_request_was_not_early() {
    let (server, options) = known(true);
    let mut client = H3Client::begin(server.server.address(), &options);
    let id = client.request(&H3Request {
        fields: &[("early-data", "0")],
        ..H3Request::get("/")
    });
    assert_eq!(client.response(id).text(), "1");
}

#[test]
fn early_data_that_is_sent_again_is_not_served_again() {
    let (server, options) = known(true);
    let relay = RecordingRelay::start(server.server.address());
    let mut client = H3Client::begin(relay.address, &options);
    let id = client.request(&H3Request::get("/"));
    assert_eq!(client.response(id).text(), "1");
    assert!(client.state().early_data_accepted);
    client.close();
    let requests = server.server.totals().requests;

    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pause = Some(Duration::from_millis(50));
    attacker.set_read_timeout(pause).unwrap();
    // The server ignores them as long as it remembers the connection, and then responds to the handshake.
    wait_until("a response", || {
        for datagram in relay.recorded.lock().unwrap().iter() {
            attacker.send_to(datagram, server.server.address()).unwrap();
        }
        attacker.recv(&mut [0; 65_536]).is_ok()
    });
    assert_eq!(server.open().get("/").text(), "-");
    assert_eq!(server.server.totals().requests, requests + 1);
}

#[test]
fn a_site_without_early_data_resumes_sessions_only() {
    let (server, options) = known(false);
    let mut client = H3Client::begin(server.server.address(), &options);
    assert!(!client.state().quic.can_send_early());
    client.wait("the handshake", |connection| connection.is_connected);
    assert_eq!(client.get("/").text(), "-");
}
