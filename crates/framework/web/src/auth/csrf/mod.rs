//! Protection against cross-site request forgery.

mod form;
mod origin;
mod token;

use std::fmt;
use std::sync::Arc;

use apus_http::{Method, Request, Response, ResponseFuture, StatusCode};

use crate::session::{CookieText, Key, Session};
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, Rendering};
use apus_handler::{ResponseMarker, RouteCheck};

pub use token::CsrfToken;
use token::{CsrfSecret, SecretSource};

/// The cookie of [`Csrf::with_cookie`].
const COOKIE: CookieText = CookieText {
    name: "csrf",
    is_strict: false,
    max_age: None,
};

/// A layer that rejects requests that another site makes a browser send: 403.
///
/// It checks all requests except GET, HEAD, OPTIONS and TRACE: first their origin (`Sec-Fetch-Site`, else
/// `Origin`), then a token that only pages of this site have, in the field `X-CSRF-Token` or in
/// `csrf_token` of a form. In a form with files (`multipart/form-data`) the token must come before the files.
/// Handlers add it to pages by [`CsrfToken`]. Its text changes each time, so that compression does not
/// reveal it (BREACH).
///
/// ```
/// use apus::auth::{Csrf, CsrfToken};
/// use apus::session::{MemoryStore, Sessions};
/// use apus::{App, Html};
///
/// async fn form(token: CsrfToken) -> apus::Result<Html<String>> {
///     let field = token.field().await?;
///     Ok(Html(format!("<form method=post>{field}<button>Send</button></form>")))
/// }
///
/// let app = App::new()
///     .layer(Sessions::new(MemoryStore::new()))
///     .layer(Csrf::new())
///     .get("/", form)
///     .post("/", async || "sent\n");
/// # app.check().unwrap();
/// ```
#[derive(Clone)]
pub struct Csrf {
    /// The key of the cookie; `None` keeps tokens in the session.
    key: Option<Arc<Key>>,
    trusted: Arc<[Box<str>]>,
    is_exempt: Option<Arc<IsExempt>>,
    form_limit: usize,
}

type IsExempt = dyn Fn(&Request) -> bool + Send + Sync;

impl Csrf {
    /// Keeps tokens in the session; the layer [`crate::session::Sessions`] must be further out. For a visitor who is not logged in,
    /// that is a signed cookie, and no entry in the store of sessions.
    pub fn new() -> Self {
        Self {
            key: None,
            trusted: Arc::default(),
            is_exempt: None,
            form_limit: 64 * 1024,
        }
    }

    /// Keeps tokens in a signed cookie (double submit): the server keeps nothing, and visitors need no
    /// session.
    pub fn with_cookie(key: Key) -> Self {
        Self {
            key: Some(Arc::new(key)),
            ..Self::new()
        }
    }

    /// Accepts requests from pages of another origin, as `https://admin.example`. They need the token too.
    #[must_use]
    pub fn trust_origin(mut self, origin: &str) -> Self {
        let trusted = self.trusted.iter().cloned().chain([origin.into()]);
        self.trusted = trusted.collect();
        self
    }

    /// Accepts requests for which this function returns true without checks: those that no browser sends,
    /// for example with a bearer token.
    #[must_use]
    pub fn exempt(mut self, is_exempt: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.is_exempt = Some(Arc::new(is_exempt));
        self
    }

    /// The most bytes of a form that are read to find the token. Default: 64 KiB.
    #[must_use]
    pub fn form_limit(mut self, bytes: usize) -> Self {
        self.form_limit = bytes;
        self
    }

    /// The source of the secret for this request.
    fn source(&self, request: &Request) -> SecretSource {
        match &self.key {
            Some(key) => {
                let is_secure = request.is_secure();
                let shown = COOKIE.read(request, is_secure);
                let shown = shown.and_then(|text| CsrfSecret::open(text, key));
                SecretSource::cookie(shown)
            }
            None => Session::of(request).map_or(SecretSource::Missing, SecretSource::Session),
        }
    }

    /// Sets the cookie if a page got a token of a new secret.
    fn set_cookie(&self, token: &CsrfToken, is_secure: bool, mut response: Response) -> Response {
        if let (Some(key), Some(secret)) = (&self.key, token.made()) {
            COOKIE.write(&mut response, is_secure, &secret.sealed(key));
            if !response.headers().contains("cache-control") {
                let _ = response
                    .headers_mut()
                    .try_insert("cache-control", "no-cache, private");
            }
        }
        response
    }

    fn pass(&self, request: Request, token: CsrfToken, next: Next) -> ResponseFuture {
        if self.key.is_none() {
            return next.call(request);
        }
        let is_secure = request.is_secure();
        let this = self.clone();
        next.call(request)
            .map(move |response| this.set_cookie(&token, is_secure, response))
    }
}

impl Default for Csrf {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware<ResponseMarker> for Csrf {
    fn check(&self, route: &mut RouteCheck<'_>) {
        if self.key.is_none() && route.lacks::<Session>() {
            route.mistake(token::NO_SESSIONS);
        }
        route.provide::<CsrfToken>();
    }

    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let token = CsrfToken::of(self.source(&request));
        request.extensions_mut().insert(token.clone());
        let is_safe = matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
        );
        let is_exempt = || self.is_exempt.as_ref().is_some_and(|is| is(&request));
        if is_safe || is_exempt() {
            return self.pass(request, token, next);
        }
        let rendering = next.rendering(&request);
        if let Err(reason) = origin::check(&request, &self.trusted) {
            return refusal(&rendering, reason).into();
        }
        let this = self.clone();
        ResponseFuture::later(async move {
            let given = match request.headers().get_str("x-csrf-token") {
                Some(given) => Some(given.to_owned()),
                None => match form::find_token(&mut request, this.form_limit).await {
                    Ok(given) => given,
                    Err(error) => return rendering.respond(error),
                },
            };
            let Some(given) = given else {
                return refusal(&rendering, "the token of the form is missing");
            };
            match token.is(&given).await {
                Ok(true) => this.pass(request, token, next).wait().await,
                Ok(false) => refusal(&rendering, "the form is too old: load it again"),
                Err(error) => rendering.respond(Error::from(error)),
            }
        })
    }
}

fn refusal(rendering: &Rendering, reason: &str) -> Response {
    tracing::debug!(
        reason,
        "a request without valid CSRF token or origin was rejected"
    );
    rendering.respond(Error::new(StatusCode::FORBIDDEN, reason))
}

impl fmt::Debug for Csrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csrf")
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}
