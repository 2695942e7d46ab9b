//! Shared storage in Redis.
//!
//! ```text
//! apus:acme:file:<name>                    a file
//! apus:acme:lock:<name>                    the owner of a lock, until it expires
//! apus:acme:challenges                     a hash of the open challenges, each with the time when it expires
//! ```

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use apus_redis::redis::{Script, pipe};
use apus_redis::{Redis, RedisError};
use time::OffsetDateTime;

use super::{SharedChallenge, SharedStorage, SharedStorageError, StorageFuture};

const PREFIX: &str = "apus:acme:";
const CHALLENGES: &str = "apus:acme:challenges";
/// How long a challenge is responded to.
const CHALLENGE_LIFETIME: i64 = 3600;

/// Takes a lock, or keeps it.
static LOCK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local owner = redis.call('GET', KEYS[1])\n\
         if owner and owner ~= ARGV[1] then return 0 end\n\
         redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n\
         return 1",
    )
});

/// Releases a lock of the owner.
static UNLOCK: LazyLock<Script> = LazyLock::new(|| {
    Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end")
});

/// Shared storage in Redis.
#[derive(Debug)]
struct RedisStorage(Redis);

pub(super) fn open(address: &str) -> Result<Arc<dyn SharedStorage>, SharedStorageError> {
    Ok(Arc::new(RedisStorage(Redis::open(address)?)))
}

impl From<RedisError> for SharedStorageError {
    fn from(error: RedisError) -> Self {
        Self::new(format!("Redis: {error}"))
    }
}

impl SharedStorage for RedisStorage {
    fn read<'a>(&'a self, name: &'a str) -> StorageFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let mut pipeline = pipe();
            pipeline.get(format!("{PREFIX}file:{name}"));
            let (found,) = self.0.query(&pipeline).await?;
            Ok(found)
        })
    }

    fn write<'a>(&'a self, name: &'a str, bytes: Option<&'a [u8]>) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let mut pipeline = pipe();
            let key = format!("{PREFIX}file:{name}");
            match bytes {
                Some(bytes) => pipeline.set(key, bytes).ignore(),
                None => pipeline.del(key).ignore(),
            };
            self.0.query::<()>(&pipeline).await?;
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> StorageFuture<'a, Vec<String>> {
        Box::pin(async move {
            let files = format!("{PREFIX}file:");
            let (mut names, mut cursor) = (Vec::new(), 0_u64);
            loop {
                let mut pipeline = pipe();
                pipeline
                    .cmd("SCAN")
                    .arg(cursor)
                    .arg("MATCH")
                    .arg(format!("{files}{prefix}*"))
                    .arg("COUNT")
                    .arg(1000);
                let ((next, keys),): ((u64, Vec<String>),) = self.0.query(&pipeline).await?;
                names.extend(
                    keys.iter()
                        .filter_map(|key| key.strip_prefix(&files))
                        .map(str::to_owned),
                );
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            // A key may be found more than once.
            names.sort_unstable();
            names.dedup();
            Ok(names)
        })
    }

    fn lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        lifetime: Duration,
    ) -> StorageFuture<'a, bool> {
        Box::pin(async move {
            let key = format!("{PREFIX}lock:{name}");
            let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            let arguments = [owner, &lifetime.to_string()];
            Ok(self.0.run(&LOCK, &[&key], &arguments).await?)
        })
    }

    fn unlock<'a>(&'a self, name: &'a str, owner: &'a str) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let key = format!("{PREFIX}lock:{name}");
            self.0.run::<()>(&UNLOCK, &[&key], &[owner]).await?;
            Ok(())
        })
    }

    fn add_challenge<'a>(&'a self, challenge: &'a SharedChallenge) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let expires = OffsetDateTime::now_utc().unix_timestamp() + CHALLENGE_LIFETIME;
            let json = serde_json::to_string(&(expires, challenge))
                .map_err(|error| SharedStorageError::new(error.to_string()))?;
            let mut pipeline = pipe();
            pipeline.hset(CHALLENGES, challenge.key(), json).ignore();
            // What is left over after a crash goes with the last one.
            pipeline.expire(CHALLENGES, CHALLENGE_LIFETIME).ignore();
            self.0.query::<()>(&pipeline).await?;
            Ok(())
        })
    }

    fn remove_challenge<'a>(&'a self, challenge: &'a SharedChallenge) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let mut pipeline = pipe();
            pipeline.hdel(CHALLENGES, challenge.key()).ignore();
            self.0.query::<()>(&pipeline).await?;
            Ok(())
        })
    }

    fn challenges(&self) -> StorageFuture<'_, Vec<SharedChallenge>> {
        Box::pin(async move {
            let mut pipeline = pipe();
            pipeline.hvals(CHALLENGES);
            let (values,): (Vec<String>,) = self.0.query(&pipeline).await?;
            let now = OffsetDateTime::now_utc().unix_timestamp();
            let challenges = values.iter().filter_map(|json| {
                let (expires, challenge): (i64, _) = serde_json::from_str(json).ok()?;
                (expires > now).then_some(challenge)
            });
            Ok(challenges.collect())
        })
    }
}
