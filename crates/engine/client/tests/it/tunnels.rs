//! Connections that go on as another protocol (RFC 9110 section 7.8).

use std::future::poll_fn;
use std::rc::Rc;

use apus_client::{ClientRequest, ClientRequestHead, FailureCause};
use apus_codec::h1::Http1Error;
use apus_http::{Body, Duplex, Method};

use crate::harness::{IdleConnections, RawOrigin, get_once, head, request, run};

fn offering() -> ClientRequest {
    let head = ClientRequestHead {
        upgrade: Some("websocket".into()),
        ..head(Method::GET, "/chat")
    };
    request(head, Body::Empty)
}

async fn read_all(tunnel: &mut dyn Duplex) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut buffer = [0; 5];
        match poll_fn(|cx| tunnel.poll_read(cx, &mut buffer))
            .await
            .unwrap()
        {
            0 => return all,
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

#[test]
fn a_tunnel_gets_the_bytes_that_arrived_early() {
    let origin = RawOrigin::start(|_, mut connection| {
        let head = connection.read_head().unwrap();
        assert!(
            head.contains("upgrade: websocket\r\nconnection: upgrade\r\n"),
            "{head}"
        );
        connection
            .send("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nearly,");
        assert_eq!(connection.read_exact(4), b"ping");
        connection.send("pong");
        connection.end();
        assert!(connection.is_closed());
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let response = idle.send(&origin.origin(), offering()).await.unwrap();
        assert_eq!(response.status, 101);
        assert_eq!(response.headers.wire(), b"upgrade: websocket\r\n");
        let mut tunnel = response.tunnel.unwrap();
        assert_eq!(
            poll_fn(|cx| tunnel.poll_write(cx, b"ping")).await.unwrap(),
            4
        );
        poll_fn(|cx| tunnel.poll_flush(cx)).await.unwrap();
        assert_eq!(read_all(&mut *tunnel).await, b"early,pong");
        poll_fn(|cx| tunnel.poll_shutdown(cx)).await.unwrap();
        assert_eq!(idle.len(), 0);
    });
    origin.check();
}

#[test]
fn an_origin_that_declines_responds_as_usual() {
    let origin = RawOrigin::responding(&[
        b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: other\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
    ]);
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let response = idle.send(&origin.origin(), offering()).await.unwrap();
        assert_eq!(response.headers.get_str("upgrade"), Some("other"));
        let response = idle.send(&origin.origin(), offering()).await.unwrap();
        assert!(response.tunnel.is_none());
        assert_eq!((idle.len(), idle.opened.get()), (1, 1));
    });
}

#[test]
fn no_client_is_switched_that_did_not_request_it() {
    let origin = RawOrigin::responding(&[
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ]);
    run(async {
        let failure = get_once(&origin.origin()).await.unwrap_err();
        let FailureCause::Protocol(error) = failure.cause else {
            panic!("{failure:?}");
        };
        assert_eq!(error.downcast_ref(), Some(&Http1Error::UnexpectedUpgrade));
    });
}

#[test]
fn no_client_is_switched_to_another_protocol_than_it_requested() {
    for line in [
        "Upgrade: something\r\n",
        "Upgrade: websocket, other\r\n",
        "",
    ] {
        let response = format!("HTTP/1.1 101 x\r\n{line}Connection: upgrade\r\n\r\n");
        let origin = RawOrigin::responding(&[response.as_bytes()]);
        run(async {
            let idle = Rc::new(IdleConnections::default());
            let failure = idle.send(&origin.origin(), offering()).await.unwrap_err();
            let FailureCause::Protocol(error) = failure.cause else {
                panic!("{failure:?}");
            };
            assert_eq!(error.downcast_ref(), Some(&Http1Error::UnexpectedUpgrade));
        });
    }
}
