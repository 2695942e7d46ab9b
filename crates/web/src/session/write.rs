//! How a session is looked for, and how its changes reach where it is kept.

use std::sync::Arc;

use super::handle::{Base, CookieChange, Known, Session, SessionError, Shown, State};
use super::id::Id;
use super::state::Record;
use super::store::{Place, Save, SessionStore};

/// How often changes are made again to what another request left.
const ATTEMPTS: usize = 16;

impl Session {
    /// Finds out what there is, once.
    pub(super) async fn look(&self) -> Result<(), SessionError> {
        let shown = {
            let state = self.state();
            match state.base {
                Base::Unknown => state.shown.clone(),
                _ => return Ok(()),
            }
        };
        let found = self.find(&shown).await?;
        let mut state = self.state();
        if matches!(state.base, Base::Unknown) {
            if found.is_none() && !matches!(shown, Shown::Nothing) {
                // The browser need not bring it again.
                state.cookie = Some(CookieChange::Remove);
            }
            state.base = found.map_or(Base::Nothing, Base::Known);
        }
        Ok(())
    }

    /// What a cookie stands for.
    async fn find(&self, shown: &Shown) -> Result<Option<Arc<Known>>, SessionError> {
        let settings = &self.0.settings;
        let known = match (&settings.place.0, shown) {
            (Place::Store(store), Shown::Id(id)) => load(&**store, id, settings.now()).await?,
            (Place::Cookie(sealer), Shown::Text(text)) => sealer
                .open(settings.cookie.name, text)
                .and_then(|content| serde_json::from_str::<Record>(&content).ok())
                .map(|record| Known {
                    expires: record.expires.unwrap_or(0),
                    record,
                    version: 0,
                }),
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

    /// Whether nothing has to be written and the browser has to be told nothing.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state();
        let is_unchanged = state.changes.is_empty() && !state.renew && !state.destroy;
        let is_noted = match &state.base {
            Base::Known(known) => !self.needs_touch(known),
            _ => true,
        };
        is_unchanged && is_noted && state.cookie.is_none()
    }

    fn needs_touch(&self, known: &Known) -> bool {
        let settings = &self.0.settings;
        let created = known.record.created;
        settings
            .lifetime
            .needs_touch(settings.now(), created, known.expires)
    }

    /// Writes what this request changed.
    pub(super) async fn write(&self) -> Result<(), SessionError> {
        if self.is_settled() {
            return Ok(());
        }
        let wanted = self.state().clone();
        let written = match &self.0.settings.place.0 {
            Place::Store(store) => self.store(&**store, &wanted).await?,
            Place::Cookie(_) => self.seal(&wanted).await?,
        };
        let mut state = self.state();
        // What was changed while this waited is for the next time.
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

    /// Brings changes into a store.
    async fn store(
        &self,
        store: &dyn SessionStore,
        wanted: &State,
    ) -> Result<Written, SessionError> {
        let settings = &self.0.settings;
        let mut id = match &wanted.shown {
            Shown::Id(id) => Some(*id),
            _ => None,
        };
        if wanted.destroy
            && let Some(id) = id.take()
        {
            store.remove(&id.key(), None).await?;
        }
        let mut known = match (&wanted.base, id) {
            (Base::Known(known), _) => Some(known.clone()),
            (Base::Unknown, Some(_)) => self.find(&wanted.shown).await?,
            _ => None,
        };
        let was_known = known.is_some();
        for _ in 0..ATTEMPTS {
            let (Some(id), Some(old)) = (id, &known) else {
                if was_known {
                    tracing::debug!("a session ended while a request was about to change it");
                    return Ok(Written::nothing(&wanted.shown));
                }
                return self.begin(store, wanted).await;
            };
            let now = settings.now();
            let values = old.record.changed(&wanted.changes);
            if values.is_none() && !wanted.renew {
                if self.needs_touch(old) {
                    let expires = settings.lifetime.expires(now, old.record.created);
                    store.touch(&id.key(), expires).await?;
                }
                return Ok(Written {
                    shown: Shown::Id(id),
                    base: Base::Known(old.clone()),
                    cookie: None,
                });
            }
            let record = Record {
                // Who logs in begins anew.
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
                    return Ok(Written::nothing(&wanted.shown));
                }
            } else if let Some(written) = self.replace(store, (id, old), record, wanted).await? {
                return Ok(written);
            }
            // Somebody else was faster: once more, with what is there now.
            known = self.find(&Shown::Id(id)).await?;
        }
        Err(SessionError::Contended)
    }

    /// Writes a record in the place of the one that was read, under a new id if need be; nothing if
    /// another one is there by now.
    async fn replace(
        &self,
        store: &dyn SessionStore,
        (id, old): (Id, &Known),
        record: Record,
        wanted: &State,
    ) -> Result<Option<Written>, SessionError> {
        let settings = &self.0.settings;
        let now = settings.now();
        let expires = settings.lifetime.expires(now, record.created);
        let content = self.content(&record)?;
        let new = if wanted.renew { Id::random()? } else { id };
        let save = Save {
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
            // The old one has become another; with it goes what was made of it.
            store.remove(&new.key(), None).await?;
            return Ok(None);
        }
        Ok(Some(Written {
            shown: Shown::Id(new),
            cookie: wanted.renew.then(|| CookieChange::Set(new.text())),
            base: Base::Known(Arc::new(Known {
                record,
                version: save.version(),
                expires,
            })),
        }))
    }

    /// Makes a session where there was none, if there is anything to be put into it.
    async fn begin(
        &self,
        store: &dyn SessionStore,
        wanted: &State,
    ) -> Result<Written, SessionError> {
        let settings = &self.0.settings;
        let now = settings.now();
        let empty = Record {
            created: now,
            ..Record::default()
        };
        let Some(values) = empty.changed(&wanted.changes) else {
            return Ok(Written::nothing(&wanted.shown));
        };
        let record = Record { values, ..empty };
        let expires = settings.lifetime.expires(now, now);
        let id = Id::random()?;
        let save = Save {
            key: &id.key(),
            content: &self.content(&record)?,
            replaces: None,
            expires,
            now,
        };
        if !store.save(save).await? {
            return Err(SessionError::Contended);
        }
        Ok(Written {
            shown: Shown::Id(id),
            cookie: Some(CookieChange::Set(id.text())),
            base: Base::Known(Arc::new(Known {
                record,
                version: save.version(),
                expires,
            })),
        })
    }

    /// Makes the cookie that holds the values after the changes.
    async fn seal(&self, wanted: &State) -> Result<Written, SessionError> {
        let settings = &self.0.settings;
        let old = match &wanted.base {
            Base::Known(known) => Some(known.clone()),
            Base::Unknown if !wanted.destroy => self.find(&wanted.shown).await?,
            _ => None,
        };
        let now = settings.now();
        let base = old.as_ref().map_or_else(
            || Record {
                created: now,
                ..Record::default()
            },
            |old| old.record.clone(),
        );
        let values = base.changed(&wanted.changes);
        let is_used = old.as_ref().is_some_and(|old| self.needs_touch(old));
        if values.is_none() && !wanted.renew && !is_used && !wanted.destroy {
            return Ok(Written {
                shown: wanted.shown.clone(),
                base: old.map_or(Base::Nothing, Base::Known),
                cookie: None,
            });
        }
        let values = values.unwrap_or(base.values);
        if values.is_empty() {
            return Ok(Written::nothing(&wanted.shown));
        }
        let created = if wanted.renew { now } else { base.created };
        let expires = settings.lifetime.expires(now, created);
        let record = Record {
            created,
            expires: Some(expires),
            values,
        };
        let content = self.content(&record)?;
        let text = match &settings.place.0 {
            Place::Cookie(sealer) => sealer.seal(settings.cookie.name, &content),
            Place::Store(_) => None,
        };
        let text = text.ok_or(SessionError::NoRandomness)?;
        if text.len() > MAX_COOKIE {
            return Err(SessionError::TooLarge {
                bytes: text.len(),
                max: MAX_COOKIE,
            });
        }
        Ok(Written {
            shown: Shown::Text(text.as_str().into()),
            cookie: Some(CookieChange::Set(text)),
            base: Base::Known(Arc::new(Known {
                record,
                version: 0,
                expires,
            })),
        })
    }

    /// The JSON of a record.
    fn content(&self, record: &Record) -> Result<String, SessionError> {
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

/// What a browser has to take of one cookie, with its name and attributes (RFC 6265 section 6.1).
const MAX_COOKIE: usize = 4096 - 128;

/// What is there after a session was written.
struct Written {
    shown: Shown,
    base: Base,
    cookie: Option<CookieChange>,
}

impl Written {
    /// No session; the browser is told, if it thinks there is one.
    fn nothing(shown: &Shown) -> Self {
        Self {
            shown: Shown::Nothing,
            base: Base::Nothing,
            cookie: (!matches!(shown, Shown::Nothing)).then_some(CookieChange::Remove),
        }
    }
}

async fn load(store: &dyn SessionStore, id: &Id, now: u64) -> Result<Option<Known>, SessionError> {
    let Some(stored) = store.load(&id.key(), now).await? else {
        return Ok(None);
    };
    match serde_json::from_str(&stored.content) {
        Ok(record) => Ok(Some(Known {
            record,
            version: stored.version,
            expires: stored.expires,
        })),
        Err(error) => {
            tracing::error!(%error, "a stored session cannot be read, and is taken for none");
            Ok(None)
        }
    }
}
