//! HTTP/2 (RFC 9113) over real sockets: what clients, honest and hostile, get from it.

mod attacks;
mod basics;
pub(crate) mod client;
mod fields;
mod flow;
mod frames;
mod honest;
mod lifecycle;
mod origin_connections;
mod priority;
mod slow;
mod tunnels;

use std::net::TcpStream;
use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_net::tls::UnknownName;
use apus_net::{EnginePlan, Limits};
use apus_testkit::{CertificateAuthority, body_bytes, wait_until};
use rustls::{ClientConnection, StreamOwned};

use self::client::Peer;
use crate::harness::{PATIENCE, Server, connect, ok, plan, service, text};
use crate::tls::{client_of, connect_tls, site, tls_listener};

type TlsPeer = Peer<StreamOwned<ClientConnection, TcpStream>>;

/// A client with prior knowledge (section 3.3).
fn open(server: &Server) -> Peer<TcpStream> {
    open_with(server, &[])
}

fn open_with(server: &Server, settings: &[(u16, u32)]) -> Peer<TcpStream> {
    Peer::open_with(connect(server.address()).unwrap(), settings)
}

/// A client whose socket has small buffers, so that unread bytes stay with the server.
fn open_narrow(server: &Server, settings: &[(u16, u32)]) -> Peer<TcpStream> {
    let address = server.address();
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )
    .unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect_timeout(&address.into(), PATIENCE).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    Peer::open_with(stream, settings)
}

/// A server with TLS that offers HTTP/2 and HTTP/1.1, and the authority that signed its certificate.
pub(crate) fn with_tls(
    limits: Limits,
    service: Arc<dyn ServiceFactory>,
) -> (CertificateAuthority, Server) {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["example.com"]);
    let sites = [site(&["example.com"], &[&issued])];
    let listener = tls_listener(&sites, UnknownName::FirstSite, service);
    let server = Server::run(EnginePlan {
        limits,
        ..plan(vec![listener])
    });
    (authority, server)
}

/// A client that offers HTTP/2 by ALPN (section 3.2).
fn open_tls(authority: &CertificateAuthority, server: &Server) -> TlsPeer {
    let mut config = client_of(authority);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let client = connect_tls(server.address(), &config, "example.com").unwrap();
    assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    Peer::open(client.stream)
}

/// A counter by its name.
fn counted(server: &Server, name: &str) -> u64 {
    let totals = server.totals();
    let mut counters = totals.iter();
    let (_, value) = counters.find(|(counter, _)| *counter == name).expect(name);
    value
}

/// Waits until a counter is at least this.
fn wait_for_count(server: &Server, name: &str, least: u64) {
    wait_until(name, || counted(server, name) >= least);
}

/// Responds with the request: method, target, then the fields in the order of their names.
pub(crate) fn described() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let mut lines: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", text(value)))
            .collect();
        lines.sort();
        let authority = request.authority().unwrap_or("-");
        let target = format!("{} {authority} {}", request.method(), request.path());
        let query = request.query().map(|query| format!("?{query}"));
        let query = query.unwrap_or_default();
        ok(format!("{target}{query}\n{}", lines.concat())).into()
    })
}

/// A body of frames that are as large as they may be.
fn large(len: usize) -> Arc<dyn ServiceFactory> {
    let whole = bytes::Bytes::from(body_bytes(len));
    service(move |_| ok(whole.clone()).into())
}
