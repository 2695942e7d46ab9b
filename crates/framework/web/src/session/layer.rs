//! `Sessions`: the layer that loads the session of each request and writes its changes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apus_http::{Request, Response, ResponseFuture};

use super::cookie::CookieText;
use super::handle::{CookieChange, Session};
use super::settings::SessionSettings;
use super::state::Lifetime;
use super::store::SessionBackend;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, Rendering, ResponseMarker, RouteCheck};

/// The layer of sessions; see [the module](super).
///
/// By default, a session ends two hours after its last use and a day after its start, its values have at
/// most 64 KiB of JSON, and the cookie `session` ends when the browser closes.
#[derive(Clone)]
pub struct Sessions(Arc<SessionSettings>);

impl Sessions {
    /// Sessions in a store or a cookie.
    pub fn new(place: impl Into<SessionBackend>) -> Self {
        Self(Arc::new(SessionSettings {
            place: Arc::new(place.into()),
            visitors: Arc::default(),
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
            clock: Arc::new(apus_clock::now),
        }))
    }

    /// The name of the cookie: letters, digits, `-` and `_`. Over TLS it gets the prefix `__Host-`.
    #[must_use]
    pub fn cookie_name(self, name: &'static str) -> Self {
        self.with(|settings| settings.cookie.name = name)
    }

    /// Marks the cookie as secure for requests without TLS too: behind a proxy that terminates TLS and is
    /// not one of [`crate::layers::TrustedProxies`].
    #[must_use]
    pub fn always_secure(self) -> Self {
        self.with(|settings| settings.is_always_secure = true)
    }

    /// The browser does not send the cookie with links from other sites (`SameSite=Strict`).
    #[must_use]
    pub fn strict(self) -> Self {
        self.with(|settings| settings.cookie.is_strict = true)
    }

    /// The cookie stays when the browser closes, until the longest lifetime of a session.
    #[must_use]
    pub fn persistent(self) -> Self {
        self.with(|settings| settings.cookie.max_age = Some(settings.lifetime.absolute))
    }

    /// The lifetime of a session after its last use, in whole seconds.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        self.with(|settings| settings.lifetime.idle = idle.as_secs())
    }

    /// The longest lifetime of a session, in whole seconds.
    #[must_use]
    pub fn absolute(self, absolute: Duration) -> Self {
        self.with(|settings| {
            settings.lifetime.absolute = absolute.as_secs();
            if let Some(max_age) = &mut settings.cookie.max_age {
                *max_age = absolute.as_secs();
            }
        })
    }

    /// The most bytes of JSON of a session. A session in a cookie also has to fit into the cookie.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.with(|settings| settings.max_bytes = bytes)
    }

    /// Replaces the clock of the application.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.clock = Arc::new(clock))
    }

    fn with(mut self, change: impl FnOnce(&mut SessionSettings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl Middleware<ResponseMarker> for Sessions {
    fn check(&self, route: &mut RouteCheck<'_>) {
        route.provide::<Session>();
    }

    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let session = Session::from_cookie(&self.0, &request);
        request.extensions_mut().insert(session.clone());
        let rendering = next.rendering(&request);
        match next.call(request) {
            ResponseFuture::Now(response) if session.has_nothing_to_write() => {
                session.write_headers(response).into()
            }
            ResponseFuture::Now(response) => {
                ResponseFuture::later(finish(session, response, rendering))
            }
            ResponseFuture::Later(response) => ResponseFuture::later(async move {
                let response = response.await;
                finish(session, response, rendering).await
            }),
        }
    }
}

/// Writes the changes before any of the response is sent.
async fn finish(session: Session, response: Response, rendering: Rendering) -> Response {
    match session.write().await {
        Ok(()) => session.write_headers(response),
        Err(error) => rendering.respond(Error::from(error)),
    }
}

impl Session {
    /// Sets the cookie and `Cache-Control` of a response.
    fn write_headers(&self, mut response: Response) -> Response {
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
        // A shared cache must not store it (RFC 9111 section 5.2.2.7).
        if state.was_used && !response.headers().contains("cache-control") {
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
