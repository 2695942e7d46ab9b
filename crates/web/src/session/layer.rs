//! `Sessions`: the layer that gives each request its session, and writes what was changed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_http::{Answer, Request, Response};

use super::cookie::CookieText;
use super::handle::{CookieChange, Session};
use super::state::Lifetime;
use super::store::SessionPlace;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{AtOnce, IntoResponse};
use apus_handler::{Error, Rendering};

/// The layer of sessions; see [the module](super).
///
/// Unless told otherwise, a session ends two hours after it was last used and a day after it began,
/// its values may have 64 KiB of JSON, and the cookie is called `session` and is forgotten when the
/// browser is closed.
#[derive(Clone)]
pub struct Sessions(Arc<Settings>);

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) place: Arc<SessionPlace>,
    pub(super) cookie: CookieText,
    pub(super) is_always_secure: bool,
    pub(super) lifetime: Lifetime,
    pub(super) max_bytes: usize,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Settings {
    /// Seconds since 1970.
    pub(super) fn now(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }
}

impl Sessions {
    /// Sessions that are kept in a store or a cookie.
    pub fn new(place: impl Into<SessionPlace>) -> Self {
        Self(Arc::new(Settings {
            place: Arc::new(place.into()),
            cookie: CookieText {
                name: "session",
                is_strict: false,
                max_age: None,
            },
            is_always_secure: false,
            lifetime: Lifetime {
                idle: 2 * 60 * 60,
                absolute: 24 * 60 * 60,
            },
            max_bytes: 64 * 1024,
            clock: Arc::new(SystemTime::now),
        }))
    }

    /// Another name for the cookie: letters, digits, `-` and `_`. Over TLS `__Host-` stands before
    /// it.
    #[must_use]
    pub fn cookie_name(self, name: &'static str) -> Self {
        self.with(|settings| settings.cookie.name = name)
    }

    /// Also for requests that came without TLS the cookie is for TLS only: behind a proxy that does
    /// TLS and is not known to [`crate::layers::TrustedProxies`].
    #[must_use]
    pub fn always_secure(self) -> Self {
        self.with(|settings| settings.is_always_secure = true)
    }

    /// The cookie is not sent either when a link of another site is followed (`SameSite=Strict`).
    #[must_use]
    pub fn strict(self) -> Self {
        self.with(|settings| settings.cookie.is_strict = true)
    }

    /// The cookie stays when the browser is closed, for as long as a session can last.
    #[must_use]
    pub fn persistent(self) -> Self {
        self.with(|settings| settings.cookie.max_age = Some(settings.lifetime.absolute))
    }

    /// How long a session lives without being used, in whole seconds.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        self.with(|settings| settings.lifetime.idle = idle.as_secs())
    }

    /// How long a session lives at most, in whole seconds.
    #[must_use]
    pub fn absolute(self, absolute: Duration) -> Self {
        self.with(|settings| {
            settings.lifetime.absolute = absolute.as_secs();
            if let Some(max_age) = &mut settings.cookie.max_age {
                *max_age = absolute.as_secs();
            }
        })
    }

    /// How many bytes of JSON the values of a session may have together. What is kept in a cookie
    /// has to fit there, too.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.with(|settings| settings.max_bytes = bytes)
    }

    /// Another clock, as tests need one.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.clock = Arc::new(clock))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl Middleware<AtOnce> for Sessions {
    fn call(&self, mut request: Request, next: Next) -> Answer {
        let session = Session::of_cookie(&self.0, &request);
        request.extensions_mut().insert(session.clone());
        let rendering = next.rendering(&request);
        match next.call(request) {
            Answer::Now(response) if session.is_settled() => session.tell(response).into(),
            Answer::Now(response) => Answer::later(finish(session, response, rendering)),
            Answer::Later(response) => Answer::later(async move {
                let response = response.await;
                finish(session, response, rendering).await
            }),
        }
    }
}

/// Writes what was changed, before any of the response is sent.
async fn finish(session: Session, response: Response, rendering: Rendering) -> Response {
    match session.write().await {
        Ok(()) => session.tell(response),
        Err(error) => rendering.apply(Error::from(error).into_response()),
    }
}

impl Session {
    /// Tells browser and caches what they have to know.
    fn tell(&self, mut response: Response) -> Response {
        let mut state = self.state();
        let settings = &self.0.settings;
        match state.cookie.take() {
            Some(CookieChange::Set(value)) => {
                settings
                    .cookie
                    .write(&mut response, self.0.is_secure, &value);
            }
            Some(CookieChange::Remove) => {
                settings.cookie.remove(&mut response, self.0.is_secure);
            }
            None => {}
        }
        // What depends on a visitor is nobody else's (RFC 9111 section 5.2.2.7).
        if state.was_asked && !response.headers().contains("cache-control") {
            let _ = response
                .headers_mut()
                .try_insert("cache-control", "no-cache, private");
        }
        response
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("place", &self.0.place)
            .finish_non_exhaustive()
    }
}
