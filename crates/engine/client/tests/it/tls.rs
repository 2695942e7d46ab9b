//! TLS to origins: trust, certificates, and ends without a `close_notify` alert.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};

use apus_client::{Address, ClientTlsSettings, FailureCause, Origin, RequestPhase, Tls};
use apus_http::{Body, BodyError, BodyStream, FileRange, Frame, Method};
use apus_testkit::{CertificateAuthority, IssuedCertificate};
use apus_transport::tls::{Certificate, MinVersion};
use bytes::Bytes;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::harness::{IdleConnections, collect, get, get_once, head, origin, request, run};

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A TLS origin, and the results of its handshakes.
struct TlsOrigin {
    address: SocketAddr,
    handshakes: Receiver<Result<HandshakeKind, rustls::Error>>,
}

fn config(issued: &IssuedCertificate, clients: Option<&CertificateAuthority>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    builder
        .with_single_cert(vec![issued.der.clone()], key)
        .unwrap()
}

fn certificate(issued: &IssuedCertificate) -> Certificate {
    Certificate::from_pem(issued.pem.as_bytes(), issued.key.as_bytes()).unwrap()
}

impl TlsOrigin {
    fn start(config: ServerConfig, serve: impl Fn(&mut Stream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, handshakes): (Sender<_>, _) = channel();
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let session = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(session, socket.unwrap());
                let handshake = stream.conn.complete_io(&mut stream.sock);
                let outcome = match handshake {
                    Ok(_) => Ok(stream.conn.handshake_kind().unwrap()),
                    Err(error) => match error.downcast::<rustls::Error>() {
                        Ok(error) => Err(error),
                        Err(error) => Err(rustls::Error::General(error.to_string())),
                    },
                };
                let succeeded = outcome.is_ok();
                let _ = sender.send(outcome);
                if succeeded {
                    serve(&mut stream);
                }
            }
        });
        Self {
            address,
            handshakes,
        }
    }

    fn origin(&self, settings: &ClientTlsSettings) -> Origin {
        Origin {
            tls: Some(Tls::new(settings).unwrap()),
            ..origin(Address::Ip(self.address))
        }
    }
}

fn respond(stream: &mut Stream) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request);
    let _ =
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
}

fn trusting(authority: &CertificateAuthority, name: &str) -> ClientTlsSettings {
    ClientTlsSettings {
        authorities: Some(vec![authority.der.clone()]),
        ..ClientTlsSettings::new(name)
    }
}

#[test]
fn only_the_right_name_signed_by_a_trusted_authority_is_accepted() {
    let (authority, stranger) = (
        CertificateAuthority::generate(),
        CertificateAuthority::generate(),
    );
    let served = TlsOrigin::start(config(&authority.ecdsa(&["origin.test"]), None), respond);
    run(async {
        let good = served.origin(&trusting(&authority, "origin.test"));
        let response = get_once(&good).await.unwrap();
        assert_eq!(collect(response.body).await.unwrap().0, b"ok");
        for settings in [
            trusting(&authority, "other.test"),
            trusting(&authority, "127.0.0.1"),
            trusting(&stranger, "origin.test"),
            // The system does not trust this authority.
            ClientTlsSettings::new("origin.test"),
        ] {
            let failure = get_once(&served.origin(&settings)).await.unwrap_err();
            assert_eq!(failure.phase, RequestPhase::Tls);
            assert!(
                matches!(failure.cause, FailureCause::Protocol(_)),
                "{failure:?}"
            );
            assert!(!failure.request_sent);
        }
        let unverified = ClientTlsSettings {
            verify: false,
            ..ClientTlsSettings::new("other.test")
        };
        get_once(&served.origin(&unverified)).await.unwrap();
    });
}

#[test]
fn a_self_signed_certificate_among_the_authorities_is_trusted_as_it_is() {
    let names = ["origin.test"];
    let own = IssuedCertificate::self_signed(&names, 2020, 4000);
    let again = IssuedCertificate::self_signed(&names, 2020, 4000);
    let expired = IssuedCertificate::self_signed(&names, 2020, 2021);
    let future = IssuedCertificate::self_signed(&names, 3999, 4000);
    let authority = CertificateAuthority::generate();
    let stranger = CertificateAuthority::generate();
    let issued = authority.ecdsa(&names);
    for (presented, trusted, name, is_accepted) in [
        (&own, &own.der, "origin.test", true),
        // The same names and another key, another name, and other times.
        (&again, &own.der, "origin.test", false),
        (&own, &own.der, "other.test", false),
        (&expired, &expired.der, "origin.test", false),
        (&future, &future.der, "origin.test", false),
        // A certificate that another authority issued.
        (&issued, &issued.der, "origin.test", true),
        (&issued, &authority.der, "origin.test", true),
        (&issued, &own.der, "origin.test", false),
    ] {
        let server = TlsOrigin::start(config(presented, None), respond);
        let settings = ClientTlsSettings {
            // Beside others.
            authorities: Some(vec![stranger.der.clone(), trusted.clone()]),
            ..ClientTlsSettings::new(name)
        };
        let origin = server.origin(&settings);
        let result = run(async { get_once(&origin).await.map(drop) });
        assert_eq!(result.is_ok(), is_accepted, "{name}");
        assert_eq!(server.handshakes.recv().unwrap().is_ok(), is_accepted);
    }
}

#[test]
fn an_address_can_be_a_name() {
    let authority = CertificateAuthority::generate();
    let served = TlsOrigin::start(config(&authority.ecdsa(&["127.0.0.1"]), None), respond);
    run(async {
        let origin = served.origin(&trusting(&authority, "127.0.0.1"));
        get_once(&origin).await.unwrap();
    });
}

#[test]
fn a_client_certificate_is_sent_where_it_is_requested() {
    let authority = CertificateAuthority::generate();
    let config = config(&authority.ecdsa(&["origin.test"]), Some(&authority));
    let served = TlsOrigin::start(config, respond);
    run(async {
        let settings = ClientTlsSettings {
            certificate: Some(certificate(&authority.ecdsa(&["apus"]))),
            ..trusting(&authority, "origin.test")
        };
        get_once(&served.origin(&settings)).await.unwrap();
        served.handshakes.recv().unwrap().unwrap();
        let without = served.origin(&trusting(&authority, "origin.test"));
        get_once(&without).await.unwrap_err();
        served.handshakes.recv().unwrap().unwrap_err();
    });
}

#[test]
fn sessions_are_resumed_and_settings_that_mean_the_same_share_them() {
    let authority = CertificateAuthority::generate();
    let served = TlsOrigin::start(config(&authority.ecdsa(&["origin.test"]), None), respond);
    run(async {
        let origin = served.origin(&trusting(&authority, "origin.test"));
        // The settings are built again, as after a reload.
        let again = served.origin(&trusting(&authority, "origin.test"));
        assert!(origin == again);
        for (origin, kind) in [
            (&origin, HandshakeKind::Full),
            (&again, HandshakeKind::Resumed),
        ] {
            let response = get_once(origin).await.unwrap();
            collect(response.body).await.unwrap();
            let handshake = served.handshakes.recv().unwrap().unwrap();
            assert!(
                handshake == kind || handshake == HandshakeKind::FullWithHelloRetryRequest,
                "{handshake:?}"
            );
        }
    });
}

#[test]
fn settings_that_differ_are_different_origins() {
    let authority = CertificateAuthority::generate();
    let settings = trusting(&authority, "origin.test");
    let tls = Tls::new(&settings).unwrap();
    for other in [
        trusting(&authority, "other.test"),
        trusting(&CertificateAuthority::generate(), "origin.test"),
        ClientTlsSettings {
            verify: false,
            ..settings.clone()
        },
        ClientTlsSettings {
            certificate: Some(certificate(&authority.ecdsa(&["apus"]))),
            ..settings.clone()
        },
        ClientTlsSettings {
            min_version: MinVersion::Tls13,
            ..settings.clone()
        },
    ] {
        assert!(Tls::new(&other).unwrap() != tls, "{other:?}");
    }
    assert!(Tls::new(&ClientTlsSettings::new("no name")).is_err());
}

/// RFC 9112 section 9.8: an attacker that cuts the connection must not be able to shorten a response.
#[test]
fn a_body_without_a_length_is_complete_only_with_a_close_notify() {
    let authority = CertificateAuthority::generate();
    for alert in [true, false] {
        let issued = authority.ecdsa(&["origin.test"]);
        let served = TlsOrigin::start(config(&issued, None), move |stream| {
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok").unwrap();
            if alert {
                stream.conn.send_close_notify();
                let _ = stream.conn.complete_io(&mut stream.sock);
            }
        });
        run(async {
            let origin = served.origin(&trusting(&authority, "origin.test"));
            let response = get_once(&origin).await.unwrap();
            match (collect(response.body).await, alert) {
                (Ok((body, _)), true) => assert_eq!(body, b"ok"),
                (Err(BodyError::Disconnected), false) => {}
                (other, _) => panic!("{alert}: {other:?}"),
            }
        });
    }
}

#[test]
fn one_connection_carries_many_requests_and_files() {
    let authority = CertificateAuthority::generate();
    let bytes: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
    let expected = bytes.clone();
    let served = TlsOrigin::start(
        config(&authority.ecdsa(&["origin.test"]), None),
        move |stream| {
            for _ in 0..2 {
                let mut read = Vec::new();
                let end = loop {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    read.push(byte[0]);
                    if read.ends_with(b"\r\n\r\n") {
                        break read.starts_with(b"GET");
                    }
                };
                if !end {
                    let mut body = vec![0; expected.len()];
                    stream.read_exact(&mut body).unwrap();
                    assert!(body == expected);
                }
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .unwrap();
            }
        },
    );
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let range = FileRange {
        file: Arc::new(file),
        offset: 0,
        len: bytes.len() as u64,
    };
    run(async {
        let origin = served.origin(&trusting(&authority, "origin.test"));
        let idle = Rc::new(IdleConnections::default());
        let put = request(head(Method::PUT, "/"), Body::File(range));
        idle.send(&origin, put).await.unwrap();
        let mut connection = idle.take().unwrap();
        // Tickets have arrived since. They are not a response.
        assert!(connection.is_usable());
        connection.set_connection_return(idle.clone());
        connection.send(get("/")).await.unwrap();
        assert_eq!(idle.opened.get(), 1);
    });
}

/// A body of this many pieces. Every other poll is pending.
struct RepeatedBody {
    left: usize,
    given: Rc<Cell<usize>>,
    keeps_waiting: bool,
}

impl RepeatedBody {
    const SIZE: usize = 16 * 1024;

    fn body(count: usize, given: &Rc<Cell<usize>>) -> Body {
        given.set(0);
        Body::stream(Self {
            left: count,
            given: Rc::clone(given),
            keeps_waiting: true,
        })
    }
}

impl BodyStream for RepeatedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.keeps_waiting = !self.keeps_waiting;
        if !self.keeps_waiting {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.left -= 1;
        self.given.set(self.given.get() + 1);
        Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(
            &[b'x'; Self::SIZE],
        )))))
    }

    fn remaining(&self) -> Option<u64> {
        Some((self.left * Self::SIZE) as u64)
    }
}

/// TLS buffers a piece that does not fit into the socket. The last one, too, is sent when it fits.
#[test]
fn the_end_of_a_body_is_sent_when_a_slow_origin_reads_again() {
    let authority = CertificateAuthority::generate();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let config = Arc::new(config(&authority.ecdsa(&["origin.test"]), None));
    let (go_on, steps) = channel::<usize>();
    std::thread::spawn(move || {
        while let Ok(pieces) = steps.recv() {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(session, listener.accept().unwrap().0);
            stream.conn.complete_io(&mut stream.sock).unwrap();
            // The origin reads only after the client has sent as much as it can.
            let Ok(()) = steps.recv().map(|_| ()) else {
                return;
            };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream
                .read_exact(&mut vec![0; pieces * RepeatedBody::SIZE])
                .unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .unwrap();
        }
    });
    let origin = Origin {
        tls: Some(Tls::new(&trusting(&authority, "origin.test")).unwrap()),
        ..origin(Address::Unix(path.into()))
    };
    let given = Rc::new(Cell::new(0));
    run(async {
        let upload = async |pieces: usize| {
            let idle = Rc::new(IdleConnections::default());
            go_on.send(pieces).unwrap();
            let mut connection = idle.open(&origin).await.unwrap();
            connection.set_connection_return(idle.clone());
            let put = request(head(Method::PUT, "/"), RepeatedBody::body(pieces, &given));
            let sending = tokio::task::spawn_local(connection.send(put));
            // The upload runs until it gets no further.
            let (mut before, mut turns) = (0, 0);
            while turns < 100 {
                tokio::task::yield_now().await;
                turns = if given.get() == before { turns + 1 } else { 0 };
                before = given.get();
            }
            go_on.send(0).unwrap();
            let response = sending.await.unwrap().unwrap();
            assert_eq!(collect(response.body).await.unwrap().0, b"ok");
            assert_eq!(idle.len(), 1, "{pieces} pieces");
            before
        };
        // This is more than the socket and TLS hold.
        let stuck_at = upload(1000).await;
        for pieces in stuck_at - 3..stuck_at + 3 {
            upload(pieces).await;
        }
    });
}
