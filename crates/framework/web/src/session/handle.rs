//! `Session`: the extractor that reads and changes the session of a request.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apus_http::Request;
#[cfg(feature = "validate")]
use apus_http::mount_prefix;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::SessionError;
use super::id::SessionId;
use super::settings::SessionSettings;
use super::state::{Changes, SessionRecord};
use super::store::BackendKind;
use apus_handler::{Error, FromRequestHead, Matched, RouteCheck};

/// The prefix of the names of values that are read once.
const FLASH: &str = "~flash/";

/// An extractor: the session of a visitor. Every request behind the layer [`super::Sessions`] has one;
/// it is stored once it has a value.
///
/// Each value has a name and is serialized as JSON. Names that begin with `~` are reserved. Changes are
/// written when the response is ready, before any of it is sent; if that fails, the response is a 500.
/// See [the module](super) for concurrent requests.
#[derive(Clone)]
pub struct Session(pub(super) Arc<SessionInner>);

pub(super) struct SessionInner {
    pub(super) settings: Arc<SessionSettings>,
    pub(super) is_secure: bool,
    /// What the path of the request was normalised to, with the prefix under which the application is mounted.
    #[cfg(feature = "validate")]
    path: Box<[u8]>,
    state: Mutex<SessionState>,
}

/// The session as a request loaded it, and the changes of the request.
#[derive(Clone, Default)]
pub(super) struct SessionState {
    pub(super) shown: SessionCookie,
    pub(super) base: LoadedSession,
    pub(super) changes: Changes,
    /// Whether the session gets a new id.
    pub(super) renew: bool,
    /// Whether the stored session is removed.
    pub(super) destroy: bool,
    /// The change of the cookie in the response.
    pub(super) cookie: Option<CookieChange>,
    /// Whether the response may depend on the session.
    pub(super) was_used: bool,
}

/// The session cookie of a request.
#[derive(Clone, Default)]
pub(super) enum SessionCookie {
    #[default]
    Missing,
    Id(SessionId),
    /// A cookie that contains the values, as a visitor who is not logged in has one; or a text that is not a session.
    Text(Box<str>),
}

/// The session before the changes of this request.
#[derive(Clone, Default)]
pub(super) enum LoadedSession {
    #[default]
    NotLoaded,
    Missing,
    Loaded(Arc<SessionSnapshot>),
}

pub(super) struct SessionSnapshot {
    pub(super) record: SessionRecord,
    pub(super) version: u64,
    pub(super) expires: u64,
}

#[derive(Clone)]
pub(super) enum CookieChange {
    Set(String),
    Remove,
}

impl Session {
    /// The session of the cookie of a request.
    pub(super) fn from_cookie(settings: &Arc<SessionSettings>, request: &Request) -> Self {
        let is_secure = settings.is_always_secure || request.is_secure();
        let shown = match settings.cookie.read(request, is_secure) {
            None => SessionCookie::Missing,
            Some(text) => match (&settings.place.0, SessionId::parse(text)) {
                (BackendKind::Store(_), Some(id)) => SessionCookie::Id(id),
                _ => SessionCookie::Text(text.into()),
            },
        };
        Self(Arc::new(SessionInner {
            settings: settings.clone(),
            is_secure,
            #[cfg(feature = "validate")]
            path: normal_path(&format!("{}{}", mount_prefix(request), request.path())),
            state: Mutex::new(SessionState {
                shown,
                ..SessionState::default()
            }),
        }))
    }

    /// The session of a request behind the layer [`super::Sessions`]; for middleware.
    pub fn of(request: &Request) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    /// The value of this name.
    ///
    /// # Errors
    /// The store failed, or the value is not a `T`.
    pub async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SessionError> {
        let is_changed = self.state().changes.contains_key(name);
        if !is_changed {
            self.load_once().await?;
        }
        let mut state = self.state();
        state.was_used = true;
        let value = match (state.changes.get(name), &state.base) {
            (Some(value), _) => value.as_ref(),
            (None, LoadedSession::Loaded(known)) => known.record.values.get(name),
            (None, _) => None,
        };
        value
            .map(T::deserialize)
            .transpose()
            .map_err(|error| SessionError::value(name, error))
    }

    /// Sets the value of this name.
    ///
    /// # Errors
    /// The value cannot be serialized as JSON.
    pub fn insert<T: Serialize>(&self, name: &str, value: T) -> Result<(), SessionError> {
        let value =
            serde_json::to_value(value).map_err(|error| SessionError::value(name, error))?;
        self.change(name, Some(value));
        Ok(())
    }

    /// Removes the value of this name. A session ends with its last value.
    pub fn remove(&self, name: &str) {
        self.change(name, None);
    }

    /// Removes and returns the value of this name.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub async fn take<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SessionError> {
        let value = self.get(name).await?;
        if value.is_some() {
            self.remove(name);
        }
        Ok(value)
    }

    /// Sets a value for one read by [`Session::take_flash`], for example on the page that a form redirects
    /// to.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn flash<T: Serialize>(&self, name: &str, value: T) -> Result<(), SessionError> {
        self.insert(&format!("{FLASH}{name}"), value)
    }

    /// Removes and returns a value of [`Session::flash`].
    ///
    /// # Errors
    /// As [`Session::get`].
    pub async fn take_flash<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, SessionError> {
        self.take(&format!("{FLASH}{name}")).await
    }

    /// The names of the values of [`Session::flash`] that begin with a prefix.
    ///
    /// # Errors
    /// As [`Session::get`].
    #[cfg(feature = "validate")]
    pub(crate) async fn flash_names(&self, prefix: &str) -> Result<Vec<String>, SessionError> {
        self.load_once().await?;
        let mut state = self.state();
        state.was_used = true;
        let mut names: std::collections::BTreeSet<&str> = match &state.base {
            LoadedSession::Loaded(known) => {
                known.record.values.keys().map(|name| &**name).collect()
            }
            _ => std::collections::BTreeSet::new(),
        };
        for (name, value) in &state.changes {
            match value {
                Some(_) => names.insert(name),
                None => names.remove(&**name),
            };
        }
        let names = names.into_iter();
        let own = names.filter_map(|name| name.strip_prefix(FLASH));
        let wanted = own.filter(|name| name.starts_with(prefix));
        Ok(wanted.map(str::to_owned).collect())
    }

    /// The normalised path of the request.
    #[cfg(feature = "validate")]
    pub(crate) fn path(&self) -> &[u8] {
        &self.0.path
    }

    /// The time, in seconds since 1970.
    #[cfg(feature = "validate")]
    pub(crate) fn now(&self) -> u64 {
        self.0.settings.now()
    }

    /// Changes the id and keeps the values. Call it on log-in, since others may know the old id (session
    /// fixation). CSRF tokens change as well. From then on the session belongs to a user: a store that is full keeps it, and removes
    /// sessions of visitors.
    pub fn renew(&self) {
        self.remove(super::TOKEN);
        self.state().renew = true;
    }

    /// Ends the session: removes its values here and in the store. Values that are set later belong to a
    /// new session.
    pub fn destroy(&self) {
        let mut state = self.state();
        state.destroy = true;
        state.base = LoadedSession::Missing;
        state.changes.clear();
        state.was_used = true;
    }

    /// Writes the changes now. It is only needed after the head of the response was sent, as in a stream or
    /// a WebSocket. A new session cannot begin there.
    ///
    /// # Errors
    /// The store failed.
    pub async fn save(&self) -> Result<(), SessionError> {
        self.write().await
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SessionState> {
        // The lock is never held across an await, and no panic can leave the state inconsistent.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, name: &str, value: Option<Value>) {
        let mut state = self.state();
        state.changes.insert(name.to_owned(), value);
        state.was_used = true;
    }
}

/// A path without its last slash, as clients see it; one that is not valid as it is.
#[cfg(feature = "validate")]
pub(crate) fn normal_path(path: &str) -> Box<[u8]> {
    let normal = apus_http::path::normalise(path);
    let normal = normal.as_deref().unwrap_or(path.as_bytes());
    normal.strip_suffix(b"/").unwrap_or(normal).into()
}

/// Without the layer it is a 500, and an error is logged.
impl FromRequestHead for Session {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        Self::of(request).ok_or_else(|| {
            Error::not_provided("a handler takes a Session, but the App has no layer `Sessions`")
        })
    }

    fn check(route: &mut RouteCheck<'_>) {
        if route.lacks::<Self>() {
            route.mistake("the handler takes a Session, and no layer `Sessions` is around it");
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
