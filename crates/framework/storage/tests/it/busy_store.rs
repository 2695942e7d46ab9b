//! Requests to an object store that are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apus_storage::{S3Settings, Storage};
use apus_testkit::block_on;
use apus_testkit::scripted::{Action, ScriptedServer};

use crate::harness::key;

#[test]
fn a_request_to_a_busy_object_store_is_sent_again() {
    let requests = Arc::new(AtomicU64::new(0));
    let received = requests.clone();
    let server = ScriptedServer::start(move |request| {
        let (status, body) = match received.fetch_add(1, Ordering::SeqCst) {
            0 => (
                "503 Service Unavailable",
                "<Error><Code>SlowDown</Code></Error>",
            ),
            1 => ("429 Too Many Requests", ""),
            _ => ("200 OK", "content"),
        };
        let length = body.len();
        let sent = if request.head.starts_with("HEAD ") {
            ""
        } else {
            body
        };
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{sent}");
        Action::Respond(response.into_bytes())
    });
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let storage = Storage::s3(S3Settings::new(endpoint, "files")).unwrap();
    let info = block_on(storage.info(&key("a.txt"))).unwrap().unwrap();
    assert_eq!((info.bytes, requests.load(Ordering::SeqCst)), (7, 3));
}
