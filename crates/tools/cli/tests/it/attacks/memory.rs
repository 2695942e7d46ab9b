//! Memory and CPU time for clients that read nothing: streams with a compressor or a shared response each,
//! and compression that many clients request at once.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use apus_testkit::h2::{block, head, request_with, setting};

use super::Victim;
use crate::h2_client::Peer;
use crate::harness::{connect, wait_until};
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::wire::Received;

/// The connections of an attacker, and the streams of each.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 256;

/// The bound in SECURITY.md for this many streams: the budget of responses, and a piece for each stream.
const BOUND: u64 = (128 + 64) << 20;

/// Three megabytes of text that compresses moderately.
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

/// An origin that responds to every request with that text.
fn origin() -> ScriptedOrigin {
    let text = Arc::new(text());
    ScriptedOrigin::start(move |connection| {
        while connection.read_request().is_some() {
            connection.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=60\r\n\
                 Content-Length: {}\r\n\r\n",
                text.len()
            ));
            connection.send(text.as_bytes());
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

/// Opens streams with this window and reads the heads of their responses. Returns the connections and the
/// number of responses by content coding.
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

/// Samples the memory until it does not grow any more, and returns the maximum.
fn most_megabytes(victim: &Victim) -> u64 {
    let mut most = 0;
    let mut samples_without_growth = 0;
    wait_until("memory does not grow any more", || {
        let now = megabytes_above_start(victim);
        samples_without_growth = if now > most {
            0
        } else {
            samples_without_growth + 1
        };
        most = most.max(now);
        samples_without_growth > 50
    });
    most
}

fn assert_bounded(victim: &Victim) {
    let most = most_megabytes(victim);
    assert!(most < BOUND >> 20, "{most} MB more than at start");
    victim.assert_serves();
}

/// Closes the connections and waits until their memory is freed.
fn assert_freed(victim: &Victim, peers: Vec<Peer<TcpStream>>) {
    drop(peers);
    wait_until("nothing is reserved any more", || {
        victim.status()["response_memory"]["used_bytes"] == 0
    });
    wait_until("the memory is returned to the system", || {
        victim.assert_serves();
        megabytes_above_start(victim) < 48
    });
    victim.assert_healthy();
}

#[test]
fn streams_with_closed_windows_hold_a_bounded_number_of_compressors() {
    let origin = origin();
    let victim = in_front_of(&origin, "", "");
    let (peers, codings) = stall(&victim, 0, "br");
    // Each connection may use an eighth of the budget.
    assert_eq!(codings["br"], 7 * CONNECTIONS, "{codings:?}");
    assert_bounded(&victim);
    assert_freed(&victim, peers);
}

#[test]
fn compressors_of_slow_streams_share_one_memory_budget() {
    let origin = origin();
    let victim = in_front_of(
        &origin,
        "response_memory = 32\ncompress.brotli_level = 0",
        "",
    );
    // The numbers of compressors that fit into 4 MB for each connection.
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
        assert_freed(&victim, peers);
    }
}

#[test]
fn streams_that_read_uncacheable_responses_share_one_memory_budget() {
    let origin = origin();
    let victim = in_front_of(&origin, "", "cache = true");
    for accept in ["identity", "br"] {
        let (peers, _) = stall(&victim, 0, accept);
        assert_bounded(&victim);
        assert_freed(&victim, peers);
    }
}

/// The compressed response to a client that does not accept identity.
fn compressed(victim: &Victim, target: &str, fields: &str) -> Received {
    victim.get(
        target,
        &format!("Accept-Encoding: zstd, identity;q=0\r\n{fields}"),
    )
}

#[test]
fn a_file_is_compressed_once_for_all_range_requests_that_refuse_identity() {
    let victim = Victim::with_defaults();
    let text = text();
    victim.home.write("site/page.html", &text);
    wait_until("the file has an entity tag", || {
        victim.get("/page.html", "").field("etag").is_some()
    });
    let part = |victim: &Victim| compressed(victim, "/page.html", "Range: bytes=0-10\r\n");
    let before = victim.ticks();
    let first = part(&victim);
    let once = victim.ticks() - before;
    assert_eq!((first.status, first.body.len()), (206, 11));
    assert_eq!(first.field("content-encoding"), Some("zstd"));
    // The compression in the background is not part of the measurement.
    let mut last = 0;
    wait_until("the server is idle", || {
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
    victim.assert_healthy();
}
