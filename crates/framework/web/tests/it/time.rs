//! The clock of an application, which tests freeze and move.

use std::time::Duration;

use apus::App;
use apus::session::{EncryptedCookie, Key, MemoryStore, Session, SessionBackend, Sessions};
use apus::testing::{TestClient, TestServer};
use apus::time::unix_seconds;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn sessions_follow_the_clock() {
    async fn count(session: Session) -> apus::Result<String> {
        let visits = session.get::<u32>("visits").await?.unwrap_or(0) + 1;
        session.insert("visits", visits)?;
        Ok(visits.to_string())
    }
    let key = Key::random().unwrap();
    let backends: [SessionBackend; 2] =
        [MemoryStore::new().into(), EncryptedCookie::new(&key).into()];
    for backend in backends {
        let sessions = Sessions::new(backend).idle(MINUTE * 30);
        let client = TestClient::new(App::new().layer(sessions).get("/", count));
        client.clock().freeze();
        client.get("/").send().assert_text("1");
        client.clock().advance(MINUTE * 29);
        client.get("/").send().assert_text("2");
        client.clock().advance(MINUTE * 31);
        client.get("/").send().assert_text("1");
    }
}

#[test]
fn the_workers_of_a_test_server_follow_the_clock_and_other_tests_do_not() {
    let app = || App::new().get("/", async || unix_seconds().to_string());
    let server = TestServer::with_workers(app(), 2);
    let clock = server.client().clock();
    clock.freeze();
    clock.advance(MINUTE * 60);
    let expected = clock.now().duration_since(std::time::UNIX_EPOCH).unwrap();
    for _ in 0..6 {
        let text = expected.as_secs().to_string();
        server.client().get("/").send().assert_text(&text);
    }
    let there = std::thread::spawn(move || {
        let mut response = TestServer::start(app()).client().get("/").send();
        response.text().parse::<u64>().unwrap()
    });
    assert!(there.join().unwrap() < expected.as_secs() - 3000);
}
