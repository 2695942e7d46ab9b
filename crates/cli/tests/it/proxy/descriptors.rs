//! Few descriptors, and many requests that hang at an origin: what is left serves others.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::scripted_origin::ScriptedOrigin;
use crate::harness::{Apus, Home, Reply, wait_until};

/// Descriptors that the server may have, and more requests than that.
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
fn files_are_served_while_requests_that_hang_take_all_descriptors_they_get() {
    let ends = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ends);
    let origin = ScriptedOrigin::start(move |stage| {
        while stage.read_request().is_some() {
            while !ended.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(20));
            }
            stage.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate");
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
    // Each over a connection of its own, and a file that was not read before.
    for round in 0..20 {
        let name = format!("site/{round}.html");
        home.write(&name, "new");
        assert_eq!(apus.get(&format!("/{round}.html")).body, "new");
        assert_eq!(apus.get("/page.html").body, "a page");
    }
    let answered = |stream| Reply::read_head(stream);
    ends.store(true, Ordering::SeqCst);
    let answers: Vec<u16> = hanging.into_iter().map(answered).collect();
    let count = |status| answers.iter().filter(|answer| **answer == status).count();
    // Those that had a connection get their response; the others were told, or closed for others.
    assert!(count(200) >= LIMIT / 16, "{answers:?}");
    assert_eq!(count(200) + count(503) + count(0), REQUESTS, "{answers:?}");
    wait_until("the origin is asked again", || {
        apus.get("/api/").status == 200
    });
    assert!(!apus.log().contains("cannot accept"), "{}", apus.log());
}

#[test]
fn connections_that_wait_make_room_for_those_to_origins() {
    let origin = ScriptedOrigin::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let home = Home::new();
    let apus = serve(&home, &origin);
    let idle: Vec<_> = (0..LIMIT)
        .map(|_| {
            let mut stream = apus.connect();
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
            stream
        })
        .collect();
    // Those that just came are left alone for a moment.
    wait_until("an idle one made room", || apus.get("/api/").status == 200);
    for _ in 0..20 {
        assert_eq!(apus.get("/api/").status, 200);
    }
    drop(idle);
}
