//! The binary as a shared cache in front of origins (RFC 9111): what it stores and for which requests, what
//! it never stores, and what survives a restart.

mod attacks;
mod fetch;
mod full_disk;
mod persistence;
mod purge;
mod reuse;

use std::collections::HashMap;
use std::sync::Mutex;

use crate::harness::Home;
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::proxy::{Configuration, Front};
use crate::wire::Received;

/// The field of a response that every cache may reuse for a minute.
const MINUTE: &str = "Cache-Control: max-age=60\r\n";

/// An origin that numbers its responses to each target from 1 and adds these field lines. With `?status=N`
/// in the target, the response has that status.
fn numbered(fields: impl Fn(&str) -> String + Send + Sync + 'static) -> ScriptedOrigin {
    let counts: Mutex<HashMap<String, usize>> = Mutex::default();
    ScriptedOrigin::start(move |connection| {
        while let Some(head) = connection.read_request() {
            let mut words = head.split(' ');
            let (method, target) = (words.next().unwrap(), words.next().unwrap());
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(target.to_owned()).or_default();
            *count += 1;
            let body = format!("answer {count}");
            drop(counts);
            let status = target.split("status=").nth(1).unwrap_or("200");
            let (length, lines) = (body.len(), fields(&head));
            connection.send(format!(
                "HTTP/1.1 {status} Words\r\nContent-Type: text/plain\r\n{lines}Content-Length: {length}\r\n\r\n"
            ));
            if method != "HEAD" {
                connection.send(body);
            }
        }
    })
}

/// A body that is larger than an object in memory may be, and that repeats no part.
fn large() -> Vec<u8> {
    (0..500_000_u32)
        .flat_map(|number| format!("{number:07}\n").into_bytes())
        .collect()
}

/// An origin that responds to `/small` with a small body and to everything else with this body.
fn large_origin(body: &[u8]) -> ScriptedOrigin {
    let body = body.to_vec();
    ScriptedOrigin::start(move |connection| {
        while let Some(head) = connection.read_request() {
            let body = if head.starts_with("GET /small ") {
                b"little"
            } else {
                &body[..]
            };
            let length = body.len();
            connection.send(format!(
                "HTTP/1.1 200 OK\r\n{MINUTE}ETag: \"one\"\r\nContent-Length: {length}\r\n\r\n"
            ));
            connection.send(body);
        }
    })
}

/// A server that caches the responses of this origin.
fn cached(origin: &ScriptedOrigin) -> Front {
    configured(origin).serve()
}

fn configured(origin: &ScriptedOrigin) -> Configuration {
    configured_with(origin, "cache = true")
}

fn configured_with(origin: &ScriptedOrigin, cache: &str) -> Configuration {
    Configuration::of([origin.address()]).location(cache)
}

/// A server that caches the responses on disk too, in the folder `cache`.
fn cached_on_disk(origin: &ScriptedOrigin, home: Home, port: u16) -> Front {
    configured(origin)
        .global("cache = { dir = \"cache\", size = 512 }")
        .at(port)
        .serve_in(home)
}

/// The number of requests that the origin received.
fn requests_to(origin: &ScriptedOrigin) -> usize {
    origin.received().matches(" HTTP/1.1\r\n").count()
}

/// The response to `GET target` with these field lines, each with its CRLF.
fn get(front: &Front, target: &str, fields: &str) -> Received {
    front.request(format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ))
}

/// Whether the response to `GET target` comes from the cache.
fn is_hit(front: &Front, target: &str) -> bool {
    let reply = get(front, target, "");
    assert_eq!(reply.status, 200, "{target}");
    reply.field("cache-status").unwrap().contains("; hit")
}
