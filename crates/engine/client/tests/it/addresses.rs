//! Connections to TCP and Unix sockets, to addresses that do not respond, and with PROXY protocol heads.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;

use apus_client::{Address, FailureCause, Origin, ProxyHead, RequestPhase, Timeouts, connect};
use apus_codec::proxy_protocol;

use crate::harness::{IdleConnections, RawOrigin, collect, get, get_once, origin, run};

#[test]
fn an_origin_behind_a_unix_socket_responds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("origin.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let serves = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let read = socket.read(&mut request).unwrap();
        assert!(request[..read].starts_with(b"GET / HTTP/1.1\r\nhost: origin.test\r\n"));
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .unwrap();
    });
    run(async {
        let origin = origin(Address::Unix(path.as_path().into()));
        let response = get_once(&origin).await.unwrap();
        assert_eq!(collect(response.body).await.unwrap().0, b"ok");
    });
    serves.join().unwrap();
}

#[test]
fn an_origin_that_is_not_there_fails_before_anything_is_sent() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for address in [
        Address::Ip(closed),
        Address::Unix(std::path::Path::new("/nonexistent/socket").into()),
    ] {
        run(async {
            let failure = connect(&origin(address.clone()), None, &Timeouts::default())
                .await
                .unwrap_err();
            assert_eq!(failure.phase, RequestPhase::Connect);
            assert!(matches!(failure.cause, FailureCause::Io(_)), "{failure}");
            assert!(!failure.request_sent);
        });
    }
}

#[test]
fn the_origin_gets_the_client_address_of_a_connection() {
    let client = proxy_protocol::ProxyHeader {
        source: Some("192.0.2.1:1000".parse().unwrap()),
        destination: Some("192.0.2.2:80".parse().unwrap()),
    };
    let v2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x03\xe8\0\x50";
    let own: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (proxy_head, client, expected) in [
        (
            ProxyHead::V1,
            Some(client),
            &b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\r\n"[..],
        ),
        (ProxyHead::V1, None, b"PROXY UNKNOWN\r\n"),
        (ProxyHead::V2, Some(client), v2),
        (ProxyHead::V2, None, own),
    ] {
        let raw_origin = RawOrigin::start(move |_, mut connection| {
            assert_eq!(connection.read_exact(expected.len()), expected);
            assert!(
                connection
                    .read_head()
                    .unwrap()
                    .starts_with("GET / HTTP/1.1\r\n")
            );
            connection.send("HTTP/1.1 204 No Content\r\n\r\n");
        });
        run(async {
            let origin = Origin {
                proxy_head,
                ..raw_origin.origin()
            };
            let opened = connect(&origin, client, &Timeouts::default())
                .await
                .unwrap();
            let apus_client::OriginConnection::Http1(mut connection) = opened else {
                panic!("{opened:?}");
            };
            connection.set_connection_return(Rc::new(IdleConnections::default()));
            assert_eq!(connection.send(get("/")).await.unwrap().status, 204);
        });
        raw_origin.check();
    }
}
