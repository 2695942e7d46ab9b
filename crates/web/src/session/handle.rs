//! `Session`: what a handler takes to read and change what is remembered of a visitor.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apus_http::{Request, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::id::Id;
use super::layer::Settings;
use super::state::{Changes, Record};
use super::store::{Place, StoreError};
use apus_handler::{FromRequestHead, Matched};

/// Put before names of values that are read once.
const FLASH: &str = "~flash/";

/// The session of a visitor; an extractor. It is there for every request that came through
/// [`super::Sessions`], and begins with the first value that is put into it.
///
/// Values are what serde can make JSON of, each under a name. Names that begin with `~` are taken.
/// Changes are written when the response is ready, before any of it is sent; if they cannot be, the
/// response is a 500. See [the module](super) for what happens to requests at the same time.
#[derive(Clone)]
pub struct Session(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) settings: Arc<Settings>,
    pub(super) is_secure: bool,
    state: Mutex<State>,
}

/// What a request knows of its session and wants of it.
#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) shown: Shown,
    pub(super) base: Base,
    pub(super) changes: Changes,
    /// The id has to be another one.
    pub(super) renew: bool,
    /// What was there has to end.
    pub(super) destroy: bool,
    /// What the browser has to be told.
    pub(super) cookie: Option<CookieChange>,
    /// Whether the response may depend on the session.
    pub(super) was_asked: bool,
}

/// What the browser has in its cookie.
#[derive(Clone, Default)]
pub(super) enum Shown {
    #[default]
    Nothing,
    Id(Id),
    /// A cookie that holds the values, or something that is no session.
    Text(Box<str>),
}

/// What there was before this request changed anything.
#[derive(Clone, Default)]
pub(super) enum Base {
    /// It was not looked for yet.
    #[default]
    Unknown,
    Nothing,
    Known(Arc<Known>),
}

pub(super) struct Known {
    pub(super) record: Record,
    pub(super) version: u64,
    pub(super) expires: u64,
}

#[derive(Clone)]
pub(super) enum CookieChange {
    Set(String),
    Remove,
}

impl Session {
    /// The session of a request, as a cookie of it tells.
    pub(super) fn of_cookie(settings: &Arc<Settings>, request: &Request) -> Self {
        let is_secure = settings.is_always_secure || request.is_secure();
        let shown = match settings.cookie.read(request, is_secure) {
            None => Shown::Nothing,
            Some(text) => match (&settings.place.0, Id::parse(text)) {
                (Place::Store(_), Some(id)) => Shown::Id(id),
                _ => Shown::Text(text.into()),
            },
        };
        Self(Arc::new(Inner {
            settings: settings.clone(),
            is_secure,
            state: Mutex::new(State {
                shown,
                ..State::default()
            }),
        }))
    }

    /// The session of a request that came through [`super::Sessions`]; for middleware.
    pub fn of(request: &Request) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    /// The value of this name.
    ///
    /// # Errors
    /// The store could not be asked, or the value is no `T`.
    pub async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SessionError> {
        let is_changed = self.state().changes.contains_key(name);
        if !is_changed {
            self.look().await?;
        }
        let mut state = self.state();
        state.was_asked = true;
        let value = match (state.changes.get(name), &state.base) {
            (Some(value), _) => value.as_ref(),
            (None, Base::Known(known)) => known.record.values.get(name),
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
    /// JSON has nothing for it.
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

    /// Takes the value of this name out.
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

    /// Leaves a value for [`Session::take_flash`], as for the page that a form redirects to.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn flash<T: Serialize>(&self, name: &str, value: T) -> Result<(), SessionError> {
        self.insert(&format!("{FLASH}{name}"), value)
    }

    /// Takes out what [`Session::flash`] left: it is there once.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub async fn take_flash<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, SessionError> {
        self.take(&format!("{FLASH}{name}")).await
    }

    /// Changes the id and keeps the values. Call it when somebody logs in: an id from before may be
    /// known to others (session fixation). Tokens against forged requests change as well.
    pub fn renew(&self) {
        self.remove(super::TOKEN);
        self.state().renew = true;
    }

    /// Ends the session: its values are removed here and in the store. What is put into it from
    /// now on is of a new session.
    pub fn destroy(&self) {
        let mut state = self.state();
        state.destroy = true;
        state.base = Base::Nothing;
        state.changes.clear();
        state.was_asked = true;
    }

    /// Writes the changes now. It is only needed where something changes when the response is
    /// already on its way, as in a stream or a WebSocket; a new session cannot begin there.
    ///
    /// # Errors
    /// The store did not take them.
    pub async fn save(&self) -> Result<(), SessionError> {
        self.write().await
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // It is never held while anything waits, and no change of it can be left halfway.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, name: &str, value: Option<Value>) {
        let mut state = self.state();
        state.changes.insert(name.to_owned(), value);
        state.was_asked = true;
    }
}

/// With the layer missing, 500, and the log says so.
impl FromRequestHead for Session {
    type Rejection = StatusCode;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, StatusCode> {
        Self::of(request).ok_or_else(|| {
            tracing::error!("a handler takes a Session, but the App has no layer `Sessions`");
            StatusCode::INTERNAL_SERVER_ERROR
        })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// A session that could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionError {
    /// The store failed.
    Store(StoreError),
    /// A value is not what it was taken for, or cannot be JSON.
    Value {
        /// Its name.
        name: String,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// All values together are too much.
    TooLarge {
        /// How long they are.
        bytes: usize,
        /// How long they may be.
        max: usize,
    },
    /// Other requests changed the session again and again.
    Contended,
    /// The system has no random bytes.
    NoRandomness,
}

impl SessionError {
    fn value(name: &str, error: serde_json::Error) -> Self {
        Self::Value {
            name: name.to_owned(),
            error,
        }
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Value { name, error } => {
                write!(f, "the value {name:?} of the session: {error}")
            }
            Self::TooLarge { bytes, max } => {
                write!(f, "the session has {bytes} bytes and may have {max}")
            }
            Self::Contended => f.write_str("other requests change the session all the time"),
            Self::NoRandomness => f.write_str("the system has no random bytes"),
        }
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Value { error, .. } => Some(error),
            _ => None,
        }
    }
}
