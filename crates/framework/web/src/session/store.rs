//! `SessionStore`: the trait of stores that keep sessions on the server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use apus_tokens::{random_bytes, sha256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::StoreError;
use super::id::SessionKey;
use super::sealed::{EncryptedCookie, Sealer, SignedCookie};

/// The future of a store operation, which stays on its thread.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + 'a>>;

/// Keeps sessions on the server. All workers share one store.
///
/// Times are seconds since 1970-01-01 (UTC).
pub trait SessionStore: Send + Sync + 'static {
    /// Loads a session; `None` if it does not exist or has expired.
    fn load<'a>(&'a self, key: &'a SessionKey, now: u64) -> StoreFuture<'a, Option<StoredSession>>;

    /// Writes a session and returns whether it did. If [`SessionWrite::replaces`] is a version, it must
    /// write only if exactly that version is stored.
    fn save<'a>(&'a self, save: SessionWrite<'a>) -> StoreFuture<'a, bool>;

    /// Changes the expiry time of the session; values and version stay.
    fn touch<'a>(&'a self, key: &'a SessionKey, expires: u64) -> StoreFuture<'a, ()>;

    /// Removes the session and returns whether it did. If `version` is given, it must remove only that
    /// version.
    fn remove<'a>(&'a self, key: &'a SessionKey, version: Option<u64>) -> StoreFuture<'a, bool>;

    /// The key by which cookies are signed for visitors who are not logged in, and who have no session in the store. All servers
    /// that share the store need the same one: it is made once, and kept in the store as a session that does not expire.
    fn visitor_key(&self, now: u64) -> StoreFuture<'_, [u8; 32]> {
        Box::pin(async move {
            let key = SessionKey::from_digest(sha256(b"the key of the cookies of visitors"));
            for _ in 0..2 {
                if let Some(stored) = self.load(&key, now).await? {
                    let bytes = URL_SAFE_NO_PAD.decode(&*stored.content).ok();
                    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
                    return bytes
                        .ok_or_else(|| StoreError::new("the key of visitors is not valid"));
                }
                let made = random_bytes().map_err(StoreError::new)?;
                let save = SessionWrite {
                    key: &key,
                    content: &URL_SAFE_NO_PAD.encode(made),
                    replaces: None,
                    expires: now.saturating_add(VISITOR_KEY_LIFETIME),
                    now,
                };
                // A database reports it as an error if another server was faster.
                if let Ok(true) = self.save(save).await {
                    return Ok(made);
                }
            }
            Err(StoreError::new("the key of visitors cannot be stored"))
        })
    }
}

/// The most sessions of visitors who are not logged in, in a database and in Redis, by default.
#[cfg(any(feature = "sql", feature = "redis"))]
pub(super) const MAX_VISITORS: u64 = 100_000;

/// A hundred years, in seconds.
const VISITOR_KEY_LIFETIME: u64 = 100 * 365 * 24 * 60 * 60;

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// Its values: JSON (RFC 8259).
    pub content: Arc<str>,
    /// 1 for a new session; each write increments it.
    pub version: u64,
    /// The expiry time.
    pub expires: u64,
}

/// A session to be written.
#[derive(Clone, Copy, Debug)]
pub struct SessionWrite<'a> {
    /// The key of the session.
    pub key: &'a SessionKey,
    /// Its values: JSON (RFC 8259).
    pub content: &'a str,
    /// The version that it replaces; `None` for a new session.
    pub replaces: Option<u64>,
    /// The expiry time.
    pub expires: u64,
    /// The current time.
    pub now: u64,
}

impl SessionWrite<'_> {
    /// The version of this write.
    pub fn version(&self) -> u64 {
        self.replaces.unwrap_or(0).saturating_add(1)
    }
}

/// The place where sessions are kept: a [`SessionStore`], or one of the two kinds of cookie.
pub struct SessionBackend(pub(super) BackendKind);

pub(super) enum BackendKind {
    /// The cookie contains an id.
    Store(Box<dyn SessionStore>),
    /// The cookie contains the values.
    Cookie(Sealer),
}

impl<S: SessionStore> From<S> for SessionBackend {
    fn from(store: S) -> Self {
        Self(BackendKind::Store(Box::new(store)))
    }
}

impl From<EncryptedCookie> for SessionBackend {
    fn from(cookie: EncryptedCookie) -> Self {
        Self(BackendKind::Cookie(Sealer::Encrypted(cookie)))
    }
}

impl From<SignedCookie> for SessionBackend {
    fn from(cookie: SignedCookie) -> Self {
        Self(BackendKind::Cookie(Sealer::Signed(cookie)))
    }
}

impl fmt::Debug for SessionBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            BackendKind::Store(_) => "SessionBackend::Store",
            BackendKind::Cookie(_) => "SessionBackend::Cookie",
        })
    }
}
