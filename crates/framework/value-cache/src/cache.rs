//! `ValueCache`: remembers values of an application for a time.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::flights::{FlightEnd, FlightLeader, FlightRole, Flights};
use crate::memory::MemoryValues;
#[cfg(feature = "redis")]
use crate::redis::RedisValues;
#[cfg(feature = "redis")]
use crate::stored_value::milliseconds;
use crate::stored_value::{StoredValue, ValueLifetimes};

/// How long a store that failed is not asked again.
#[cfg(feature = "redis")]
const PAUSE: Duration = Duration::from_secs(1);

/// How long a request waits for the computation of another one.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Remembers values of an application for a time; see [the module](crate). It is cheap to clone, and handlers get it as
/// [`State`](https://docs.rs/apus/latest/apus/struct.State.html).
#[derive(Clone)]
pub struct ValueCache {
    shared: Arc<ValueCacheState>,
    prefix: Arc<str>,
}

struct ValueCacheState {
    store: ValueStore,
    flights: Flights,
    /// The millisecond until which the store is not asked.
    #[cfg(feature = "redis")]
    paused_until: AtomicU64,
}

enum ValueStore {
    Memory(MemoryValues),
    #[cfg(feature = "redis")]
    Redis(RedisValues),
}

impl ValueCache {
    /// A cache in the memory of this process, which all its workers share. Above this number of bytes, values
    /// that are used least are removed; a value larger than a fourth of it is not stored.
    pub fn in_memory(max_bytes: u64) -> Self {
        Self::of(ValueStore::Memory(MemoryValues::new(max_bytes)), "")
    }

    /// A cache in Redis, which several processes share, under keys that begin with `cache:`.
    #[cfg(feature = "redis")]
    pub fn in_redis(redis: &apus_redis::Redis) -> Self {
        Self::of(ValueStore::Redis(RedisValues(redis.clone())), "cache:")
    }

    fn of(store: ValueStore, prefix: &str) -> Self {
        Self {
            shared: Arc::new(ValueCacheState {
                store,
                flights: Flights::default(),
                #[cfg(feature = "redis")]
                paused_until: AtomicU64::new(0),
            }),
            prefix: prefix.into(),
        }
    }

    /// The same cache for keys that begin with a prefix, which [`forget_all`](Self::forget_all) forgets together:
    /// `cache.within("products:")`.
    #[must_use]
    pub fn within(&self, prefix: &str) -> Self {
        Self {
            shared: self.shared.clone(),
            prefix: format!("{}{prefix}", self.prefix).into(),
        }
    }

    /// The value of a key; `None` if it was not stored, has expired, or is of another type.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let found = self.shared.load(&self.key(key)).await?;
        let is_fresh = found.is_fresh(self.shared.now());
        decode(&found.json).filter(|_| is_fresh)
    }

    /// Stores a value for a time.
    pub async fn put<T: Serialize>(&self, key: &str, value: &T, lifetime: Duration) {
        let key = self.key(key);
        self.shared.flights.outdate(|running| running == key);
        if let Some(json) = encode(&key, value) {
            self.shared.save(&key, json, fresh_for(lifetime)).await;
        }
    }

    /// Removes a value.
    ///
    /// # Errors
    /// The store cannot be reached, so that the value may be used until it expires.
    pub async fn forget(&self, key: &str) -> Result<(), ValueCacheError> {
        let key = self.key(key);
        self.shared.flights.outdate(|running| running == key);
        match &self.shared.store {
            ValueStore::Memory(memory) => memory.remove(&key),
            #[cfg(feature = "redis")]
            ValueStore::Redis(redis) => redis.remove(&key).await.map_err(ValueCacheError::new)?,
        }
        Ok(())
    }

    /// Removes all values; of a cache [within](Self::within) a prefix, those with that prefix.
    ///
    /// # Errors
    /// The store cannot be reached, so that values may be used until they expire.
    pub async fn forget_all(&self) -> Result<(), ValueCacheError> {
        let prefix = &*self.prefix;
        let outdated = |running: &str| running.starts_with(prefix);
        self.shared.flights.outdate(outdated);
        match &self.shared.store {
            ValueStore::Memory(memory) => memory.remove_prefix(prefix),
            #[cfg(feature = "redis")]
            ValueStore::Redis(redis) => {
                let removed = redis.remove_prefix(prefix).await;
                removed.map_err(ValueCacheError::new)?;
            }
        }
        Ok(())
    }

    /// The value of a key; if there is none, it is computed and stored for a time.
    ///
    /// Requests of this process for a key that is being computed wait for that value, ten seconds at most. If the
    /// computation fails, its error is returned and nothing is stored, and those that waited compute for themselves. The
    /// value of a key that was [forgotten](Self::forget) meanwhile is returned and not stored.
    ///
    /// A computation must not remember its own key.
    ///
    /// # Errors
    /// The error of the computation.
    pub async fn remember<T, E>(
        &self,
        key: &str,
        lifetime: Duration,
        compute: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
    {
        let key = self.key(key);
        let found = self.shared.load(&key).await;
        let now = self.shared.now();
        if let Some(value) = found.filter(|found| found.is_fresh(now))
            && let Some(value) = decode(&value.json)
        {
            return Ok(value);
        }
        self.computed(&key, fresh_for(lifetime), compute).await
    }

    /// As [`remember`](Self::remember), with a second time: for that long a value that is no longer fresh is returned at
    /// once, while it is computed again beside the request.
    ///
    /// It has to be called on a worker, as in a handler. An error of a computation beside a request is logged.
    ///
    /// # Errors
    /// The error of the computation, if there is no value that may be used.
    pub async fn remember_stale<T, E, F>(
        &self,
        key: &str,
        lifetime: Duration,
        stale: Duration,
        compute: F,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned + 'static,
        E: fmt::Debug + 'static,
        F: AsyncFnOnce() -> Result<T, E> + 'static,
    {
        let key = self.key(key);
        let lifetimes = ValueLifetimes {
            fresh: lifetime,
            stale,
        };
        let Some(found) = self.shared.load(&key).await else {
            return self.computed(&key, lifetimes, compute).await;
        };
        let Some(value) = decode(&found.json) else {
            return self.computed(&key, lifetimes, compute).await;
        };
        if !found.is_fresh(self.shared.now())
            && let FlightRole::Leader(leader) = self.shared.flights.join(&key)
        {
            let cache = self.clone();
            tokio::task::spawn_local(async move {
                if let Err(error) = cache.lead(leader, &key, lifetimes, compute).await {
                    tracing::warn!(
                        key,
                        ?error,
                        "a value of the cache could not be computed again"
                    );
                }
            });
        }
        Ok(value)
    }

    /// Checks that the store responds, for a check of the readiness.
    ///
    /// # Errors
    /// It does not.
    #[allow(
        clippy::unused_async,
        reason = "without the feature `redis`, nothing is awaited"
    )]
    pub async fn ping(&self) -> Result<(), ValueCacheError> {
        match &self.shared.store {
            ValueStore::Memory(_) => Ok(()),
            #[cfg(feature = "redis")]
            ValueStore::Redis(redis) => redis.0.ping().await.map_err(ValueCacheError::new),
        }
    }

    /// The bytes in use, of a cache in memory.
    pub fn bytes(&self) -> Option<u64> {
        match &self.shared.store {
            ValueStore::Memory(memory) => Some(memory.bytes()),
            #[cfg(feature = "redis")]
            ValueStore::Redis(_) => None,
        }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Computes a value, or waits for the computation of another request.
    async fn computed<T, E>(
        &self,
        key: &str,
        lifetimes: ValueLifetimes,
        compute: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
    {
        loop {
            let follower = match self.shared.flights.join(key) {
                FlightRole::Leader(leader) => {
                    // A computation may have ended since the store was asked.
                    let found = self.shared.load(key).await;
                    let found = found.filter(|found| found.is_fresh(self.shared.now()));
                    if let Some(found) = found
                        && let Some(value) = decode(&found.json)
                    {
                        leader.finish(found.json);
                        return Ok(value);
                    }
                    return self.lead(leader, key, lifetimes, compute).await;
                }
                FlightRole::Follower(follower) => follower,
            };
            match tokio::time::timeout(LONGEST_WAIT, follower.wait()).await {
                Ok(FlightEnd::Done(json)) => match decode(&json) {
                    Some(value) => return Ok(value),
                    None => return compute().await,
                },
                Ok(FlightEnd::GivenUp) => {}
                Ok(FlightEnd::Failed) | Err(_) => return compute().await,
            }
        }
    }

    /// Computes a value for all that wait for it, and stores it.
    async fn lead<T: Serialize, E>(
        &self,
        leader: FlightLeader,
        key: &str,
        lifetimes: ValueLifetimes,
        compute: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let value = match compute().await {
            Ok(value) => value,
            Err(error) => {
                leader.fail();
                return Err(error);
            }
        };
        match encode(key, &value) {
            Some(json) => {
                if !leader.is_outdated() {
                    self.shared.save(key, json.clone(), lifetimes).await;
                }
                leader.finish(json);
            }
            None => leader.fail(),
        }
        Ok(value)
    }
}

impl ValueCacheState {
    /// The time of the store.
    fn now(&self) -> u64 {
        match &self.store {
            ValueStore::Memory(_) => MemoryValues::now(),
            #[cfg(feature = "redis")]
            ValueStore::Redis(_) => RedisValues::now(),
        }
    }

    #[allow(
        clippy::unused_async,
        reason = "without the feature `redis`, nothing is awaited"
    )]
    async fn load(&self, key: &str) -> Option<StoredValue> {
        match &self.store {
            ValueStore::Memory(memory) => memory.load(key),
            #[cfg(feature = "redis")]
            ValueStore::Redis(redis) => {
                if self.is_paused() {
                    return None;
                }
                self.or_pause(redis.load(key).await).flatten()
            }
        }
    }

    #[allow(
        clippy::unused_async,
        reason = "without the feature `redis`, nothing is awaited"
    )]
    async fn save(&self, key: &str, json: Bytes, lifetimes: ValueLifetimes) {
        let value = StoredValue::new(json, self.now(), lifetimes);
        match &self.store {
            ValueStore::Memory(memory) => memory.save(key, value),
            #[cfg(feature = "redis")]
            ValueStore::Redis(redis) if !self.is_paused() => {
                self.or_pause(redis.save(key, &value).await);
            }
            #[cfg(feature = "redis")]
            ValueStore::Redis(_) => {}
        }
    }

    #[cfg(feature = "redis")]
    fn is_paused(&self) -> bool {
        milliseconds(apus_clock::monotonic()) < self.paused_until.load(Ordering::Relaxed)
    }

    /// The result of the store. After an error, it is not asked for a second.
    #[cfg(feature = "redis")]
    fn or_pause<T>(&self, result: Result<T, impl fmt::Display>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(error) => {
                let until = milliseconds(apus_clock::monotonic().saturating_add(PAUSE));
                if !self.is_paused() {
                    tracing::warn!(%error, "the cache fails; values are computed for each request");
                }
                self.paused_until.store(until, Ordering::Relaxed);
                None
            }
        }
    }
}

fn fresh_for(lifetime: Duration) -> ValueLifetimes {
    ValueLifetimes {
        fresh: lifetime,
        stale: Duration::ZERO,
    }
}

fn decode<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    // A value of another type was stored by another version of the application.
    serde_json::from_slice(json).ok()
}

fn encode<T: Serialize>(key: &str, value: &T) -> Option<Bytes> {
    match serde_json::to_vec(value) {
        Ok(json) => Some(json.into()),
        Err(error) => {
            tracing::error!(key, %error, "a value has no form in JSON and is not stored");
            None
        }
    }
}

/// The error of the store of a cache.
#[derive(Debug)]
pub struct ValueCacheError(Box<dyn Error + Send + Sync>);

impl ValueCacheError {
    #[cfg(feature = "redis")]
    fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for ValueCacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache: {}", self.0)
    }
}

impl Error for ValueCacheError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl fmt::Debug for ValueCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueCache")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
