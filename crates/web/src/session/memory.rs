//! `MemoryStore`: sessions in the memory of the process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SessionKey;
use super::store::{SessionStore, SessionWrite, StoreFuture, StoredSession};

/// Keeps sessions in memory. All workers of the process share them; other processes do not, and
/// when the process ends they are gone.
///
/// It holds 100,000 sessions by default. A new session then replaces the one that expires first.
pub struct MemoryStore {
    max: usize,
    sessions: Mutex<SessionMap>,
}

#[derive(Default)]
struct SessionMap {
    by_key: HashMap<SessionKey, StoredSession>,
    by_expiry: BTreeSet<(u64, SessionKey)>,
}

impl MemoryStore {
    /// A store with room for 100,000 sessions.
    pub fn new() -> Self {
        Self {
            max: 100_000,
            sessions: Mutex::default(),
        }
    }

    /// The most sessions, at least one.
    #[must_use]
    pub fn max_sessions(mut self, max: usize) -> Self {
        self.max = max.max(1);
        self
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions().by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sessions(&self) -> MutexGuard<'_, SessionMap> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl SessionMap {
    fn put(&mut self, key: SessionKey, stored: StoredSession) {
        self.by_expiry.insert((stored.expires, key));
        if let Some(old) = self.by_key.insert(key, stored)
            && self
                .by_key
                .get(&key)
                .is_some_and(|new| new.expires != old.expires)
        {
            self.by_expiry.remove(&(old.expires, key));
        }
    }

    fn remove(&mut self, key: &SessionKey) {
        if let Some(old) = self.by_key.remove(key) {
            self.by_expiry.remove(&(old.expires, *key));
        }
    }

    /// Removes expired sessions, then those that expire first, until there is room for one more.
    fn make_room(&mut self, max: usize, now: u64) {
        while let Some((expires, key)) = self.by_expiry.first().copied()
            && (expires <= now || self.by_key.len() >= max)
        {
            self.remove(&key);
        }
    }
}

impl SessionStore for MemoryStore {
    fn load<'a>(&'a self, key: &'a SessionKey, now: u64) -> StoreFuture<'a, Option<StoredSession>> {
        let stored = self.sessions().by_key.get(key).cloned();
        Box::pin(ready(Ok(stored.filter(|stored| now < stored.expires))))
    }

    fn save<'a>(&'a self, save: SessionWrite<'a>) -> StoreFuture<'a, bool> {
        let mut sessions = self.sessions();
        let version = sessions.by_key.get(save.key).map(|stored| stored.version);
        let may = version == save.replaces;
        if may {
            if version.is_none() {
                sessions.make_room(self.max, save.now);
            }
            let stored = StoredSession {
                content: Arc::from(save.content),
                version: save.version(),
                expires: save.expires,
            };
            sessions.put(*save.key, stored);
        }
        Box::pin(ready(Ok(may)))
    }

    fn touch<'a>(&'a self, key: &'a SessionKey, expires: u64) -> StoreFuture<'a, ()> {
        let mut sessions = self.sessions();
        if let Some(stored) = sessions.by_key.get(key).cloned() {
            sessions.put(*key, StoredSession { expires, ..stored });
        }
        Box::pin(ready(Ok(())))
    }

    fn remove<'a>(&'a self, key: &'a SessionKey, version: Option<u64>) -> StoreFuture<'a, bool> {
        let mut sessions = self.sessions();
        let stored = sessions.by_key.get(key);
        let may = stored.is_some_and(|stored| version.is_none_or(|one| one == stored.version));
        if may {
            sessions.remove(key);
        }
        Box::pin(ready(Ok(may)))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("sessions", &self.len())
            .field("max", &self.max)
            .finish()
    }
}

/// Lets the application keep a reference to its store.
impl<S: SessionStore> SessionStore for Arc<S> {
    fn load<'a>(&'a self, key: &'a SessionKey, now: u64) -> StoreFuture<'a, Option<StoredSession>> {
        (**self).load(key, now)
    }

    fn save<'a>(&'a self, save: SessionWrite<'a>) -> StoreFuture<'a, bool> {
        (**self).save(save)
    }

    fn touch<'a>(&'a self, key: &'a SessionKey, expires: u64) -> StoreFuture<'a, ()> {
        (**self).touch(key, expires)
    }

    fn remove<'a>(&'a self, key: &'a SessionKey, version: Option<u64>) -> StoreFuture<'a, bool> {
        (**self).remove(key, version)
    }
}
