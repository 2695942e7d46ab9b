//! Memory and work for clients that take nothing: streams with a compressor or a shared response behind
//! each, and compression that many ask for at once or nobody waits for any more.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use super::Victim;
use crate::h2_client::{Peer, block, head, request_with, setting};
use crate::harness::{connect, wait_until};
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::wire::Received;

/// Connections of an attacker, each with as many streams as it may have.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 256;

/// What SECURITY.md promises of so many streams: the budget of responses, and a piece for each stream.
const BOUND: u64 = (128 + 64) << 20;

/// Three megabytes of text that does not compress to nothing.
fn text() -> String {
    let mut state = 1_u64;
    let mut text = String::new();
    while text.len() < 3 << 20 {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text += &format!("<p>{state:016x} {}</p>\n", state % 1000);
    }
    text
}

/// An origin that responds to everything with that text.
fn origin() -> ScriptedOrigin {
    let text = Arc::new(text());
    ScriptedOrigin::start(move |stage| {
        while stage.read_request().is_some() {
            stage.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=60\r\n\
                 Content-Length: {}\r\n\r\n",
                text.len()
            ));
            stage.send(text.as_bytes());
        }
    })
}

fn in_front_of(origin: &ScriptedOrigin, global: &str, location: &str) -> Victim {
    let locations = format!(
        "[[sites.locations]]\npath = \"/app/\"\nupstream = \"http://{}\"\n{location}",
        origin.address()
    );
    Victim::configured(global, &locations)
}

/// Opens streams whose windows let so much of their responses out, and reads their heads. Returns how
/// many have which coding.
fn stall(
    victim: &Victim,
    window: u32,
    accept: &str,
) -> (Vec<Peer<TcpStream>>, HashMap<String, usize>) {
    let mut codings = HashMap::new();
    let peers = (0..CONNECTIONS)
        .map(|connection| {
            let mut peer = Peer::open_with(
                connect(victim.apus.address()),
                &[(setting::INITIAL_WINDOW_SIZE, window)],
            );
            peer.opens_windows = false;
            let streams: Vec<u32> = (0..STREAMS).map(|_| peer.next_stream()).collect();
            for stream in &streams {
                let path = format!("/app/{connection}/{stream}");
                let fields = [("accept-encoding", accept)];
                peer.send(head(
                    *stream,
                    &block(&request_with("GET", &path, &fields)),
                    true,
                ));
            }
            for stream in streams {
                let response = peer.head(stream);
                assert_eq!(response.status, 200);
                let coding = response.field("content-encoding").unwrap_or("identity");
                *codings.entry(coding.to_owned()).or_insert(0) += 1;
            }
            peer
        })
        .collect();
    (peers, codings)
}

fn megabytes_above_start(victim: &Victim) -> u64 {
    victim.resident().saturating_sub(victim.at_start) >> 20
}

/// Looks at the memory until it does not grow any more, and tells the most.
fn most_megabytes(victim: &Victim) -> u64 {
    let mut most = 0;
    let mut looks_without_growth = 0;
    wait_until("memory does not grow any more", || {
        let now = megabytes_above_start(victim);
        looks_without_growth = match now > most {
            true => 0,
            false => looks_without_growth + 1,
        };
        most = most.max(now);
        looks_without_growth > 50
    });
    most
}

fn assert_bounded(victim: &Victim) {
    let most = most_megabytes(victim);
    assert!(most < BOUND >> 20, "{most} MB more than at start");
    victim.assert_serves();
}

/// The attackers leave, and what they took goes back to the system.
fn assert_goes_back(victim: &Victim, peers: Vec<Peer<TcpStream>>) {
    drop(peers);
    wait_until("nothing is reserved any more", || {
        victim.status()["response_memory"]["used_bytes"] == 0
    });
    wait_until("memory goes back to the system", || {
        victim.assert_serves();
        megabytes_above_start(victim) < 48
    });
    victim.assert_stands();
}

#[test]
fn streams_with_shut_windows_hold_no_compressor() {
    let origin = origin();
    let victim = in_front_of(&origin, "", "");
    let (peers, codings) = stall(&victim, 0, "br");
    // An eighth of the budget is for one connection.
    assert_eq!(codings["br"], 7 * CONNECTIONS, "{codings:?}");
    assert_bounded(&victim);
    assert_goes_back(&victim, peers);
}

#[test]
fn streams_that_take_little_share_one_budget_of_compressors() {
    let origin = origin();
    let victim = in_front_of(
        &origin,
        "response_memory = 32\ncompress.brotli_level = 0",
        "",
    );
    // As many as there are in 4 MB for each connection.
    for (accept, compressed) in [("br", 7), ("zstd", 2), ("gzip", 7)] {
        let (peers, codings) = stall(&victim, 1000, accept);
        assert_eq!(codings[accept], compressed * CONNECTIONS, "{codings:?}");
        let memory = &victim.status()["response_memory"];
        assert!(
            memory["used_bytes"].as_u64().unwrap() <= 32 << 20,
            "{memory}"
        );
        assert!(memory["refused"].as_u64().unwrap() > 0, "{memory}");
        assert_bounded(&victim);
        assert_goes_back(&victim, peers);
    }
}

#[test]
fn streams_that_read_what_cannot_be_stored_share_one_budget() {
    let origin = origin();
    let victim = in_front_of(&origin, "", "cache = true");
    for accept in ["identity", "br"] {
        let (peers, _) = stall(&victim, 0, accept);
        assert_bounded(&victim);
        assert_goes_back(&victim, peers);
    }
}

/// A response whose form the client cannot do without.
fn compressed(victim: &Victim, target: &str, fields: &str) -> Received {
    victim.get(
        target,
        &format!("Accept-Encoding: zstd, identity;q=0\r\n{fields}"),
    )
}

#[test]
fn a_file_is_compressed_once_for_all_who_refuse_identity_and_want_a_few_bytes() {
    let victim = Victim::with_defaults();
    let text = text();
    victim.home.write("site/page.html", &text);
    wait_until("the metadata of the file are to be trusted", || {
        victim.get("/page.html", "").field("etag").is_some()
    });
    let part = |victim: &Victim| compressed(victim, "/page.html", "Range: bytes=0-10\r\n");
    let before = victim.ticks();
    let first = part(&victim);
    let once = victim.ticks() - before;
    assert_eq!((first.status, first.body.len()), (206, 11));
    assert_eq!(first.field("content-encoding"), Some("zstd"));
    // What is made in the background for others is not what is measured.
    let mut last = 0;
    wait_until("the best form is made", || {
        let now = victim.ticks();
        std::mem::replace(&mut last, now) == now
    });
    let before = victim.ticks();
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(part(&victim).status, 206));
        }
    });
    let again = victim.ticks() - before;
    assert!(
        again <= 2 * once + 10,
        "{again} ticks for 50 after {once} for one"
    );
    let whole = compressed(&victim, "/page.html", "");
    assert_eq!(zstd::decode_all(&whole.body[..]).unwrap(), text.as_bytes());
    victim.assert_stands();
}
