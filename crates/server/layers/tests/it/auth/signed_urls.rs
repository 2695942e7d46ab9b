//! `SignedUrls`: links that only the application can make.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use apus_clock::TestClock;
use apus_handler::Path;
use apus_http::Method;
use apus_layers::auth::{Key, SignedUrls};
use apus_testkit::{LocalClient, get};

use crate::harness::Routes;

fn key(letter: &str) -> Key {
    Key::new(letter.repeat(32)).unwrap()
}

fn client(urls: SignedUrls) -> LocalClient {
    let name = async |Path(name): Path<String>| name;
    let files =
        Routes::new()
            .layer(urls)
            .get("/{name}", name)
            .route(Method::DELETE, "/{name}", name);
    LocalClient::of(&Routes::new().nest("/files", files))
}

#[test]
fn only_signed_urls_are_accepted() {
    let urls = SignedUrls::new(&key("a"));
    let client = client(urls.clone());
    for path in [
        "/files/a",
        "/files/a?",
        "/files/a?x=1&y=2",
        "/files/a%20b?x=%26signature=1",
    ] {
        let url = urls.sign(path);
        assert_eq!(client.send(get(&url)).status, 200);
        let changed = [
            path.to_owned(),
            url.replace("/files/a", "/files/b"),
            url.replace("x=", "z="),
            format!("{url}&more=1"),
            format!("{url}A"),
            url.replace("signature=", "Signature="),
            url.trim_end_matches(|letter| letter != '=').to_owned(),
            SignedUrls::new(&key("b")).sign(path),
        ];
        for other in changed.iter().filter(|other| **other != url) {
            let refused = client.send(get(other));
            let seen = (refused.status, refused.text());
            assert_eq!(seen, (403, "the link is not valid\n"), "{other}");
        }
    }
    // A path that is encoded in another way is another URL.
    let url = urls.sign("/files/a");
    let encoded = url.replace("files", "file%73");
    assert_eq!(client.send(get(&encoded)).status, 403);
}

#[test]
fn a_url_expires_after_its_last_second() {
    let now = Arc::new(AtomicU64::new(1_000));
    let clock = now.clone();
    let urls = SignedUrls::new(&key("a"))
        .clock(move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed)));
    let client = client(urls.clone());
    for path in ["/files/a", "/files/a?expires=99999"] {
        now.store(1_000, Ordering::Relaxed);
        let url = urls.sign_for(path, Duration::from_secs(60));
        for (second, status) in [(1_000, 200), (1_059, 200), (1_060, 200), (1_061, 403)] {
            now.store(second, Ordering::Relaxed);
            assert_eq!(client.send(get(&url)).status, status, "{second}");
        }
        let reply = client.send(get(&url));
        assert_eq!(reply.text(), "the link has expired\n");
        let reply = client.send(get(&url.replace("=1060", "=9060")));
        assert_eq!(reply.text(), "the link is not valid\n");
    }
}

#[test]
fn signed_urls_follow_the_clock() {
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze();
    let urls = SignedUrls::new(&key("a"));
    let link = urls.sign_for("/files/a", Duration::from_secs(60));
    let client = client(urls);
    assert_eq!(client.send(get(&link)).status, 200);
    clock.advance(Duration::from_secs(61));
    assert_eq!(client.send(get(&link)).status, 403);
}
