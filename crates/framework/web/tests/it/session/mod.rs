//! Sessions, in process.

mod cookies;
mod stores;
mod visitors;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use apus::session::{
    MemoryStore, Session, SessionKey, SessionStore, SessionWrite, Sessions, StoreError,
    StoreFuture, StoredSession,
};
use apus::testing::TestClient;
use apus::{App, Next, Query, Request, Response, ServiceFactory};
use serde::Deserialize;

use apus_testkit::{Reply, block_on, get};

/// A memory store that records its calls.
#[derive(Clone, Default)]
struct Watched {
    memory: Arc<MemoryStore>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    /// The calls since the last call of this method.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn record(&self, what: impl Into<String>) {
        self.calls.lock().unwrap().push(what.into());
    }
}

impl SessionStore for Watched {
    fn load<'a>(&'a self, key: &'a SessionKey, now: u64) -> StoreFuture<'a, Option<StoredSession>> {
        self.record("load");
        self.memory.load(key, now)
    }

    fn save<'a>(&'a self, save: SessionWrite<'a>) -> StoreFuture<'a, bool> {
        self.record(format!("save {} {}", save.key, save.content));
        self.memory.save(save)
    }

    fn touch<'a>(&'a self, key: &'a SessionKey, expires: u64) -> StoreFuture<'a, ()> {
        self.record("touch");
        self.memory.touch(key, expires)
    }

    fn remove<'a>(&'a self, key: &'a SessionKey, version: Option<u64>) -> StoreFuture<'a, bool> {
        self.record("remove");
        self.memory.remove(key, version)
    }
}

/// A clock that only [`Clock::forward`] advances.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000)))
    }

    fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }

    fn of(&self, sessions: Sessions) -> Sessions {
        let clock = self.0.clone();
        sessions.clock(move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed)))
    }
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    value: Option<String>,
}

/// An application whose routes read and change the session.
fn app(sessions: Sessions) -> App {
    App::new()
        .layer(sessions)
        .get("/plain", async || "plain")
        .get("/idle", async |_: Session| "nothing read")
        .get(
            "/get",
            async |session: Session, Query(pair): Query<Pair>| -> apus::Result<_> {
                Ok(session.get::<String>(&pair.name).await?.unwrap_or_default())
            },
        )
        .get(
            "/set",
            async |session: Session, Query(pair): Query<Pair>| -> apus::Result<_> {
                Ok(session.insert(&pair.name, pair.value)?)
            },
        )
        .get(
            "/remove",
            async |session: Session, Query(pair): Query<Pair>| {
                session.remove(&pair.name);
            },
        )
        .get("/number", async |session: Session| -> apus::Result<_> {
            Ok(session.get::<u32>("a").await?.unwrap_or(0).to_string())
        })
        .get("/flash", async |session: Session| {
            session.flash("notice", "saved").unwrap()
        })
        .get("/flashed", async |session: Session| -> apus::Result<_> {
            Ok(session
                .take_flash::<String>("notice")
                .await?
                .unwrap_or_default())
        })
        .get("/renew", async |session: Session| session.renew())
        .get("/destroy", async |session: Session| session.destroy())
        .get("/switch", async |session: Session| -> apus::Result<_> {
            session.destroy();
            session.insert("a", "of the new one")?;
            Ok(session.get::<String>("b").await?.unwrap_or_default())
        })
}

fn visitor(store: impl SessionStore) -> TestClient {
    TestClient::new(app(Sessions::new(store)))
}

#[test]
fn a_session_begins_with_its_first_value_and_ends_with_its_last() {
    let store = Watched::default();
    let visitor = visitor(store.clone());
    visitor
        .get("/get?name=a")
        .send()
        .assert_text("")
        .assert_no_header("set-cookie");
    visitor.get("/set?name=a&value=1").send().assert_status(204);
    visitor
        .get("/set?name=b&value=2")
        .send()
        .assert_no_header("set-cookie");
    visitor.get("/get?name=a").send().assert_text("1");
    visitor.get("/get?name=b").send().assert_text("2");
    visitor.get("/remove?name=a").send();
    visitor.get("/get?name=a").send().assert_text("");
    visitor.get("/remove?name=b").send();
    assert_eq!(visitor.cookie("session"), None);
    assert!(store.memory.is_empty());
}

#[test]
fn the_cookie_is_http_only_and_has_the_host_prefix() {
    let app = app(Sessions::new(MemoryStore::new()));
    let service = app.service();
    let reply = get("/set?name=a&value=1").of(&service);
    let line = reply.field("set-cookie").unwrap();
    let (id, attributes) = line.split_once(';').unwrap();
    // The id of a visitor who is not logged in has a letter before it.
    assert_eq!(id.len(), "session=".len() + 44, "{id}");
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax");
    let reply = get("/set?name=a&value=1")
        .tls(&["example.com"])
        .of(&service);
    let line = reply.field("set-cookie").unwrap();
    let (id, attributes) = line.split_once(';').unwrap();
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax; Secure");
    let (name, id) = id.split_once('=').unwrap();
    assert_eq!(name, "__Host-session");
    // Over TLS, another host may have set a cookie without the prefix.
    for (cookie, found) in [
        (format!("session={id}"), ""),
        (format!("__Host-session={id}"), "1"),
    ] {
        let request = get("/get?name=a")
            .tls(&["example.com"])
            .with("cookie", &cookie);
        assert_eq!(request.of(&service).text(), found, "{cookie}");
    }
}

#[test]
fn the_layer_sets_the_cookie_attributes() {
    let sessions = Sessions::new(MemoryStore::new())
        .cookie_name("shop")
        .strict()
        .persistent()
        .absolute(Duration::from_secs(600))
        .always_secure();
    let reply = get("/set?name=a&value=1").to(&app(sessions));
    let line = reply.field("set-cookie").unwrap();
    assert!(line.starts_with("__Host-shop="), "{line}");
    assert!(
        line.ends_with("; SameSite=Strict; Secure; Max-Age=600"),
        "{line}"
    );
}

#[test]
fn the_store_is_not_used_without_a_session() {
    let store = Watched::default();
    let visitor = visitor(store.clone());
    for path in [
        "/plain",
        "/idle",
        "/get?name=a",
        "/remove?name=a",
        "/renew",
        "/destroy",
    ] {
        visitor.get(path).send();
        assert!(store.calls().is_empty(), "{path} without a session");
    }
    visitor.get("/set?name=a&value=1").send();
    store.calls();
    for path in ["/plain", "/idle"] {
        visitor.get(path).send();
        assert!(store.calls().is_empty(), "{path} with a session");
    }
}

#[test]
fn an_unchanged_session_is_not_written() {
    let store = Watched::default();
    let visitor = visitor(store.clone());
    visitor.get("/set?name=a&value=1").send();
    store.calls();
    for path in ["/get?name=a", "/set?name=a&value=1", "/remove?name=b"] {
        visitor.get(path).send().assert_no_header("set-cookie");
        assert_eq!(store.calls(), ["load"], "{path}");
    }
}

#[test]
fn no_future_is_needed_without_a_write() {
    let app = App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .get("/read", |_: Session| "read")
        .get("/write", |session: Session| session.insert("a", 1).unwrap());
    let service = app.service();
    let now = service.call(get("/read").request());
    assert!(matches!(now, apus::ResponseFuture::Now(_)), "{now:?}");
    let later = service.call(get("/write").request());
    assert!(matches!(later, apus::ResponseFuture::Later(_)), "{later:?}");
}

#[test]
fn stores_get_only_a_digest_of_the_id() {
    let store = Watched::default();
    let visitor = visitor(store.clone());
    visitor.get("/set?name=a&value=1").send();
    let id = visitor.cookie("session").unwrap();
    let calls = store.calls().join("\n");
    assert!(!calls.contains(&id), "{calls}");
    // The key in a store is not a valid cookie.
    let key = calls.split(' ').nth(1).unwrap();
    visitor.set_cookie("session", key);
    visitor.get("/get?name=a").send().assert_text("");
}

#[test]
fn an_unknown_id_is_not_accepted() {
    let visitor = visitor(MemoryStore::new());
    let planted = "A".repeat(43);
    visitor.set_cookie("session", &planted);
    visitor.get("/set?name=a&value=1").send();
    assert_ne!(visitor.cookie("session").unwrap(), planted);
    for nonsense in [planted.as_str(), "x", "", "%00", &"A".repeat(5000)] {
        visitor.set_cookie("session", nonsense);
        visitor.get("/get?name=a").send().assert_text("");
        assert_eq!(visitor.cookie("session"), None, "{nonsense:?} is removed");
    }
}

#[test]
fn renewal_changes_the_id_and_invalidates_the_old_one() {
    let store = Watched::default();
    let visitor = visitor(store.clone());
    visitor.get("/set?name=a&value=1").send();
    let old = visitor.cookie("session").unwrap();
    visitor.get("/renew").send();
    assert_ne!(visitor.cookie("session").unwrap(), old);
    visitor.get("/get?name=a").send().assert_text("1");
    assert_eq!(store.memory.len(), 1);
    visitor.set_cookie("session", &old);
    visitor.get("/get?name=a").send().assert_text("");
}

#[test]
fn log_out_removes_the_session() {
    let store = Watched::default();
    let visitor = visitor(store.clone());
    visitor.get("/set?name=a&value=1").send();
    let old = visitor.cookie("session").unwrap();
    visitor.get("/destroy").send();
    assert_eq!(visitor.cookie("session"), None);
    assert!(store.memory.is_empty());
    visitor.set_cookie("session", &old);
    visitor.get("/get?name=a").send().assert_text("");
    // Values that are set afterwards belong to another session.
    visitor.get("/set?name=b&value=2").send();
    let old = visitor.cookie("session").unwrap();
    visitor.get("/switch").send().assert_text("");
    assert_ne!(visitor.cookie("session").unwrap(), old);
    visitor
        .get("/get?name=a")
        .send()
        .assert_text("of the new one");
    visitor.get("/get?name=b").send().assert_text("");
}

#[test]
fn a_flash_value_is_read_once() {
    let visitor = visitor(MemoryStore::new());
    visitor.get("/flash").send();
    visitor.get("/flashed").send().assert_text("saved");
    visitor.get("/flashed").send().assert_text("");
}

#[test]
fn a_session_ends_when_it_is_not_used_and_when_it_is_old() {
    let clock = Clock::new();
    let store = Watched::default();
    let sessions = Sessions::new(store.clone())
        .idle(Duration::from_secs(100))
        .absolute(Duration::from_secs(250));
    let visitor = TestClient::new(app(clock.of(sessions)));
    visitor.get("/set?name=a&value=1").send();
    clock.forward(9);
    store.calls();
    visitor.get("/get?name=a").send().assert_text("1");
    assert_eq!(store.calls(), ["load"], "too early to be worth a write");
    clock.forward(90);
    visitor.get("/get?name=a").send().assert_text("1");
    assert_eq!(store.calls(), ["load", "touch"]);
    clock.forward(99);
    visitor.get("/get?name=a").send().assert_text("1");
    clock.forward(51);
    visitor.get("/get?name=a").send().assert_text("1");
    // The session is 249 seconds old, and was just used.
    clock.forward(1);
    visitor.get("/get?name=a").send().assert_text("");
    visitor.get("/set?name=a&value=2").send();
    clock.forward(100);
    visitor.get("/get?name=a").send().assert_text("");
}

#[test]
fn renewal_restarts_the_lifetime() {
    let clock = Clock::new();
    let sessions = Sessions::new(MemoryStore::new())
        .idle(Duration::from_secs(1000))
        .absolute(Duration::from_secs(100));
    let visitor = TestClient::new(app(clock.of(sessions)));
    visitor.get("/set?name=a&value=1").send();
    clock.forward(99);
    visitor.get("/renew").send();
    clock.forward(99);
    visitor.get("/get?name=a").send().assert_text("1");
    clock.forward(1);
    visitor.get("/get?name=a").send().assert_text("");
}

#[test]
fn responses_with_a_session_are_private() {
    let visitor = visitor(MemoryStore::new());
    visitor
        .get("/plain")
        .send()
        .assert_no_header("cache-control");
    let own = "no-cache, private";
    visitor
        .get("/get?name=a")
        .send()
        .assert_header("cache-control", own);
    visitor
        .get("/set?name=a&value=1")
        .send()
        .assert_header("cache-control", own);
}

#[test]
fn values_of_another_type_and_too_long_sessions_are_errors() {
    let sessions = Sessions::new(MemoryStore::new()).max_bytes(200);
    let visitor = TestClient::new(app(sessions));
    visitor.get("/set?name=a&value=text").send();
    visitor.get("/number").send().assert_status(500);
    let long = "x".repeat(200);
    visitor
        .get(&format!("/set?name=b&value={long}"))
        .send()
        .assert_status(500);
    visitor.get("/get?name=a").send().assert_text("text");
    visitor.get("/get?name=b").send().assert_text("");
}

/// A store whose operations fail.
struct Broken;

fn failed<'a, T: 'a>() -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(StoreError::new("gone"))))
}

impl SessionStore for Broken {
    fn load<'a>(&'a self, _: &'a SessionKey, _: u64) -> StoreFuture<'a, Option<StoredSession>> {
        failed()
    }

    fn save<'a>(&'a self, _: SessionWrite<'a>) -> StoreFuture<'a, bool> {
        failed()
    }

    fn touch<'a>(&'a self, _: &'a SessionKey, _: u64) -> StoreFuture<'a, ()> {
        failed()
    }

    fn remove<'a>(&'a self, _: &'a SessionKey, _: Option<u64>) -> StoreFuture<'a, bool> {
        failed()
    }
}

#[test]
fn a_store_that_fails_is_a_503() {
    let visitor = visitor(Broken);
    visitor.get("/plain").send().assert_text("plain");
    visitor
        .get("/set?name=a&value=1")
        .send()
        .assert_status(503)
        .assert_header("retry-after", "5")
        .assert_no_header("set-cookie");
    visitor.set_cookie("session", &"A".repeat(43));
    visitor.get("/plain").send().assert_text("plain");
    visitor.get("/get?name=a").send().assert_status(503);
    visitor.get("/destroy").send().assert_status(503);
}

/// Sends two requests of one session. The first one reads `a`, waits for the response to the other
/// one, and then sets `c`.
fn with_concurrent_request(other: &str) -> (SharedMemoryStore, String) {
    let store = Arc::new(MemoryStore::new());
    let gate = Arc::new(tokio::sync::Notify::new());
    let waits = gate.clone();
    let app = app(Sessions::new(store.clone())).get("/slow", move |session: Session| {
        let waits = waits.clone();
        async move {
            let _: Option<String> = session.get("a").await.unwrap();
            waits.notified().await;
            session.insert("c", "slow").unwrap();
        }
    });
    let service = app.service();
    let cookie = |reply: &Reply| {
        let line = reply.field("set-cookie").unwrap();
        line.split(';').next().unwrap().to_owned()
    };
    let id = cookie(&get("/set?name=a&value=1").of(&service));
    let first = Rc::new(RefCell::new(None));
    block_on(async {
        let slow = service.call(get("/slow").with("cookie", &id).request());
        let result = first.clone();
        let slow = tokio::task::spawn_local(async move {
            *result.borrow_mut() = Some(Reply::read(slow.wait().await).await);
        });
        // The first request reads before it waits.
        tokio::task::yield_now().await;
        let fast = service.call(get(other).with("cookie", &id).request());
        Reply::read(fast.wait().await).await;
        gate.notify_one();
        slow.await.unwrap();
    });
    assert_eq!(first.borrow().as_ref().unwrap().status, 204);
    let show = |name: &str| {
        let request = get(&format!("/get?name={name}")).with("cookie", &id);
        request.of(&service).text().to_owned()
    };
    let text = ["a", "b", "c"].map(show).join(",");
    (store, text)
}

type SharedMemoryStore = Arc<MemoryStore>;

#[test]
fn concurrent_requests_keep_each_others_changes() {
    let (_, text) = with_concurrent_request("/set?name=b&value=fast");
    assert_eq!(text, "1,fast,slow");
    let (_, text) = with_concurrent_request("/set?name=a&value=fast");
    assert_eq!(text, "fast,,slow");
    let (_, text) = with_concurrent_request("/set?name=c&value=fast");
    assert_eq!(text, "1,,slow", "the later write of one value stays");
}

#[test]
fn a_session_that_was_ended_meanwhile_stays_ended() {
    for other in ["/destroy", "/renew"] {
        let (store, text) = with_concurrent_request(other);
        assert_eq!(text, ",,", "{other}");
        assert_eq!(store.len(), usize::from(other == "/renew"));
    }
}

#[test]
fn many_requests_of_one_session_lose_nothing() {
    let store = Arc::new(MemoryStore::new());
    let service = app(Sessions::new(store)).service();
    let reply = get("/set?name=a&value=1").of(&service);
    let line = reply.field("set-cookie").unwrap();
    let id = line.split(';').next().unwrap().to_owned();
    block_on(async {
        let mut running = Vec::new();
        for number in 0..10 {
            let target = format!("/set?name=n{number}&value={number}");
            let response = service.call(get(&target).with("cookie", &id).request());
            running.push(tokio::task::spawn_local(response.wait()));
        }
        for one in running {
            assert_eq!(one.await.unwrap().status(), 204);
        }
    });
    for number in 0..10 {
        let request = get(&format!("/get?name=n{number}")).with("cookie", &id);
        assert_eq!(request.of(&service).text(), number.to_string());
    }
}

#[test]
fn middleware_can_use_the_session() {
    async fn members(request: Request, next: Next) -> apus::Result<Response> {
        let session = Session::of(&request).unwrap();
        if session.get::<String>("a").await?.is_none() {
            return Err(apus::Error::of(apus::StatusCode::FORBIDDEN));
        }
        Ok(next.run(request).await)
    }
    let inner = App::new().layer(members).get("/", async || "members only");
    let visitor = TestClient::new(app(Sessions::new(MemoryStore::new())).nest("/members", inner));
    visitor.get("/members").send().assert_status(403);
    visitor.get("/set?name=a&value=1").send();
    visitor.get("/members").send().assert_text("members only");
}

#[test]
fn without_the_layer_a_session_is_a_500() {
    let app = App::new().get("/", async |_: Session| "never");
    // A check of the application finds it before.
    assert!(app.check().is_err());
    TestClient::of(app).get("/").send().assert_status(500);
}
