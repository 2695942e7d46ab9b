//! One connection, many requests: keep-alive, pipelining, HTTP/1.0 and forms of request targets.

use std::io::Read;

use apus_http::{Method, Response, StatusCode};

use crate::harness::{Server, ok, paths, service};

#[test]
fn keeps_a_connection_for_many_requests() {
    let server = Server::start(paths());
    let mut client = server.connect();
    for number in 0..100 {
        let path = format!("/{number}");
        let received = client.get(&path);
        assert_eq!((received.status, received.text()), (200, path));
        assert_eq!(received.field("connection"), None);
        assert!(received.field("date").is_some());
    }
    assert_eq!(server.totals().accepted, 1);
    assert_eq!(server.totals().requests, 100);
}

#[test]
fn responds_to_pipelined_requests_in_order_and_in_few_writes() {
    let server = Server::start(paths());
    let mut client = server.connect();
    let requests: String = (0..50)
        .map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    client.send(requests);
    // One read gets many responses, since they left in one write.
    let mut first = vec![0; 64 * 1024];
    let read = client.stream.read(&mut first).unwrap();
    let first = String::from_utf8_lossy(&first[..read]).into_owned();
    assert_eq!(first.matches("HTTP/1.1 200").count(), 50, "{first}");
    let bodies: Vec<_> = (0..50).map(|number| format!("\r\n\r\n/{number}")).collect();
    let mut from = 0;
    for body in bodies {
        from += first[from..]
            .find(&body)
            .expect("the next response in order")
            + body.len();
    }
}

#[test]
fn responds_to_pipelined_requests_that_arrive_in_pieces() {
    let server = Server::start(paths());
    let mut client = server.connect();
    let requests = "GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n";
    for byte in requests.as_bytes().chunks(7) {
        client.send(byte);
    }
    assert_eq!(client.read_response().text(), "/one");
    assert_eq!(client.read_response().text(), "/two");
}

#[test]
fn responds_to_pipelined_posts_in_order() {
    let server = Server::start(crate::harness::collector());
    let mut client = server.connect();
    let post = |body: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    client.send([post("first"), post("second"), post("third")].concat());
    for body in ["first", "second", "third"] {
        assert_eq!(client.read_response().text(), body);
    }
}

#[test]
fn closes_where_the_client_requests_it() {
    let server = Server::start(paths());
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let received = client.read_response();
    assert_eq!(
        (received.text().as_str(), received.field("connection")),
        ("/a", Some("close"))
    );
    client.assert_closed();
}

#[test]
fn closes_after_http_1_0_unless_keep_alive_is_requested() {
    let server = Server::start(paths());
    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let received = client.read_response();
    assert_eq!(received.field("connection"), Some("keep-alive"));
    client.send("GET /b HTTP/1.0\r\n\r\n");
    let received = client.read_response();
    assert_eq!(
        (received.text().as_str(), received.field("connection")),
        ("/b", Some("close"))
    );
    client.assert_closed();
}

#[test]
fn responds_to_head_with_the_fields_of_get_and_no_body() {
    let server = Server::start(paths());
    let mut client = server.connect();
    client.send("HEAD /abc HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        client.read_head_response().field("content-length"),
        Some("4")
    );
    assert_eq!(client.get("/next").text(), "/next");
}

#[test]
fn sends_no_body_with_204_and_304() {
    let server = Server::start(service(|request| {
        let status = request.path().trim_start_matches('/').parse().unwrap();
        Response::text(StatusCode::from_u16(status).unwrap(), "content").into()
    }));
    let mut client = server.connect();
    for status in ["204", "304"] {
        let received = client.get(&format!("/{status}"));
        assert_eq!(received.status.to_string(), status);
        assert_eq!(received.field("transfer-encoding"), None);
    }
    assert_eq!(client.get("/200").text(), "content");
}

#[test]
fn takes_the_host_of_an_absolute_target() {
    let server = Server::start(service(|request| {
        let host = request.host().unwrap_or_default();
        ok(format!("{host} {}", request.path())).into()
    }));
    let mut client = server.connect();
    client.send("GET http://target.example/p?q HTTP/1.1\r\nHost: other.example\r\n\r\n");
    assert_eq!(client.read_response().text(), "target.example /p");
}

#[test]
fn takes_options_for_the_server_as_a_whole() {
    let server = Server::start(service(|request| {
        assert_eq!(request.method(), Method::OPTIONS);
        ok(request.target().as_str().to_owned()).into()
    }));
    let mut client = server.connect();
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().text(), "*");
    client.send("GET * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().status, 400);
}

#[test]
fn ends_a_connection_after_its_last_allowed_request_without_losing_the_response() {
    let limits = apus_net::Limits {
        requests_per_connection: 3,
        ..Default::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut client = server.connect();
    // More requests follow while the last response is in flight: a reset would destroy it.
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5));
    assert_eq!(client.read_response().field("connection"), None);
    assert_eq!(client.read_response().field("connection"), None);
    assert_eq!(client.read_response().field("connection"), Some("close"));
    client.assert_closed();
    assert_eq!(server.totals().requests, 3);
}
