//! Thousands of concurrent requests of every kind: each response belongs to its request and contains nothing
//! of another.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::server::{Server, Site};
use super::stack::Stack;
use crate::wire::Wire;

const REQUESTS: usize = 10_000;
const CLIENTS: usize = 8;

/// The request with this number, and what PHP has to report of it.
fn request(id: usize) -> (Vec<u8>, Value) {
    let name = format!("id-{id}");
    let filled = |length: usize| name.repeat(length / name.len() + 1);
    let (mut post, mut files) = (json!([]), json!([]));
    let (method, kind, body) = match id % 5 {
        0 => ("GET", "", String::new()),
        1 => {
            post = json!({ "of": name, "deep": { "a": [name, ""] } });
            let form = format!("of={name}&deep%5Ba%5D%5B%5D={name}&deep[a][]=");
            ("POST", "application/x-www-form-urlencoded", form)
        }
        2 => (
            "POST",
            "application/json",
            format!("{{\"of\":\"{}\"}}", filled(id % 100_000)),
        ),
        3 => {
            let file = filled(id % 70_000);
            post = json!({ "of": name });
            files = json!({ "file": [format!("{name}.txt"), seen(&name, &file)] });
            let part = |name: &str, rest: &str, value: &str| {
                format!(
                    "--cut\r\nContent-Disposition: form-data; name=\"{name}\"{rest}\r\n\r\n{value}\r\n"
                )
            };
            let of = part("of", "", &name);
            let file = part("file", &format!("; filename=\"{name}.txt\""), &file);
            (
                "POST",
                "multipart/form-data; boundary=cut",
                format!("{of}{file}--cut--\r\n"),
            )
        }
        _ => ("PUT", "text/plain", filled(id % 3000)),
    };
    // PHP does not expose the body of a multipart form.
    let input = if id % 5 == 3 { "" } else { body.as_str() };
    let expected = json!({
        "get": { "id": name },
        "post": post,
        "cookie": if id.is_multiple_of(2) { json!({ "of": name }) } else { json!([]) },
        "method": method,
        "header": if id.is_multiple_of(3) { json!(name) } else { Value::Null },
        "content": seen(&name, input),
        "files": files,
        "left": Value::Null,
    });
    let mut head = format!("{method} /mixed.php?id={name} HTTP/1.1\r\nHost: app.test\r\n");
    if id.is_multiple_of(2) {
        head += &format!("Cookie: of={name}\r\n");
    }
    if id.is_multiple_of(3) {
        head += &format!("X-Id: {name}\r\n");
    }
    if method != "GET" {
        head += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
    }
    ((head + "\r\n" + &body).into_bytes(), expected)
}

/// What PHP reports of a text: its length, and how often the name of its request is in it.
fn seen(name: &str, text: &str) -> Value {
    json!([text.len(), text.matches(name).count()])
}

pub(super) fn assert_each_request_gets_its_own_response(server: &Server) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut wire = Wire::connect(server.clear());
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= REQUESTS {
                        break;
                    }
                    let (request, expected) = request(id);
                    wire.send(request);
                    let reply = wire.read();
                    assert_eq!(reply.status, 200, "{id}: {}", reply.text());
                    let name = format!("id-{id}");
                    assert_eq!(reply.field("x-id"), Some(name.as_str()));
                    let cookies: Vec<_> = reply
                        .head
                        .iter()
                        .filter(|line| line.starts_with("set-cookie:"))
                        .collect();
                    assert_eq!(cookies, [&format!("set-cookie: id={name}")], "{id}");
                    let got: Value = serde_json::from_slice(&reply.body).unwrap();
                    assert_eq!(got, expected, "{id}");
                    if reply.field("connection") == Some("close") {
                        wire = Wire::connect(server.clear());
                    }
                }
            });
        }
    });
}

#[test]
fn each_of_ten_thousand_concurrent_requests_gets_its_own_response() {
    let stack = Stack::scripts();
    let server = Server::apus(&Site {
        host: "app.test",
        root: &stack.path("scripts"),
        socket: &stack.socket(),
        apus: "",
        nginx: "",
    });
    assert_each_request_gets_its_own_response(&server);
}
