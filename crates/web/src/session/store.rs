//! `SessionStore`: the trait of stores that keep sessions on the server.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::SessionKey;
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
}

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

/// The error of a store.
pub struct StoreError(Box<dyn Error + Send + Sync>);

impl StoreError {
    /// An error with its cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of sessions: {}", self.0)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
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
