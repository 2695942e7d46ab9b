//! The chapter of sessions.

use std::time::Duration;

use apus::session::{EncryptedCookie, Key, MemoryStore, Session, SessionBackend, Sessions};
use apus::testing::TestClient;
use apus::{App, Sse};

fn app(place: impl Into<SessionBackend>) -> App {
    App::new()
        .layer(Sessions::new(place))
        .get("/count", async |session: Session| -> apus::Result<String> {
            let count = session.get::<u32>("count").await?.unwrap_or(0) + 1;
            session.insert("count", count)?;
            Ok(count.to_string())
        })
        .post("/log-out", async |session: Session| session.destroy())
        .get("/events", async |session: Session| {
            Sse::run(async move |mut events| {
                // The head of the response has been sent.
                events.send("begin").await;
                session.insert("count", 100).unwrap();
                session.save().await.unwrap();
                events.send("stored").await;
            })
        })
}

#[test]
fn by_default_a_session_ends_two_hours_after_its_last_use() {
    let client = TestClient::new(app(MemoryStore::new()));
    let clock = client.clock();
    clock.freeze();
    client.get("/count").send().assert_text("1");
    clock.advance(Duration::from_secs(2 * 60 * 60 - 1));
    client.get("/count").send().assert_text("2");
    clock.advance(Duration::from_secs(2 * 60 * 60));
    client.get("/count").send().assert_text("1");
}

#[test]
fn by_default_a_session_ends_a_day_after_it_began() {
    let client = TestClient::new(app(MemoryStore::new()));
    let clock = client.clock();
    clock.freeze();
    for hour in 1..=24 {
        client.get("/count").send().assert_text(&hour.to_string());
        clock.advance(Duration::from_secs(60 * 60));
    }
    client.get("/count").send().assert_text("1");
}

#[test]
fn a_stream_stores_its_changes_by_save() {
    let client = TestClient::new(app(MemoryStore::new()));
    client.get("/count").send().assert_text("1");
    let mut events = client.get("/events").send();
    events.assert_event("begin").assert_event("stored");
    client.get("/count").send().assert_text("101");
}

#[test]
fn an_old_cookie_restores_a_session_in_a_cookie_and_not_one_of_a_store() {
    let key = Key::new("a secret of at least thirty-two bytes").unwrap();
    for (place, restored) in [
        (SessionBackend::from(EncryptedCookie::new(&key)), "2"),
        (SessionBackend::from(MemoryStore::new()), "1"),
    ] {
        let client = TestClient::new(app(place));
        client.get("/count").send().assert_text("1");
        let cookie = client.cookie("session").unwrap();
        client.post("/log-out").send();
        assert_eq!(client.cookie("session"), None);
        client.set_cookie("session", &cookie);
        client.get("/count").send().assert_text(restored);
    }
}
