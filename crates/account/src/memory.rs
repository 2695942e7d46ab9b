//! `MemoryTokens`: tokens in memory, for tests and for applications of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::{AccountTokenStore, StoredToken, TokenFuture};

/// Keeps tokens in memory: they are lost when the process ends. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryTokens(Arc<Mutex<HashMap<String, StoredToken>>>);

impl MemoryTokens {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<String, StoredToken>> {
        // The lock is never held across an await, and no panic can leave the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountTokenStore for MemoryTokens {
    fn insert<'a>(&'a self, token: &'a StoredToken) -> TokenFuture<'a, ()> {
        self.tokens().insert(token.digest.clone(), token.clone());
        Box::pin(async { Ok(()) })
    }

    fn find<'a>(&'a self, digest: &'a str, now: u64) -> TokenFuture<'a, Option<StoredToken>> {
        let found = self.tokens().get(digest).cloned();
        Box::pin(async move { Ok(found.filter(|token| token.expires > now)) })
    }

    fn remove<'a>(&'a self, digest: &'a str) -> TokenFuture<'a, bool> {
        let removed = self.tokens().remove(digest);
        Box::pin(async move { Ok(removed.is_some()) })
    }

    fn remove_of<'a>(&'a self, purpose: &'a str, account: i64) -> TokenFuture<'a, ()> {
        let is_other = |token: &StoredToken| token.purpose != purpose || token.account != account;
        self.tokens().retain(|_, token| is_other(token));
        Box::pin(async { Ok(()) })
    }

    fn of<'a>(
        &'a self,
        purpose: &'a str,
        account: i64,
        now: u64,
    ) -> TokenFuture<'a, Vec<StoredToken>> {
        let is_it = |token: &&StoredToken| {
            token.purpose == purpose && token.account == account && token.expires > now
        };
        let mut found: Vec<_> = self.tokens().values().filter(is_it).cloned().collect();
        found.sort_by_key(|token| std::cmp::Reverse(token.issued));
        Box::pin(async move { Ok(found) })
    }

    fn sweep(&self, now: u64) -> TokenFuture<'_, ()> {
        self.tokens().retain(|_, token| token.expires > now);
        Box::pin(async { Ok(()) })
    }
}

impl fmt::Debug for MemoryTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTokens").finish_non_exhaustive()
    }
}
