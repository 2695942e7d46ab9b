//! `RedisStore`: sessions in Redis or Valkey.

use std::fmt;
use std::sync::LazyLock;

use apus_redis::Redis;
use apus_redis::redis::{self, FromRedisValue, Pipeline, Script};

use super::SessionKey;
use super::error::StoreError;
use super::store::{MAX_VISITORS, SessionStore, SessionWrite, StoreFuture, StoredSession};

/// Writes a session if the expected version is stored.
static SAVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local old = redis.call('GET', KEYS[1])
         if (old and string.match(old, '^%d+') or '') ~= ARGV[1] then return 0 end
         redis.call('SET', KEYS[1], ARGV[2], 'EXAT', ARGV[3])
         return 1",
    )
});

/// As `SAVE`, for a visitor who is not logged in. The index has the keys of all of them by their expiry: those that expire first are
/// removed when there are too many.
static SAVE_VISITOR: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local old = redis.call('GET', KEYS[1])
         if (old and string.match(old, '^%d+') or '') ~= ARGV[1] then return 0 end
         redis.call('SET', KEYS[1], ARGV[2], 'EXAT', ARGV[3])
         redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[4])
         redis.call('ZADD', KEYS[2], ARGV[3], KEYS[1])
         local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[5])
         if surplus > 0 then
             local removed = redis.call('ZPOPMIN', KEYS[2], surplus)
             for at = 1, #removed, 2 do redis.call('DEL', removed[at]) end
         end
         return 1",
    )
});

/// Removes a session if the expected version is stored.
static REMOVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local old = redis.call('GET', KEYS[1])
         if not old or string.match(old, '^%d+') ~= ARGV[1] then return 0 end
         return redis.call('DEL', KEYS[1])",
    )
});

/// Keeps sessions in Redis 6.2 or later, or in Valkey, under keys that begin with `session:`. Redis
/// removes expired sessions. Of visitors who are not logged in it keeps 100,000; those that expire first are removed for others.
#[derive(Clone)]
pub struct RedisStore {
    redis: Redis,
    prefix: String,
    max_visitors: u64,
}

impl RedisStore {
    /// A store in this server. It connects with the first session.
    pub fn new(redis: &Redis) -> Self {
        Self {
            redis: redis.clone(),
            prefix: "session:".to_owned(),
            max_visitors: MAX_VISITORS,
        }
    }

    /// The most sessions of visitors who are not logged in.
    #[must_use]
    pub fn max_visitors(self, max: u64) -> Self {
        Self {
            max_visitors: max,
            ..self
        }
    }

    /// Another prefix of the keys, for applications that share a database.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    fn key(&self, key: &SessionKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The key of the index of visitors who are not logged in.
    fn visitors(&self) -> String {
        format!("{}visitors", self.prefix)
    }

    /// Sends commands, which are all idempotent.
    async fn query<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, StoreError> {
        self.redis.query(pipeline).await.map_err(StoreError::new)
    }

    async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<bool, StoreError> {
        let done = self.redis.run(script, keys, arguments).await;
        done.map_err(StoreError::new)
    }
}

impl SessionStore for RedisStore {
    fn load<'a>(&'a self, key: &'a SessionKey, now: u64) -> StoreFuture<'a, Option<StoredSession>> {
        Box::pin(async move {
            let key = self.key(key);
            let mut pipeline = redis::pipe();
            pipeline.get(&key).pttl(&key);
            let (text, left): (Option<String>, i64) = self.query(&pipeline).await?;
            // The format is the version, a line feed, and the values.
            let stored = text.as_deref().and_then(|text| text.split_once('\n'));
            let left = u64::try_from(left).unwrap_or(0);
            Ok(stored.and_then(|(version, content)| {
                Some(StoredSession {
                    content: content.into(),
                    version: version.parse().ok()?,
                    expires: now.saturating_add(left.div_ceil(1000)),
                })
            }))
        })
    }

    fn save<'a>(&'a self, save: SessionWrite<'a>) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let replaces = save.replaces.map(|version| version.to_string());
            let replaces = replaces.as_deref().unwrap_or("");
            let content = format!("{}\n{}", save.version(), save.content);
            let (expires, key) = (save.expires.to_string(), self.key(save.key));
            if !save.key.is_visitor() {
                let arguments = [replaces, &content, &expires];
                return self.run(&SAVE, &[&key], &arguments).await;
            }
            let (now, max) = (save.now.to_string(), self.max_visitors.to_string());
            let arguments = [replaces, &content, &expires, &now, &max];
            self.run(&SAVE_VISITOR, &[&key, &self.visitors()], &arguments)
                .await
        })
    }

    fn touch<'a>(&'a self, key: &'a SessionKey, expires: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let expires = i64::try_from(expires).unwrap_or(i64::MAX);
            let mut pipeline = redis::pipe();
            pipeline.expire_at(self.key(key), expires).ignore();
            if key.is_visitor() {
                let index = pipeline.cmd("ZADD").arg(self.visitors());
                index.arg("XX").arg(expires).arg(self.key(key)).ignore();
            }
            self.query(&pipeline).await
        })
    }

    fn remove<'a>(&'a self, key: &'a SessionKey, version: Option<u64>) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let key = self.key(key);
            if let Some(version) = version {
                return self.run(&REMOVE, &[&key], &[&version.to_string()]).await;
            }
            let mut pipeline = redis::pipe();
            pipeline.del(key);
            let (removed,): (bool,) = self.query(&pipeline).await?;
            Ok(removed)
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.redis).finish()
    }
}
