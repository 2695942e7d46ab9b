//! The contract of session stores, and each store behind a server.

use apus::redis::Redis;
use apus::session::{
    MemoryStore, RedisStore, Session, SessionKey, SessionStore, SessionWrite, Sessions, SqlStore,
    StoredSession,
};
use apus::sql::{Db, sqlx};
use apus::testing::{TestClient, TestServer};
use apus::{App, State};
use apus_testkit::{DatabaseKind, DatabaseServer, EmptyDatabase, block_on};

use crate::harness::redis;

fn key_of(byte: u8) -> SessionKey {
    SessionKey::from_digest([byte; 32])
}

async fn put(
    store: &dyn SessionStore,
    key: &SessionKey,
    content: &str,
    replaces: Option<u64>,
    (now, expires): (u64, u64),
) -> bool {
    let save = SessionWrite {
        key,
        content,
        replaces,
        expires,
        now,
    };
    store.save(save).await.unwrap()
}

/// Tests the whole contract. Times are real, since Redis uses its own clock.
fn keeps_the_contract(store: &dyn SessionStore) {
    block_on(async {
        let [key, other] = [key_of(1), key_of(2)];
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let times = (now, now + 100);
        assert_eq!(store.load(&key, now).await.unwrap(), None);
        assert!(
            !put(store, &key, "{}", Some(1), times).await,
            "nothing to replace"
        );
        assert!(put(store, &key, "{\"a\":\"ü\"}", None, times).await);
        assert!(put(store, &other, "{}", None, times).await);
        let stored = store.load(&key, now).await.unwrap().unwrap();
        assert_eq!((&*stored.content, stored.version), ("{\"a\":\"ü\"}", 1));
        assert!(
            (now + 99..=now + 101).contains(&stored.expires),
            "{stored:?}"
        );
        assert!(
            !put(store, &key, "{}", Some(2), times).await,
            "another version"
        );
        assert!(put(store, &key, "{\"b\":1}", Some(1), times).await);
        assert!(
            !put(store, &key, "{}", Some(1), times).await,
            "an old version"
        );
        let StoredSession {
            content, version, ..
        } = store.load(&key, now).await.unwrap().unwrap();
        assert_eq!((&*content, version), ("{\"b\":1}", 2));
        store.touch(&key, now + 500).await.unwrap();
        let touched = store.load(&key, now).await.unwrap().unwrap();
        assert!(
            (now + 499..=now + 501).contains(&touched.expires),
            "{touched:?}"
        );
        assert_eq!(touched.version, 2);
        assert!(!store.remove(&key, Some(1)).await.unwrap());
        assert!(store.remove(&key, Some(2)).await.unwrap());
        assert!(!store.remove(&key, None).await.unwrap());
        assert_eq!(store.load(&key, now).await.unwrap(), None);
        assert!(store.load(&other, now).await.unwrap().is_some());
        assert!(store.remove(&other, None).await.unwrap());
        // An expired session is not loaded.
        assert!(put(store, &key, "{}", None, (now - 10, now - 5)).await);
        assert_eq!(store.load(&key, now).await.unwrap(), None);
    });
}

#[test]
fn memory_keeps_the_contract() {
    keeps_the_contract(&MemoryStore::new());
}

#[test]
fn databases_keep_the_contract() {
    for fresh in EmptyDatabase::of_each() {
        keeps_the_contract(&SqlStore::new(Db::open(&fresh.address).unwrap()));
    }
}

#[test]
fn redis_keeps_the_contract() {
    keeps_the_contract(&RedisStore::new(&redis()).prefix("contract:"));
}

fn app(store: impl SessionStore) -> App {
    App::new()
        .layer(Sessions::new(store))
        .get("/", async |session: Session| -> apus::Result<String> {
            let visits = session.get::<u32>("visits").await?.unwrap_or(0) + 1;
            session.insert("visits", visits)?;
            Ok(visits.to_string())
        })
        .post("/login", async |session: Session| session.renew())
        .post("/logout", async |session: Session| session.destroy())
}

fn visits(store: impl SessionStore) {
    let server = TestServer::with_workers(app(store), 2);
    let visitor = server.client();
    visitor.get("/").send().assert_text("1");
    visitor.get("/").send().assert_text("2");
    let before = visitor.cookie("session").unwrap();
    visitor.post("/login").send().assert_status(204);
    let after = visitor.cookie("session").unwrap();
    assert_ne!(before, after);
    // New connections reach both workers sooner or later.
    for expected in 3..9 {
        let again = server.client();
        again.set_cookie("session", &after);
        again.get("/").send().assert_text(&expected.to_string());
    }
    server.client().get("/").send().assert_text("1");
    let old = server.client();
    old.set_cookie("session", &before);
    old.get("/").send().assert_text("1");
    visitor.post("/logout").send().assert_status(204);
    assert_eq!(visitor.cookie("session"), None);
    visitor.set_cookie("session", &after);
    visitor.get("/").send().assert_text("1");
}

#[test]
fn sessions_work_in_memory() {
    visits(MemoryStore::new());
}

#[test]
fn sessions_work_in_databases() {
    for fresh in EmptyDatabase::of_each() {
        visits(SqlStore::new(Db::open(&fresh.address).unwrap()));
    }
}

#[test]
fn sessions_work_in_redis() {
    visits(RedisStore::new(&redis()));
}

#[test]
fn without_redis_only_requests_that_need_a_session_fail() {
    let redis = DatabaseServer::start(DatabaseKind::Redis);
    let store = RedisStore::new(&Redis::open(&redis.address()).unwrap());
    let server = TestServer::start(app(store).get("/plain", async || "plain"));
    let visitor = server.client();
    visitor.get("/").send().assert_text("1");
    drop(redis);
    visitor.get("/plain").send().assert_text("plain");
    visitor.get("/").send().assert_status(503);
}

#[test]
fn sessions_in_a_database_survive_the_application() {
    for fresh in EmptyDatabase::of_each() {
        let server = TestServer::start(app(SqlStore::new(Db::open(&fresh.address).unwrap())));
        let visitor = server.client();
        visitor.get("/").send().assert_text("1");
        let cookie = visitor.cookie("session").unwrap();
        drop(server);
        let server = TestServer::start(app(SqlStore::new(Db::open(&fresh.address).unwrap())));
        let visitor = server.client();
        visitor.set_cookie("session", &cookie);
        visitor.get("/").send().assert_text("2");
    }
}

#[test]
fn memory_is_limited_and_the_first_to_expire_is_removed() {
    let store = MemoryStore::new().max_sessions(2);
    block_on(async {
        assert!(put(&store, &key_of(1), "{}", None, (0, 300)).await);
        assert!(put(&store, &key_of(2), "{}", None, (0, 200)).await);
        store.touch(&key_of(2), 400).await.unwrap();
        assert!(put(&store, &key_of(3), "{}", None, (0, 350)).await);
        assert_eq!(store.len(), 2);
        assert_eq!(store.load(&key_of(1), 0).await.unwrap(), None);
        // Expired sessions are removed first.
        assert!(put(&store, &key_of(4), "{}", None, (390, 900)).await);
        assert!(store.load(&key_of(2), 390).await.unwrap().is_some());
        assert_eq!(store.len(), 2);
    });
}

/// A database that is down is told at once, with its true cause, once.
#[test]
fn a_database_that_is_down_is_a_503_with_the_cause_in_the_log() {
    let port = apus_testkit::free_port();
    let db: Db = Db::open(&format!("postgres://me@127.0.0.1:{port}/none")).unwrap();
    // The pool alone would try until this is over, which is longer than a test client waits.
    let db = db.acquire_timeout(std::time::Duration::from_secs(3600));
    async fn users(State(db): State<Db>) -> apus::Result<String> {
        let mut connection = db.acquire().await?;
        let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM users");
        Ok(count.fetch_one(&mut *connection).await?.to_string())
    }
    let app = app(SqlStore::new(db.clone()))
        .state(db)
        .get("/users", users);
    let log = apus_testkit::logged(|| {
        let client = TestClient::new(app);
        for path in ["/", "/users"] {
            client
                .get(path)
                .send()
                .assert_status(503)
                .assert_header("retry-after", "5");
        }
    });
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("a handler failed"))
        .collect();
    assert_eq!(lines.len(), 2, "{log}");
    for line in &lines {
        assert_eq!(line.matches("onnection refused").count(), 1, "{line}");
        assert!(line.matches("the store of sessions").count() <= 1, "{line}");
    }
}
