//! The binary as a cache in front of origins (RFC 9111): what it keeps and for whom, what it never
//! keeps, and what survives its end.

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

/// What an answer may be used for a minute by everybody.
const MINUTE: &str = "Cache-Control: max-age=60\r\n";

/// An origin whose answers to a target are numbered from 1, with these field lines. With `?status=N`
/// in the target, they have that status.
fn numbered(fields: impl Fn(&str) -> String + Send + Sync + 'static) -> ScriptedOrigin {
    let counts: Mutex<HashMap<String, usize>> = Mutex::default();
    ScriptedOrigin::start(move |stage| {
        while let Some(head) = stage.read_request() {
            let mut words = head.split(' ');
            let (method, target) = (words.next().unwrap(), words.next().unwrap());
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(target.to_owned()).or_default();
            *count += 1;
            let body = format!("answer {count}");
            drop(counts);
            let status = target.split("status=").nth(1).unwrap_or("200");
            let (length, lines) = (body.len(), fields(&head));
            stage.send(format!(
                "HTTP/1.1 {status} Words\r\nContent-Type: text/plain\r\n{lines}Content-Length: {length}\r\n\r\n"
            ));
            if method != "HEAD" {
                stage.send(body);
            }
        }
    })
}

/// More than memory keeps of one object, and unlike in all its parts.
fn large() -> Vec<u8> {
    (0..500_000_u32)
        .flat_map(|number| format!("{number:07}\n").into_bytes())
        .collect()
}

/// An origin that answers everything with this content, but `/small` with little.
fn large_origin(content: &[u8]) -> ScriptedOrigin {
    let content = content.to_vec();
    ScriptedOrigin::start(move |stage| {
        while let Some(head) = stage.read_request() {
            let content = match head.starts_with("GET /small ") {
                true => b"little",
                false => &content[..],
            };
            let length = content.len();
            stage.send(format!(
                "HTTP/1.1 200 OK\r\n{MINUTE}ETag: \"one\"\r\nContent-Length: {length}\r\n\r\n"
            ));
            stage.send(content);
        }
    })
}

/// A server that caches what this origin answers.
fn cached(origin: &ScriptedOrigin) -> Front {
    configured(origin).serve()
}

fn configured(origin: &ScriptedOrigin) -> Configuration {
    configured_with(origin, "cache = true")
}

fn configured_with(origin: &ScriptedOrigin, cache: &str) -> Configuration {
    Configuration::of([origin.address()]).location(cache)
}

/// One that keeps it on disk too, below `cache` in its home.
fn cached_on_disk(origin: &ScriptedOrigin, home: Home, port: u16) -> Front {
    configured(origin)
        .global("cache = { dir = \"cache\", size = 512 }")
        .at(port)
        .serve_in(home)
}

/// How many requests the origin was sent.
fn asked(origin: &ScriptedOrigin) -> usize {
    origin.received().matches(" HTTP/1.1\r\n").count()
}

/// The answer to `GET target` with these field lines, each with its line end.
fn get(front: &Front, target: &str, fields: &str) -> Received {
    front.ask(format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ))
}

/// Whether the answer to `GET target` came from the cache.
fn is_hit(front: &Front, target: &str) -> bool {
    let reply = get(front, target, "");
    assert_eq!(reply.status, 200, "{target}");
    reply.field("cache-status").unwrap().contains("; hit")
}
