//! A low limit of descriptors and many requests that hang at an origin: other requests are still served.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::scripted_origin::ScriptedOrigin;
use crate::harness::{Apus, Home, Reply, wait_until};

/// The limit of descriptors, and a larger number of requests.
const LIMIT: usize = 160;
const REQUESTS: usize = 220;

fn serve(home: &Home, origin: &ScriptedOrigin) -> Apus {
    home.write(
        "apus.toml",
        format!(
            "[global]\nworker_threads = 1\n\
             [[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
             [[sites.locations]]\npath = \"/api/\"\nupstream = \"http://{}\"\n",
            origin.address()
        ),
    );
    let limit = format!("ulimit -n {LIMIT} && exec \"$0\" \"$@\"");
    home.serve_through(&["sh", "-c", &limit], &[])
}

#[test]
fn files_are_served_while_hanging_requests_use_all_descriptors_that_they_get() {
    let ends = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ends);
    let origin = ScriptedOrigin::start(move |connection| {
        while connection.read_request().is_some() {
            while !ended.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(20));
            }
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate");
        }
    });
    let home = Home::new();
    home.write("site/page.html", "a page");
    let apus = serve(&home, &origin);
    let hanging: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let mut stream = apus.connect();
            let _ = stream.write_all(b"GET /api/ HTTP/1.1\r\nhost: localhost\r\n\r\n");
            stream
        })
        .collect();
    // Each request has its own connection, and the first of a round reads a new file.
    for round in 0..20 {
        let name = format!("site/{round}.html");
        home.write(&name, "new");
        assert_eq!(apus.get(&format!("/{round}.html")).body, "new");
        assert_eq!(apus.get("/page.html").body, "a page");
    }
    let status_of = |stream| Reply::read_head(stream);
    ends.store(true, Ordering::SeqCst);
    let statuses: Vec<u16> = hanging.into_iter().map(status_of).collect();
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    // Requests that had a connection to the origin get their response; the others get a 503 or are closed.
    assert!(count(200) >= LIMIT / 16, "{statuses:?}");
    assert_eq!(count(200) + count(503) + count(0), REQUESTS, "{statuses:?}");
    wait_until("the origin gets requests again", || {
        apus.get("/api/").status == 200
    });
    assert!(!apus.log().contains("cannot accept"), "{}", apus.log());
}

#[test]
fn idle_client_connections_are_closed_for_connections_to_origins() {
    let origin = ScriptedOrigin::responding("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let home = Home::new();
    let apus = serve(&home, &origin);
    let idle: Vec<_> = (0..LIMIT)
        .map(|_| {
            let mut stream = apus.connect();
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
            stream
        })
        .collect();
    // New connections are not closed for a moment.
    wait_until("an idle connection is closed", || {
        apus.get("/api/").status == 200
    });
    for _ in 0..20 {
        assert_eq!(apus.get("/api/").status, 200);
    }
    drop(idle);
}
