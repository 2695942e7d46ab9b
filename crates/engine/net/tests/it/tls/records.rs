//! Records at the edges of TLS: large ClientHellos, records behind them, and the responses of TLS itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use apus_net::Limits;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets,
    StreamOwned,
};

use super::{client_of, client_with, serve_one};
use crate::harness::{Client, Server, connect, paths};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

fn session(config: &ClientConfig) -> ClientConnection {
    let name = ServerName::try_from("example.com").unwrap();
    ClientConnection::new(Arc::new(config.clone()), name).unwrap()
}

/// A session, and its ClientHello with `filling` bytes more for protocols that nobody has.
fn hello(config: &ClientConfig, mut filling: usize) -> (ClientConnection, Vec<u8>) {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A ticket of a session before would make it longer.
    config.resumption = Resumption::disabled();
    while filling > 0 {
        // Each has a byte for its length, and is not empty.
        let len = match filling {
            ..=255 => filling,
            256 | 257 => 200,
            _ => 256,
        };
        config.alpn_protocols.push(vec![b'x'; len - 1]);
        filling -= len;
    }
    let mut session = session(&config);
    let mut hello = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut hello).unwrap();
    }
    (session, hello)
}

/// Sessions with a ClientHello of any length.
struct Hellos {
    config: ClientConfig,
    /// The length without anything to fill it, records included.
    least: usize,
}

impl Hellos {
    fn new(config: ClientConfig) -> Self {
        let least = hello(&config, 2).1.len() - 2;
        Self { config, least }
    }

    /// A session, and its ClientHello of this length, records included.
    fn of(&self, length: usize) -> (ClientConnection, Vec<u8>) {
        // Each record has five bytes in front.
        let records = length.div_ceil(16_389);
        let filling = length - self.least - 5 * (records - 1);
        let (session, hello) = hello(&self.config, filling);
        assert_eq!(hello.len(), length);
        (session, hello)
    }
}

#[test]
fn a_large_client_hello_is_served_or_gets_an_alert() {
    let (authority, server) = serve_one(Limits::default(), paths());
    let hellos = Hellos::new(client_of(&authority));
    for (length, is_served) in [
        (4_095, true),
        (4_096, true),
        (4_097, true),
        (16_389, true),
        (18_436, true),
        (18_437, true),
        (18_438, true),
        (20_000, true),
        (40_000, true),
        (65_534, true),
        (65_535, true),
        (65_536, false),
        (65_580, false),
    ] {
        // In one burst, and those around the limit in pieces.
        let pieces = [length, 1_000];
        for piece in pieces.into_iter().take(1 + length / 65_535) {
            let (session, hello) = hellos.of(length);
            let mut socket = connect(server.address()).unwrap();
            for piece in hello.chunks(piece) {
                socket.write_all(piece).unwrap();
            }
            if is_served {
                let mut client = Client::new(StreamOwned::new(session, socket));
                assert_eq!(client.get("/a").text(), "/a", "{length}");
                continue;
            }
            let mut reply = Vec::new();
            socket.read_to_end(&mut reply).unwrap();
            assert_eq!(reply, [ALERT, 3, 3, 0, 2, 2, 50], "{length}");
        }
    }
}

#[test]
fn what_is_no_client_hello_gets_an_alert() {
    let (_, server) = serve_one(Limits::default(), paths());
    let cases: [&[u8]; 6] = [
        // A message of more than 64 KB.
        &[HANDSHAKE, 3, 1, 0, 4, 1, 1, 0, 0],
        // Another message.
        &[HANDSHAKE, 3, 1, 0, 4, 0, 0, 0, 0],
        // Another record in the middle of a message.
        &[HANDSHAKE, 3, 1, 0, 4, 1, 0, 9, 9, ALERT, 3, 1, 0, 2, 1, 0],
        // A type, a version and a length that no record has.
        &[99, 3, 1, 0, 1, 0],
        &[HANDSHAKE, 9, 9, 0, 1, 0],
        &[HANDSHAKE, 3, 1, 255, 255, 0],
    ];
    for case in cases {
        let mut socket = connect(server.address()).unwrap();
        // More than one buffer of bytes follows.
        socket
            .write_all(&[case, &[0; 30_000][..]].concat())
            .unwrap();
        let mut reply = Vec::new();
        socket.read_to_end(&mut reply).unwrap();
        assert_eq!(reply.first(), Some(&ALERT), "{case:?}");
        assert_eq!(reply.get(5), Some(&2), "{case:?}: not a fatal alert");
    }
}

#[test]
fn a_record_in_the_segment_of_the_client_hello_is_processed_at_once() {
    let (authority, server) = serve_one(Limits::default(), paths());
    let hellos = Hellos::new(client_of(&authority));
    // The client gives up. Nothing else comes.
    for (number, length) in [2_000, 18_437, 65_535].into_iter().enumerate() {
        let (_, hello) = hellos.of(length);
        let mut socket = connect(server.address()).unwrap();
        let gave_up = [ALERT, 3, 3, 0, 2, 2, 80];
        socket.write_all(&[&hello[..], &gave_up].concat()).unwrap();
        // The server ends its side, and then reads until the client closes.
        socket.read_to_end(&mut Vec::new()).unwrap();
        drop(socket);
        server.wait_for("the end", |totals| {
            totals.handshake_failures == number as u64 + 1
        });
    }
    assert_eq!(server.totals().timeouts, 0);
    // ChangeCipherSpec of the compatibility mode (RFC 8446 section D.4), and then the rest.
    let (session, hello) = hellos.of(18_430);
    let mut socket = connect(server.address()).unwrap();
    let change = [20, 3, 3, 0, 1, 1];
    socket.write_all(&[&hello[..], &change].concat()).unwrap();
    let mut client = Client::new(StreamOwned::new(session, socket));
    assert_eq!(client.get("/a").text(), "/a");
}

#[test]
fn a_request_in_the_segment_of_finished_is_served_at_once() {
    let (authority, server) = serve_one(Limits::default(), paths());
    for version in super::BOTH {
        let mut session = session(&client_with(&authority, &[version], None));
        let mut socket = connect(server.address()).unwrap();
        session
            .writer()
            .write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        while session.is_handshaking() {
            let mut segment = Vec::new();
            while session.wants_write() {
                session.write_tls(&mut segment).unwrap();
            }
            socket.write_all(&segment).unwrap();
            if session.is_handshaking() {
                session.read_tls(&mut socket).unwrap();
                session.process_new_packets().unwrap();
            }
        }
        let mut client = Client::new(StreamOwned::new(session, socket));
        client.send("");
        assert_eq!(client.read_response().text(), "/a");
    }
}

/// A connection with TLS 1.2 whose keys are known.
struct OpenedConnection {
    socket: TcpStream,
    sending: (u64, LessSafeKey, [u8; 12]),
    receiving: (u64, LessSafeKey, [u8; 12]),
}

impl OpenedConnection {
    fn open(server: &Server, mut config: ClientConfig) -> Self {
        config.enable_secret_extraction = true;
        let mut session = session(&config);
        let mut socket = connect(server.address()).unwrap();
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut socket).unwrap();
        }
        let secrets = session.dangerous_extract_secrets().unwrap();
        let key = |(sequence, secrets)| match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap();
                (
                    sequence,
                    LessSafeKey::new(key),
                    iv.as_ref().try_into().unwrap(),
                )
            }
            _ => panic!("another cipher suite"),
        };
        Self {
            socket,
            sending: key(secrets.tx),
            receiving: key(secrets.rx),
        }
    }

    /// The additional data of a record (RFC 5246 section 6.2.3.3).
    fn additional(sequence: u64, kind: u8, len: usize) -> Vec<u8> {
        let len = u16::try_from(len).unwrap().to_be_bytes();
        [&sequence.to_be_bytes()[..], &[kind, 3, 3], &len].concat()
    }

    fn nonce(iv: [u8; 12], explicit: [u8; 8]) -> Nonce {
        let mut nonce = iv;
        nonce[4..].copy_from_slice(&explicit);
        Nonce::assume_unique_for_key(nonce)
    }

    fn send(&mut self, kind: u8, plain: &[u8]) {
        let (sequence, key, iv) = &mut self.sending;
        let explicit = sequence.to_be_bytes();
        let mut bytes = plain.to_vec();
        let additional = Aad::from(Self::additional(*sequence, kind, plain.len()));
        key.seal_in_place_append_tag(Self::nonce(*iv, explicit), additional, &mut bytes)
            .unwrap();
        *sequence += 1;
        let len = u16::try_from(8 + bytes.len()).unwrap().to_be_bytes();
        let record = [&[kind, 3, 3][..], &len, &explicit, &bytes].concat();
        self.socket.write_all(&record).unwrap();
    }

    fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        self.socket.read_exact(&mut head).unwrap();
        let len = u16::from_be_bytes([head[3], head[4]]);
        let mut record = vec![0; len.into()];
        self.socket.read_exact(&mut record).unwrap();
        let (sequence, key, iv) = &mut self.receiving;
        let (explicit, bytes) = record.split_at_mut(8);
        let explicit: [u8; 8] = (&*explicit).try_into().unwrap();
        let additional = Aad::from(Self::additional(*sequence, head[0], bytes.len() - 16));
        let plain = key
            .open_in_place(Self::nonce(*iv, explicit), additional, bytes)
            .unwrap();
        *sequence += 1;
        (head[0], plain.to_vec())
    }
}

#[test]
fn a_renegotiation_is_refused_while_nobody_writes() {
    let (authority, server) = serve_one(Limits::default(), paths());
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (_, hello) = hello(&config, 0);
    let mut client = OpenedConnection::open(&server, config);
    // Without its record.
    client.send(HANDSHAKE, &hello[5..]);
    assert_eq!(client.receive(), (ALERT, vec![1, 100]));
    // The connection goes on.
    client.send(23, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let (kind, response) = client.receive();
    assert_eq!(kind, 23);
    assert!(response.starts_with(b"HTTP/1.1 200 "));
    // A `close_notify` is responded to.
    client.send(ALERT, &[1, 0]);
    assert_eq!(client.receive(), (ALERT, vec![1, 0]));
}

#[test]
fn a_key_update_is_responded_to_while_nobody_writes() {
    let (authority, server) = serve_one(Limits::default(), paths());
    let config = client_of(&authority);
    let mut client = super::connect_tls(server.address(), &config, "example.com").unwrap();
    assert_eq!(client.get("/a").text(), "/a");
    client.stream.conn.refresh_traffic_keys().unwrap();
    while client.stream.conn.wants_write() {
        client
            .stream
            .conn
            .write_tls(&mut client.stream.sock)
            .unwrap();
    }
    // A record with a message of five bytes, its type and its tag.
    assert_eq!(
        client
            .stream
            .conn
            .read_tls(&mut client.stream.sock)
            .unwrap(),
        27
    );
    client.stream.conn.process_new_packets().unwrap();
    assert_eq!(client.get("/b").text(), "/b");
}

#[test]
fn an_error_in_an_established_connection_gets_an_alert() {
    let (authority, server) = serve_one(Limits::default(), paths());
    for version in super::BOTH {
        for protocol in ["http/1.1", "h2"] {
            let mut config = client_with(&authority, &[version], None);
            config.alpn_protocols = vec![protocol.into()];
            let mut client = super::connect_tls(server.address(), &config, "example.com").unwrap();
            // More follows than is read at once.
            let forged = [&[23, 3, 3, 0, 40][..], &[0; 30_000]].concat();
            client.stream.sock.write_all(&forged).unwrap();
            let error = client.rest().expect_err("no alert");
            let error = error.downcast::<rustls::Error>().unwrap();
            let alert = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
            assert_eq!(error, alert, "{protocol}");
        }
    }
}
