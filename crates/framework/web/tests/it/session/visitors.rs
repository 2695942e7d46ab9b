//! Visitors who are not logged in: they fill no store, and push out nobody who is.

use std::sync::Arc;

use apus::auth::{Csrf, CsrfToken};
use apus::session::{
    Flash, MemoryStore, RedisStore, Session, SessionKey, SessionStore, SessionWrite, Sessions,
    SqlStore,
};
use apus::sql::Db;
use apus::testing::TestClient;
use apus::{App, Redirect};
use apus_testkit::{EmptyDatabase, block_on, may_start_servers};

use super::Watched;
use crate::harness::redis;

fn app(store: impl SessionStore) -> App {
    App::new()
        .layer(Sessions::new(store))
        .layer(Csrf::new())
        .get("/form", async |token: CsrfToken| -> apus::Result<String> {
            Ok(token.token().await?)
        })
        .post(
            "/sent",
            async |session: Session| -> apus::Result<Redirect> {
                session.message("success", "sent").await?;
                Ok(Redirect::to("/done"))
            },
        )
        .get("/done", async |flash: Flash| {
            let texts = flash.messages.into_iter().map(|message| message.text);
            texts.collect::<Vec<_>>().join(" ")
        })
        .get("/long", async |session: Session| {
            session.message("info", "x".repeat(5000)).await
        })
        .get("/put", async |session: Session| {
            session.insert("language", "de")
        })
        .get("/name", async |session: Session| -> apus::Result<String> {
            Ok(session.get::<String>("user").await?.unwrap_or_default())
        })
        .post("/log-in", async |session: Session| {
            session.renew();
            session.insert("user", "Ada")
        })
}

/// A visitor who has logged in.
fn user(app: App) -> TestClient {
    let client = TestClient::new(app);
    post(&client, "/log-in").assert_status(204);
    client
}

fn post(client: &TestClient, path: &str) -> apus::testing::TestResponse {
    let token = client.get("/form").send().assert_ok().text();
    client.post(path).header("x-csrf-token", &token).send()
}

/// A new visitor for each request, as of a program that keeps no cookies.
fn strangers(store: &Arc<MemoryStore>, path: &str, count: usize) {
    let client = TestClient::new(app(store.clone()));
    for _ in 0..count {
        client.set_cookie("session", "");
        client.get(path).send();
    }
}

#[test]
fn pages_with_forms_make_no_session_for_visitors() {
    let store = Arc::new(MemoryStore::new());
    strangers(&store, "/form", 1000);
    assert!(store.is_empty());
    let visitor = TestClient::new(app(store.clone()));
    post(&visitor, "/sent").assert_redirect("/done");
    assert!(store.is_empty(), "a flash message");
    visitor.get("/done").send().assert_text("sent");
    visitor.get("/done").send().assert_text("");
    assert!(store.is_empty());
    // The form works for this visitor only.
    let other = TestClient::new(app(store.clone()));
    let token = visitor.get("/form").send().text();
    other.get("/form").send().assert_ok();
    let mut sent = other.post("/sent").header("x-csrf-token", &token).send();
    sent.assert_status(403);
}

#[test]
fn a_log_in_takes_over_what_the_cookie_of_the_visitor_has() {
    let store = Arc::new(MemoryStore::new());
    let visitor = TestClient::new(app(store.clone()));
    post(&visitor, "/sent").assert_redirect("/done");
    let before = visitor.cookie("session").unwrap();
    post(&visitor, "/log-in").assert_status(204);
    assert_eq!(store.len(), 1);
    assert_eq!(visitor.cookie("session").unwrap().len(), 43);
    visitor.get("/done").send().assert_text("sent");
    visitor.get("/name").send().assert_text("Ada");
    // The earlier cookie still belongs to a visitor.
    visitor.set_cookie("session", &before);
    visitor.get("/name").send().assert_text("");
    // So is one that somebody else has signed, or changed.
    let other = TestClient::new(app(MemoryStore::new()));
    other.get("/form").send();
    visitor.set_cookie("session", &other.cookie("session").unwrap());
    visitor.get("/done").send().assert_text("");
    assert_eq!(visitor.cookie("session"), None);
}

#[test]
fn sessions_of_visitors_do_not_log_users_out() {
    for full in [3, 4, 5] {
        let store = Arc::new(MemoryStore::new().max_sessions(full));
        let users = [(); 3].map(|()| user(app(store.clone())));
        for path in ["/form", "/put", "/long"] {
            strangers(&store, path, 20);
        }
        assert!(store.len() <= full);
        for user in &users {
            user.get("/name").send().assert_text("Ada");
        }
        // A visitor has a place only where no user needs it.
        let visitor = TestClient::new(app(store.clone()));
        let status = if full == 3 { 503 } else { 204 };
        visitor.get("/put").send().assert_status(status);
        // Another user pushes out a visitor, or else a user who expires first.
        let last = user(app(store.clone()));
        last.get("/name").send().assert_text("Ada");
    }
}

#[test]
fn what_is_too_long_for_a_cookie_is_kept_in_the_store() {
    let store = Arc::new(MemoryStore::new());
    let visitor = TestClient::new(app(store.clone()));
    visitor.get("/long").send().assert_status(204);
    assert_eq!(store.len(), 1);
    visitor.get("/done").send().assert_text(&"x".repeat(5000));
}

/// Servers that share a store accept the cookies of visitors of one another.
fn servers_share_visitors(one: impl SessionStore, other: impl SessionStore) {
    let visitor = TestClient::new(app(one));
    let token = visitor.get("/form").send().assert_ok().text();
    let again = TestClient::new(app(other));
    again.set_cookie("session", &visitor.cookie("session").unwrap());
    let mut sent = again.post("/sent").header("x-csrf-token", &token).send();
    sent.assert_redirect("/done");
}

/// Puts sessions of visitors and one of a user; returns which of the visitors are left.
fn left_of(store: &dyn SessionStore, count: u8) -> Vec<u8> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = since.unwrap().as_secs();
    let key = |number: u8| SessionKey::from_digest([number; 32]);
    let put = |key: &SessionKey, expires| {
        let save = SessionWrite {
            key,
            content: "{}",
            replaces: None,
            expires,
            now,
        };
        assert!(block_on(store.save(save)).unwrap());
    };
    let is_there = |key: &SessionKey| block_on(store.load(key, now)).unwrap().is_some();
    put(&key(0), now + 50);
    for number in 1..=count {
        put(&key(number).of_visitor(), now + 100 + u64::from(number));
        assert!(!is_there(&key(number)));
    }
    assert!(is_there(&key(0)));
    let is_left = |number: &u8| is_there(&key(*number).of_visitor());
    (1..=count).filter(is_left).collect()
}

#[test]
fn stores_that_servers_share_have_one_key_and_a_limit_for_visitors() {
    for fresh in EmptyDatabase::of_each() {
        let store = || SqlStore::new(Db::open(&fresh.address).unwrap());
        servers_share_visitors(store(), store());
        // The limit is looked at before a session is added.
        let limited = left_of(&store().max_visitors(3), 6);
        assert_eq!(limited, [4, 5, 6]);
    }
    if may_start_servers() {
        let store = |prefix: &str| RedisStore::new(&redis()).prefix(prefix);
        servers_share_visitors(store("shared:"), store("shared:"));
        let limited = left_of(&store("limited:").max_visitors(3), 6);
        assert_eq!(limited, [4, 5, 6]);
    }
    let memory = Arc::new(MemoryStore::new());
    servers_share_visitors(memory.clone(), memory);
    assert_eq!(left_of(&MemoryStore::new().max_sessions(4), 6), [4, 5, 6]);
    // A store of the application needs no method for it.
    let own = Watched::default();
    servers_share_visitors(own.clone(), own);
}
