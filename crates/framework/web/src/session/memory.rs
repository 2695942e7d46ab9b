//! `MemoryStore`: sessions in the memory of the process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use apus_tokens::random_bytes;

use super::SessionKey;
use super::error::StoreError;
use super::store::{SessionStore, SessionWrite, StoreFuture, StoredSession};

/// Keeps sessions in memory. All workers of the process share them; other processes do not, and
/// when the process ends they are gone.
///
/// It holds 100,000 sessions by default. When it is full, a new session replaces the session of a visitor who is not logged in, the
/// one that expires first; if there is none, a user who logs in replaces the session of a user that expires first, and a visitor gets
/// no session.
pub struct MemoryStore {
    max: usize,
    sessions: Mutex<SessionMap>,
    /// The key of the cookies of visitors, made when it is first needed.
    visitor_key: OnceLock<[u8; 32]>,
}

#[derive(Default)]
struct SessionMap {
    by_key: HashMap<SessionKey, StoredSession>,
    /// By their expiry: sessions of visitors who are not logged in, and sessions of users.
    visitors: BTreeSet<(u64, SessionKey)>,
    users: BTreeSet<(u64, SessionKey)>,
}

impl MemoryStore {
    /// A store with room for 100,000 sessions.
    pub fn new() -> Self {
        Self {
            max: 100_000,
            sessions: Mutex::default(),
            visitor_key: OnceLock::new(),
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
    fn by_expiry(&mut self, key: &SessionKey) -> &mut BTreeSet<(u64, SessionKey)> {
        if key.is_visitor() {
            &mut self.visitors
        } else {
            &mut self.users
        }
    }

    fn put(&mut self, key: SessionKey, stored: StoredSession) {
        let expires = stored.expires;
        let old = self.by_key.insert(key, stored);
        let by_expiry = self.by_expiry(&key);
        by_expiry.insert((expires, key));
        if let Some(old) = old
            && old.expires != expires
        {
            by_expiry.remove(&(old.expires, key));
        }
    }

    fn remove(&mut self, key: &SessionKey) {
        if let Some(old) = self.by_key.remove(key) {
            self.by_expiry(key).remove(&(old.expires, *key));
        }
    }

    /// Makes room for the session of this key: removes expired sessions, then sessions of visitors, and for a user sessions of
    /// users, each time the one that expires first. Returns whether there is room.
    fn make_room(&mut self, key: &SessionKey, max: usize, now: u64) -> bool {
        loop {
            let is_full = self.by_key.len() >= max;
            let is_expired = |first: &(u64, SessionKey)| first.0 <= now;
            let visitor = self.visitors.first().copied();
            let user = self.users.first().copied();
            let removed = user
                .filter(is_expired)
                .or(visitor.filter(|first| is_full || is_expired(first)))
                .or(user.filter(|_| is_full && !key.is_visitor()));
            match removed {
                Some((_, key)) => self.remove(&key),
                None => return !is_full,
            }
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
            if version.is_none() && !sessions.make_room(save.key, self.max, save.now) {
                let full = "it is full of the sessions of users, and a visitor gets none";
                return Box::pin(ready(Err(StoreError::new(full))));
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

    fn visitor_key(&self, _: u64) -> StoreFuture<'_, [u8; 32]> {
        let key = match self.visitor_key.get() {
            Some(key) => Ok(*key),
            None => random_bytes()
                .map(|made| *self.visitor_key.get_or_init(|| made))
                .map_err(StoreError::new),
        };
        Box::pin(ready(key))
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

    fn visitor_key(&self, now: u64) -> StoreFuture<'_, [u8; 32]> {
        (**self).visitor_key(now)
    }
}
