//! `MemoryTokens`: tokens in memory, for tests and for applications of one process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::{AccountTokenStore, StoredToken, TokenFuture};

/// The most tokens, by default.
const MAX_TOKENS: usize = 100_000;

/// The most tokens of an account for one purpose.
const MAX_OF_ACCOUNT: usize = 64;

/// How many expired tokens are removed before others may use the store.
const SWEPT_AT_ONCE: usize = 256;

/// Keeps tokens in memory: they are lost when the process ends. Clones share them.
///
/// It holds 100,000 tokens by default; a new one then replaces the one that expires first. Of the tokens of an account for one purpose,
/// the latest 64 are kept: who asks for links again and again replaces only their own.
#[derive(Clone)]
pub struct MemoryTokens {
    max: usize,
    tokens: Arc<Mutex<TokenTables>>,
}

#[derive(Default)]
struct TokenTables {
    by_digest: HashMap<String, StoredToken>,
    by_expiry: BTreeSet<(u64, String)>,
    /// By purpose and account, in the order in which they were issued.
    by_account: HashMap<(String, i64), BTreeSet<(u64, String)>>,
}

impl TokenTables {
    fn insert(&mut self, token: &StoredToken) {
        self.remove(&token.digest);
        let (digest, account) = (token.digest.clone(), account_of(token));
        self.by_expiry.insert((token.expires, digest.clone()));
        let of_account = self.by_account.entry(account).or_default();
        of_account.insert((token.issued, digest.clone()));
        self.by_digest.insert(digest, token.clone());
    }

    fn remove(&mut self, digest: &str) -> bool {
        let Some((digest, token)) = self.by_digest.remove_entry(digest) else {
            return false;
        };
        let account = account_of(&token);
        self.by_expiry.remove(&(token.expires, digest.clone()));
        if let Some(of_account) = self.by_account.get_mut(&account) {
            of_account.remove(&(token.issued, digest));
            if of_account.is_empty() {
                self.by_account.remove(&account);
            }
        }
        true
    }

    /// The tokens of an account for a purpose, the newest first.
    fn of(&self, purpose: &str, account: i64) -> Vec<StoredToken> {
        let found = self.by_account.get(&(purpose.to_owned(), account));
        let digests = found.into_iter().flatten().rev();
        digests
            .filter_map(|(_, digest)| self.by_digest.get(digest).cloned())
            .collect()
    }

    /// Removes tokens that have expired, but not more than a number; returns whether there may be more.
    fn remove_expired(&mut self, now: u64, most: usize) -> bool {
        for _ in 0..most {
            match self.by_expiry.first().cloned() {
                Some((expires, digest)) if expires <= now => self.remove(&digest),
                _ => return false,
            };
        }
        true
    }

    /// Makes room for a token: removes some that have expired, the oldest of its account, and the one that expires first.
    fn make_room(&mut self, token: &StoredToken, max: usize) {
        self.remove_expired(token.issued, 2);
        let of_account = self.by_account.get(&account_of(token));
        let oldest = of_account.filter(|of_account| of_account.len() >= MAX_OF_ACCOUNT);
        if let Some((_, digest)) = oldest.and_then(BTreeSet::first).cloned() {
            self.remove(&digest);
        }
        if self.by_digest.len() >= max
            && let Some((_, digest)) = self.by_expiry.first().cloned()
        {
            self.remove(&digest);
        }
    }
}

fn account_of(token: &StoredToken) -> (String, i64) {
    (token.purpose.clone(), token.account)
}

impl MemoryTokens {
    /// An empty store, with room for 100,000 tokens.
    pub fn new() -> Self {
        Self {
            max: MAX_TOKENS,
            tokens: Arc::default(),
        }
    }

    /// The most tokens, at least one.
    #[must_use]
    pub fn max_tokens(mut self, max: usize) -> Self {
        self.max = max.max(1);
        self
    }

    /// How many tokens there are, also those that have expired and were not removed yet.
    pub fn len(&self) -> usize {
        self.tokens().by_digest.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tokens(&self) -> MutexGuard<'_, TokenTables> {
        // The lock is never held across an await, and no panic can leave the map inconsistent.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryTokens {
    fn default() -> Self {
        Self::new()
    }
}

impl AccountTokenStore for MemoryTokens {
    fn insert<'a>(&'a self, token: &'a StoredToken) -> TokenFuture<'a, ()> {
        let mut tokens = self.tokens();
        tokens.make_room(token, self.max);
        tokens.insert(token);
        Box::pin(async { Ok(()) })
    }

    fn find<'a>(&'a self, digest: &'a str, now: u64) -> TokenFuture<'a, Option<StoredToken>> {
        let found = self.tokens().by_digest.get(digest).cloned();
        Box::pin(async move { Ok(found.filter(|token| token.expires > now)) })
    }

    fn remove<'a>(&'a self, digest: &'a str) -> TokenFuture<'a, bool> {
        let is_removed = self.tokens().remove(digest);
        Box::pin(async move { Ok(is_removed) })
    }

    fn remove_of<'a>(&'a self, purpose: &'a str, account: i64) -> TokenFuture<'a, ()> {
        let mut tokens = self.tokens();
        for token in tokens.of(purpose, account) {
            tokens.remove(&token.digest);
        }
        Box::pin(async { Ok(()) })
    }

    fn of<'a>(
        &'a self,
        purpose: &'a str,
        account: i64,
        now: u64,
    ) -> TokenFuture<'a, Vec<StoredToken>> {
        let mut found = self.tokens().of(purpose, account);
        found.retain(|token| token.expires > now);
        Box::pin(async move { Ok(found) })
    }

    fn sweep(&self, now: u64) -> TokenFuture<'_, ()> {
        while self.tokens().remove_expired(now, SWEPT_AT_ONCE) {}
        Box::pin(async { Ok(()) })
    }
}

impl fmt::Debug for MemoryTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTokens")
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The result of an operation, none of which waits.
    fn now<T>(mut operation: TokenFuture<'_, T>) -> T {
        let operation = pin!(operation.as_mut());
        match operation.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => panic!("it waits"),
        }
    }

    fn token(number: u64, account: i64, expires: u64) -> StoredToken {
        StoredToken {
            digest: format!("{number:064}"),
            purpose: "reset".to_owned(),
            account,
            note: String::new(),
            issued: number,
            expires,
        }
    }

    fn put(store: &MemoryTokens, token: &StoredToken) {
        now(store.insert(token));
    }

    #[test]
    fn requests_for_tokens_of_many_accounts_do_not_fill_the_memory() {
        let store = MemoryTokens::new().max_tokens(10);
        for number in 0..1000 {
            put(&store, &token(number, number as i64, 10_000 + number));
            assert!(store.len() <= 10);
        }
        let tables = store.tokens();
        assert_eq!((tables.by_expiry.len(), tables.by_account.len()), (10, 10));
        drop(tables);
        // Those that expire first were replaced.
        assert!(now(store.of("reset", 989, 0)).is_empty());
        assert_eq!(now(store.of("reset", 990, 0)).len(), 1);
    }

    #[test]
    fn requests_for_tokens_of_one_account_replace_only_its_own() {
        let store = MemoryTokens::new();
        put(&store, &token(0, 7, 5000));
        for number in 1..=65 {
            put(&store, &token(number, 8, 10_000));
        }
        assert_eq!(now(store.of("reset", 7, 0)).len(), 1);
        let found = now(store.of("reset", 8, 0));
        let issued: Vec<u64> = found.iter().map(|token| token.issued).collect();
        assert_eq!(issued, (2..=65).rev().collect::<Vec<u64>>());
        now(store.remove_of("reset", 8));
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn expired_tokens_are_removed_by_new_ones_and_by_a_sweep() {
        let store = MemoryTokens::new();
        for number in 0..1000 {
            put(&store, &token(number, number as i64, 2000));
        }
        put(&store, &token(2000, 1, 9000));
        assert_eq!(store.len(), 999);
        now(store.sweep(2000));
        assert_eq!(store.len(), 1);
    }
}
