//! Loading a session, and writing its changes to the store or the cookie.

use std::sync::Arc;

use super::error::{SessionError, StoreError};
use super::handle::{
    CookieChange, LoadedSession, Session, SessionCookie, SessionSnapshot, SessionState,
};
use super::id::SessionId;
use super::sealed::{Sealer, SignedCookie};
use super::state::SessionRecord;
use super::store::{BackendKind, SessionStore, SessionWrite};
use apus_layers::auth::Key;

/// The number of attempts to apply changes to a session that concurrent requests change.
const ATTEMPTS: usize = 16;

impl Session {
    /// Loads the session unless it is loaded.
    pub(super) async fn load_once(&self) -> Result<(), SessionError> {
        let shown = {
            let state = self.state();
            match state.base {
                LoadedSession::NotLoaded => state.shown.clone(),
                _ => return Ok(()),
            }
        };
        let found = self.find(&shown).await?;
        let mut state = self.state();
        if matches!(state.base, LoadedSession::NotLoaded) {
            if found.is_none() && !matches!(shown, SessionCookie::Missing) {
                // The session does not exist, so the cookie is useless.
                state.cookie = Some(CookieChange::Remove);
            }
            state.base = found.map_or(LoadedSession::Missing, LoadedSession::Loaded);
        }
        Ok(())
    }

    /// The session of a cookie.
    async fn find(
        &self,
        shown: &SessionCookie,
    ) -> Result<Option<Arc<SessionSnapshot>>, SessionError> {
        let settings = &self.0.settings;
        let known = match (&settings.place.0, shown) {
            (BackendKind::Store(store), SessionCookie::Id(id)) => {
                load(&**store, id, settings.now()).await?
            }
            (BackendKind::Cookie(sealer), SessionCookie::Text(text)) => {
                opened(sealer, settings.cookie.name, text)
            }
            (BackendKind::Store(store), SessionCookie::Text(text)) => {
                let sealer = self.visitor_sealer(&**store).await?;
                opened(sealer, settings.cookie.name, text)
            }
            _ => None,
        };
        let now = settings.now();
        Ok(known
            .filter(|known| {
                let created = known.record.created;
                now < known.expires && now < created.saturating_add(settings.lifetime.absolute)
            })
            .map(Arc::new))
    }

    /// What signs the cookies of visitors who have no session in the store.
    async fn visitor_sealer(&self, store: &dyn SessionStore) -> Result<&Sealer, SessionError> {
        let settings = &self.0.settings;
        let make = async || {
            let key = Key::new(store.visitor_key(settings.now()).await?);
            let key = key.map_err(StoreError::new)?;
            Ok(Sealer::Signed(SignedCookie::new(&key)))
        };
        settings.visitors.get_or_try_init(make).await
    }

    /// Whether there is nothing to write to the store or the cookie.
    pub(super) fn has_nothing_to_write(&self) -> bool {
        let state = self.state();
        let is_unchanged = state.changes.is_empty() && !state.renew && !state.destroy;
        let is_noted = match &state.base {
            LoadedSession::Loaded(known) => !self.needs_touch(known),
            _ => true,
        };
        is_unchanged && is_noted && state.cookie.is_none()
    }

    fn needs_touch(&self, known: &SessionSnapshot) -> bool {
        let settings = &self.0.settings;
        let created = known.record.created;
        settings
            .lifetime
            .needs_touch(settings.now(), created, known.expires)
    }

    /// Writes the changes of this request.
    pub(super) async fn write(&self) -> Result<(), SessionError> {
        if self.has_nothing_to_write() {
            return Ok(());
        }
        let wanted = self.state().clone();
        let written = match &self.0.settings.place.0 {
            BackendKind::Store(store) => self.store(&**store, &wanted).await?,
            BackendKind::Cookie(_) => self.seal(&wanted).await?,
        };
        let mut state = self.state();
        // Changes that were made meanwhile stay for the next write.
        state
            .changes
            .retain(|name, value| wanted.changes.get(name) != Some(value));
        state.renew = false;
        state.destroy = false;
        state.shown = written.shown;
        state.base = written.base;
        if written.cookie.is_some() {
            state.cookie = written.cookie;
        }
        Ok(())
    }

    /// Writes changes to a store.
    async fn store(
        &self,
        store: &dyn SessionStore,
        wanted: &SessionState,
    ) -> Result<WriteOutcome, SessionError> {
        let settings = &self.0.settings;
        let mut id = match &wanted.shown {
            SessionCookie::Id(id) => Some(*id),
            _ => None,
        };
        if wanted.destroy
            && let Some(id) = id.take()
        {
            store.remove(&id.key(), None).await?;
        }
        let mut known = match &wanted.base {
            LoadedSession::Loaded(known) => Some(known.clone()),
            LoadedSession::NotLoaded if !wanted.destroy => self.find(&wanted.shown).await?,
            _ => None,
        };
        let Some(id) = id else {
            return self.begin(store, known, wanted).await;
        };
        let was_known = known.is_some();
        for _ in 0..ATTEMPTS {
            let Some(old) = &known else {
                if was_known {
                    tracing::debug!("a session ended while a request was about to change it");
                    return Ok(WriteOutcome::missing(&wanted.shown));
                }
                return self.begin(store, None, wanted).await;
            };
            let now = settings.now();
            let values = old.record.changed(&wanted.changes);
            if values.is_none() && !wanted.renew {
                if self.needs_touch(old) {
                    let expires = settings.lifetime.expires(now, old.record.created);
                    store.touch(&id.key(), expires).await?;
                }
                return Ok(WriteOutcome {
                    shown: SessionCookie::Id(id),
                    base: LoadedSession::Loaded(old.clone()),
                    cookie: None,
                });
            }
            let record = SessionRecord {
                // A log-in starts a new lifetime.
                created: if wanted.renew {
                    now
                } else {
                    old.record.created
                },
                expires: None,
                values: values.unwrap_or_else(|| old.record.values.clone()),
            };
            if record.values.is_empty() {
                if store.remove(&id.key(), Some(old.version)).await? {
                    return Ok(WriteOutcome::missing(&wanted.shown));
                }
            } else if let Some(written) = self.replace(store, (id, old), record, wanted).await? {
                return Ok(written);
            }
            // Another request changed the session: apply the changes to the new version.
            known = self.find(&SessionCookie::Id(id)).await?;
        }
        Err(SessionError::Contended)
    }

    /// Replaces the record that was read, under a new id on renewal; `None` if another request changed it.
    async fn replace(
        &self,
        store: &dyn SessionStore,
        (id, old): (SessionId, &SessionSnapshot),
        record: SessionRecord,
        wanted: &SessionState,
    ) -> Result<Option<WriteOutcome>, SessionError> {
        let settings = &self.0.settings;
        let now = settings.now();
        let expires = settings.lifetime.expires(now, record.created);
        let content = self.content(&record)?;
        let new = if wanted.renew {
            SessionId::random(false)?
        } else {
            id
        };
        let save = SessionWrite {
            key: &new.key(),
            content: &content,
            replaces: (!wanted.renew).then_some(old.version),
            expires,
            now,
        };
        if !store.save(save).await? {
            return Ok(None);
        }
        if wanted.renew && !store.remove(&id.key(), Some(old.version)).await? {
            // Another request changed the old record, so the new one is removed as well.
            store.remove(&new.key(), None).await?;
            return Ok(None);
        }
        Ok(Some(WriteOutcome {
            shown: SessionCookie::Id(new),
            cookie: wanted.renew.then(|| CookieChange::Set(new.text())),
            base: LoadedSession::Loaded(Arc::new(SessionSnapshot {
                record,
                version: save.version(),
                expires,
            })),
        }))
    }

    /// Creates a session if there are values for it; `known` is the session of a visitor, in the cookie.
    ///
    /// What the framework itself keeps for a visitor who is not logged in, such as the secret of forms, stays in the cookie: whoever
    /// requests pages without a cookie, again and again, fills no store.
    async fn begin(
        &self,
        store: &dyn SessionStore,
        known: Option<Arc<SessionSnapshot>>,
        wanted: &SessionState,
    ) -> Result<WriteOutcome, SessionError> {
        let settings = &self.0.settings;
        let now = settings.now();
        let base = known.as_ref().map_or_else(
            || SessionRecord {
                created: now,
                ..SessionRecord::default()
            },
            |known| known.record.clone(),
        );
        let values = base.changed(&wanted.changes);
        if values.is_none()
            && !wanted.renew
            && let Some(known) = known.filter(|known| !self.needs_touch(known))
        {
            return Ok(WriteOutcome {
                shown: wanted.shown.clone(),
                base: LoadedSession::Loaded(known),
                cookie: None,
            });
        }
        let values = values.unwrap_or(base.values);
        if values.is_empty() {
            return Ok(WriteOutcome::missing(&wanted.shown));
        }
        let created = if wanted.renew { now } else { base.created };
        let expires = settings.lifetime.expires(now, created);
        let record = SessionRecord {
            created,
            expires: None,
            values,
        };
        let is_of_framework = |name: &String| name.starts_with(RESERVED);
        if !wanted.renew && record.values.keys().all(is_of_framework) {
            let sealer = self.visitor_sealer(store).await?;
            let record = SessionRecord {
                expires: Some(expires),
                ..record.clone()
            };
            match self.sealed(sealer, record, expires) {
                // It does not fit into a cookie.
                Err(SessionError::TooLarge {
                    max: MAX_COOKIE, ..
                }) => {}
                written => return written,
            }
        }
        let id = SessionId::random(!wanted.renew)?;
        let save = SessionWrite {
            key: &id.key(),
            content: &self.content(&record)?,
            replaces: None,
            expires,
            now,
        };
        if !store.save(save).await? {
            return Err(SessionError::Contended);
        }
        Ok(WriteOutcome {
            shown: SessionCookie::Id(id),
            cookie: Some(CookieChange::Set(id.text())),
            base: LoadedSession::Loaded(Arc::new(SessionSnapshot {
                record,
                version: save.version(),
                expires,
            })),
        })
    }

    /// Makes the cookie with the values after the changes.
    async fn seal(&self, wanted: &SessionState) -> Result<WriteOutcome, SessionError> {
        let settings = &self.0.settings;
        let old = match &wanted.base {
            LoadedSession::Loaded(known) => Some(known.clone()),
            LoadedSession::NotLoaded if !wanted.destroy => self.find(&wanted.shown).await?,
            _ => None,
        };
        let now = settings.now();
        let base = old.as_ref().map_or_else(
            || SessionRecord {
                created: now,
                ..SessionRecord::default()
            },
            |old| old.record.clone(),
        );
        let values = base.changed(&wanted.changes);
        let is_used = old.as_ref().is_some_and(|old| self.needs_touch(old));
        if values.is_none() && !wanted.renew && !is_used && !wanted.destroy {
            return Ok(WriteOutcome {
                shown: wanted.shown.clone(),
                base: old.map_or(LoadedSession::Missing, LoadedSession::Loaded),
                cookie: None,
            });
        }
        let values = values.unwrap_or(base.values);
        if values.is_empty() {
            return Ok(WriteOutcome::missing(&wanted.shown));
        }
        let created = if wanted.renew { now } else { base.created };
        let expires = settings.lifetime.expires(now, created);
        let record = SessionRecord {
            created,
            expires: Some(expires),
            values,
        };
        match &settings.place.0 {
            BackendKind::Cookie(sealer) => self.sealed(sealer, record, expires),
            BackendKind::Store(_) => Err(SessionError::NoRandomness),
        }
    }

    /// The cookie with a record.
    fn sealed(
        &self,
        sealer: &Sealer,
        record: SessionRecord,
        expires: u64,
    ) -> Result<WriteOutcome, SessionError> {
        let content = self.content(&record)?;
        let text = sealer.seal(self.0.settings.cookie.name, &content);
        let text = text.ok_or(SessionError::NoRandomness)?;
        if text.len() > MAX_COOKIE {
            return Err(SessionError::TooLarge {
                bytes: text.len(),
                max: MAX_COOKIE,
            });
        }
        Ok(WriteOutcome {
            shown: SessionCookie::Text(text.as_str().into()),
            cookie: Some(CookieChange::Set(text)),
            base: LoadedSession::Loaded(Arc::new(SessionSnapshot {
                record,
                version: 0,
                expires,
            })),
        })
    }

    /// The JSON of a record.
    fn content(&self, record: &SessionRecord) -> Result<String, SessionError> {
        let content = serde_json::to_string(record).map_err(|error| SessionError::Value {
            name: String::new(),
            error,
        })?;
        let max = self.0.settings.max_bytes;
        if content.len() > max {
            return Err(SessionError::TooLarge {
                bytes: content.len(),
                max,
            });
        }
        Ok(content)
    }
}

/// Names of values that begin with it belong to the framework.
const RESERVED: char = '~';

/// The longest cookie value; browsers accept 4096 bytes with name and attributes (RFC 6265 section 6.1).
const MAX_COOKIE: usize = 4096 - 128;

/// The state after a session was written.
struct WriteOutcome {
    shown: SessionCookie,
    base: LoadedSession,
    cookie: Option<CookieChange>,
}

impl WriteOutcome {
    /// No session. A cookie of the request is removed.
    fn missing(shown: &SessionCookie) -> Self {
        Self {
            shown: SessionCookie::Missing,
            base: LoadedSession::Missing,
            cookie: (!matches!(shown, SessionCookie::Missing)).then_some(CookieChange::Remove),
        }
    }
}

/// The session of a cookie with values.
fn opened(sealer: &Sealer, name: &str, text: &str) -> Option<SessionSnapshot> {
    let record: SessionRecord = serde_json::from_str(&sealer.open(name, text)?).ok()?;
    Some(SessionSnapshot {
        expires: record.expires.unwrap_or(0),
        record,
        version: 0,
    })
}

async fn load(
    store: &dyn SessionStore,
    id: &SessionId,
    now: u64,
) -> Result<Option<SessionSnapshot>, SessionError> {
    let Some(stored) = store.load(&id.key(), now).await? else {
        return Ok(None);
    };
    match serde_json::from_str(&stored.content) {
        Ok(record) => Ok(Some(SessionSnapshot {
            record,
            version: stored.version,
            expires: stored.expires,
        })),
        Err(error) => {
            tracing::error!(%error, "a stored session is not valid and is ignored");
            Ok(None)
        }
    }
}
