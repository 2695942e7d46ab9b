//! `SignedUrls`: links that only the application can make.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use apus::auth::SignedUrls;
use apus::session::Key;
use apus::testing::TestServer;
use apus::{App, Path};

fn key(letter: &str) -> Key {
    Key::new(letter.repeat(32)).unwrap()
}

fn server(urls: SignedUrls) -> TestServer {
    let app = App::new().group("/files", |files| {
        files
            .layer(urls)
            .get("/{name}", async |Path(name): Path<String>| name)
            .delete("/{name}", async |Path(name): Path<String>| name)
    });
    TestServer::start(app)
}

#[test]
fn only_signed_urls_are_accepted() {
    let urls = SignedUrls::new(&key("a"));
    let server = server(urls.clone());
    let client = server.client();
    for path in [
        "/files/a",
        "/files/a?",
        "/files/a?x=1&y=2",
        "/files/a%20b?x=%26signature=1",
    ] {
        let url = urls.sign(path);
        client.get(&url).send().assert_ok();
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
            let mut refused = client.get(other).send();
            refused
                .assert_status(403)
                .assert_text("the link is not valid\n");
        }
    }
    // A path that is encoded in another way is another URL.
    let url = urls.sign("/files/a");
    client
        .get(&url.replace("files", "file%73"))
        .send()
        .assert_status(403);
}

#[test]
fn a_url_expires_after_its_last_second() {
    let now = Arc::new(AtomicU64::new(1_000));
    let clock = now.clone();
    let urls = SignedUrls::new(&key("a"))
        .clock(move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed)));
    let server = server(urls.clone());
    let client = server.client();
    for path in ["/files/a", "/files/a?expires=99999"] {
        now.store(1_000, Ordering::Relaxed);
        let url = urls.sign_for(path, Duration::from_secs(60));
        for (second, status) in [(1_000, 200), (1_059, 200), (1_060, 200), (1_061, 403)] {
            now.store(second, Ordering::Relaxed);
            client.get(&url).send().assert_status(status);
        }
        client
            .get(&url)
            .send()
            .assert_text("the link has expired\n");
        client
            .get(&url.replace("=1060", "=9060"))
            .send()
            .assert_text("the link is not valid\n");
    }
}
