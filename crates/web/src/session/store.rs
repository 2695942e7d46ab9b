//! What keeps sessions on the server, and what every such store has to do.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::SessionKey;
use super::sealed::{EncryptedCookie, Sealer, SignedCookie};

/// What a store answers with, sooner or later. It stays on the thread that asked.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + 'a>>;

/// Keeps sessions on the server. All workers share one store.
///
/// Times are seconds since 1970 began (UTC).
pub trait SessionStore: Send + Sync + 'static {
    /// The session, unless there is none or it has expired.
    fn load<'a>(&'a self, key: &'a SessionKey, now: u64) -> StoreFuture<'a, Option<Stored>>;

    /// Writes a session and says whether it did. It must not if [`Save::replaces`] names a version
    /// and another one is stored, or none; then nothing changes.
    fn save<'a>(&'a self, save: Save<'a>) -> StoreFuture<'a, bool>;

    /// Moves the time when the session expires; content and version stay.
    fn touch<'a>(&'a self, key: &'a SessionKey, expires: u64) -> StoreFuture<'a, ()>;

    /// Removes the session and says whether it did. It must not if `version` is given and another
    /// one is stored.
    fn remove<'a>(&'a self, key: &'a SessionKey, version: Option<u64>) -> StoreFuture<'a, bool>;
}

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its values: JSON (RFC 8259).
    pub content: Arc<str>,
    /// 1 when it was made, and one more with each write.
    pub version: u64,
    /// When it expires.
    pub expires: u64,
}

/// A session to be written.
#[derive(Clone, Copy, Debug)]
pub struct Save<'a> {
    /// What it is known by.
    pub key: &'a SessionKey,
    /// Its values: JSON (RFC 8259).
    pub content: &'a str,
    /// The version that it takes the place of; `None` for a new session.
    pub replaces: Option<u64>,
    /// When it expires.
    pub expires: u64,
    /// What time it is.
    pub now: u64,
}

impl Save<'_> {
    /// The version that is written.
    pub fn version(&self) -> u64 {
        self.replaces.unwrap_or(0).saturating_add(1)
    }
}

/// A store that did not do what it was asked for.
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

/// Where sessions are kept: made of a [`SessionStore`], or of one of the two kinds of cookie.
pub struct SessionPlace(pub(super) Place);

pub(super) enum Place {
    /// The cookie holds an id.
    Store(Box<dyn SessionStore>),
    /// The cookie holds the values.
    Cookie(Sealer),
}

impl<S: SessionStore> From<S> for SessionPlace {
    fn from(store: S) -> Self {
        Self(Place::Store(Box::new(store)))
    }
}

impl From<EncryptedCookie> for SessionPlace {
    fn from(cookie: EncryptedCookie) -> Self {
        Self(Place::Cookie(Sealer::Encrypted(cookie)))
    }
}

impl From<SignedCookie> for SessionPlace {
    fn from(cookie: SignedCookie) -> Self {
        Self(Place::Cookie(Sealer::Signed(cookie)))
    }
}

impl fmt::Debug for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Place::Store(_) => "SessionPlace::Store",
            Place::Cookie(_) => "SessionPlace::Cookie",
        })
    }
}
