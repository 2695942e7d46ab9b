//! Which connections carry another request, and which are closed (RFC 9112 section 9).

use std::rc::Rc;

use apus_http::{Body, Method};

use apus_testkit::eventually;

use crate::harness::{IdleConnections, RawOrigin, collect, get, head, post, request, run};

const SMALL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn one_connection_carries_many_requests() {
    let origin = RawOrigin::responding(&[
        SMALL,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        SMALL,
    ]);
    run(async {
        let idle = Rc::new(IdleConnections::default());
        for body in ["ok", "ok", "", "", "ok", "ok"] {
            let response = idle.send(&origin.origin(), get("/")).await.unwrap();
            // The connection is returned before the response.
            assert_eq!(idle.len(), 1);
            assert!(!matches!(response.body, Body::Stream(_)));
            assert_eq!(collect(response.body).await.unwrap().0, body.as_bytes());
        }
        assert_eq!(idle.opened.get(), 1);
        assert_eq!(idle.take().unwrap().requests(), 6);
    });
    origin.check();
}

#[test]
fn a_response_to_head_has_no_body_whatever_its_fields_say() {
    let origin = RawOrigin::responding(&[
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ]);
    run(async {
        let idle = Rc::new(IdleConnections::default());
        for length in [Some("2000"), None, None] {
            let head = request(head(Method::HEAD, "/"), Body::Empty);
            let response = idle.send(&origin.origin(), head).await.unwrap();
            assert_eq!(response.headers.get_str("content-length"), length);
            assert!(matches!(response.body, Body::Empty));
            assert_eq!(idle.len(), 1);
        }
        assert_eq!(idle.opened.get(), 1);
    });
}

#[test]
fn a_response_that_ends_the_connection_does_not_return_it() {
    for raw_response in [
        &b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\nConnection: x, CLOSE\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nok",
    ] {
        let origin = RawOrigin::responding(&[raw_response]);
        run(async {
            let idle = Rc::new(IdleConnections::default());
            let response = idle.send(&origin.origin(), get("/")).await.unwrap();
            assert_eq!(collect(response.body).await.unwrap().0, b"ok");
            assert_eq!(idle.len(), 0);
        });
    }
}

/// The class of response queue poisoning: bytes behind one response must not become the next.
#[test]
fn bytes_behind_a_response_never_reach_another_request() {
    for raw_response in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nx",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let origin = RawOrigin::responding(&[raw_response, SMALL]);
        run(async {
            let idle = Rc::new(IdleConnections::default());
            let response = idle.send(&origin.origin(), get("/")).await.unwrap();
            let body = collect(response.body).await.unwrap().0;
            assert!(body == b"ok" || body.is_empty());
            assert_eq!(idle.len(), 0, "{}", raw_response.escape_ascii());
        });
    }
    // A HEAD response with the body of GET.
    let origin = RawOrigin::responding(&[SMALL, SMALL]);
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let head = request(head(Method::HEAD, "/"), Body::Empty);
        idle.send(&origin.origin(), head).await.unwrap();
        assert_eq!(idle.len(), 0);
    });
}

#[test]
fn an_idle_connection_on_which_anything_happens_is_not_usable() {
    enum IdleEvent {
        Nothing,
        ResponseFuture,
        End,
        Reset,
    }
    for happens in [
        IdleEvent::Nothing,
        IdleEvent::ResponseFuture,
        IdleEvent::End,
        IdleEvent::Reset,
    ] {
        let usable = matches!(happens, IdleEvent::Nothing);
        let (now, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let happens = std::sync::Arc::new(happens);
        let origin = RawOrigin::start(move |_, mut connection| {
            connection.read_request().unwrap();
            connection.send(SMALL);
            wait.lock().unwrap().recv().unwrap();
            match *happens {
                IdleEvent::Nothing => drop(connection.read_request()),
                IdleEvent::ResponseFuture => {
                    connection.send(SMALL);
                    drop(connection.read_request());
                }
                IdleEvent::End => connection.end(),
                IdleEvent::Reset => connection.reset(),
            }
        });
        run(async {
            let idle = Rc::new(IdleConnections::default());
            idle.send(&origin.origin(), get("/")).await.unwrap();
            let mut connection = idle.take().unwrap();
            assert!(connection.is_usable());
            now.send(()).unwrap();
            if usable {
                tokio::task::yield_now().await;
                assert!(connection.is_usable());
            } else {
                eventually("the end of the connection", || !connection.is_usable()).await;
            }
        });
    }
}

#[test]
fn a_connection_that_was_closed_while_idle_fails_as_closed_and_gives_the_body_back() {
    let origin = RawOrigin::responding(&[SMALL]);
    run(async {
        let idle = Rc::new(IdleConnections::default());
        idle.send(&origin.origin(), get("/")).await.unwrap();
        let mut connection = idle.take().unwrap();
        eventually("the end of the connection", || !connection.is_usable()).await;
        connection.set_connection_return(idle.clone());
        let failure = connection.send(post("again")).await.unwrap_err();
        assert!(matches!(failure.body, Some(Body::Bytes(_))), "{failure:?}");
        assert_eq!(idle.len(), 0);
    });
}

#[test]
fn without_a_connection_return_the_request_has_connection_close_and_the_connection_is_closed() {
    let origin = RawOrigin::start(|_, mut connection| {
        let request = connection.read_request().unwrap();
        assert!(request.contains("connection: close\r\n"), "{request}");
        connection.send(SMALL);
        assert!(connection.is_closed());
    });
    run(async {
        let idle = IdleConnections::default();
        let connection = idle.open(&origin.origin()).await.unwrap();
        let response = connection.send(get("/")).await.unwrap();
        assert_eq!(collect(response.body).await.unwrap().0, b"ok");
    });
    origin.check();
}

#[test]
fn dropping_a_body_before_its_end_closes_the_connection() {
    let (sender, closed) = std::sync::mpsc::channel();
    let origin = RawOrigin::start(move |_, mut connection| {
        connection.read_request().unwrap();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
        sender.send(connection.is_closed()).unwrap();
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let response = idle.send(&origin.origin(), get("/")).await.unwrap();
        assert_eq!(response.body.len(), Some(100));
        drop(response);
        assert_eq!(idle.len(), 0);
    });
    assert!(closed.recv().unwrap());
}
