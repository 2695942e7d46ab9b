//! Protection against cross-site request forgery.

mod form;
mod origin;
mod token;

use std::fmt;
use std::sync::Arc;

use apus_http::{Answer, Method, Request, Response, StatusCode};

use crate::session::{CookieText, Key, Session};
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, Rendering};
use apus_handler::{IntoResponse, ResponseMarker};

pub use token::CsrfToken;
use token::{CsrfSecret, SecretSource};

/// The cookie of [`Csrf::with_cookie`].
const COOKIE: CookieText = CookieText {
    name: "csrf",
    is_strict: false,
    max_age: None,
};

/// A layer that refuses what a browser sends on behalf of another site: 403.
///
/// It looks at requests that may change something, so not at GET, HEAD, OPTIONS and TRACE: first at
/// what the browser says of where they come from (`Sec-Fetch-Site`, else `Origin`), then for a token
/// that only a page of this site can have, in the field `X-CSRF-Token`, or in `csrf_token` of a form.
/// In a form with files (`multipart/form-data`) it has to come before them. Handlers put it into
/// pages by [`CsrfToken`]; it is another text each time, so that compression cannot give it away
/// (BREACH).
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
    /// Where there is none, tokens are of the session.
    key: Option<Arc<Key>>,
    trusted: Arc<[Box<str>]>,
    is_exempt: Option<Arc<IsExempt>>,
    form_limit: usize,
}

type IsExempt = dyn Fn(&Request) -> bool + Send + Sync;

impl Csrf {
    /// With tokens that are kept in the session; [`crate::session::Sessions`] has to be further out.
    /// A visitor who is shown a form has a session from then on.
    pub fn new() -> Self {
        Self {
            key: None,
            trusted: Arc::default(),
            is_exempt: None,
            form_limit: 64 * 1024,
        }
    }

    /// With tokens of a signed cookie (double submit): nothing is kept on the server, and a visitor
    /// needs no session.
    pub fn with_cookie(key: Key) -> Self {
        Self {
            key: Some(Arc::new(key)),
            ..Self::new()
        }
    }

    /// Takes requests that come from pages of another origin, as `https://admin.example`. They need
    /// the token all the same.
    #[must_use]
    pub fn trust_origin(mut self, origin: &str) -> Self {
        let trusted = self.trusted.iter().cloned().chain([origin.into()]);
        self.trusted = trusted.collect();
        self
    }

    /// Takes requests of which this function says so without a look: those that no browser sends,
    /// as of machines that bring a bearer token.
    #[must_use]
    pub fn exempt(mut self, is_exempt: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.is_exempt = Some(Arc::new(is_exempt));
        self
    }

    /// How many bytes of a form are read to find the token: 64 KiB unless set.
    #[must_use]
    pub fn form_limit(mut self, bytes: usize) -> Self {
        self.form_limit = bytes;
        self
    }

    /// Where the token of this request is.
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

    /// Gives the browser the cookie, if a page was given a token that goes with it.
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

    fn pass(&self, request: Request, token: CsrfToken, next: Next) -> Answer {
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
    fn call(&self, mut request: Request, next: Next) -> Answer {
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
        Answer::later(async move {
            let given = match request.headers().get_str("x-csrf-token") {
                Some(given) => Some(given.to_owned()),
                None => match form::find_token(&mut request, this.form_limit).await {
                    Ok(given) => given,
                    Err(error) => return rendering.apply(error.into_response()),
                },
            };
            let Some(given) = given else {
                return refusal(&rendering, "the token of the form is missing");
            };
            match token.is(&given).await {
                Ok(true) => this.pass(request, token, next).wait().await,
                Ok(false) => refusal(&rendering, "the form is too old: load it again"),
                Err(error) => rendering.apply(Error::from(error).into_response()),
            }
        })
    }
}

fn refusal(rendering: &Rendering, reason: &str) -> Response {
    tracing::debug!(reason, "a request is refused that may be forged");
    rendering.apply(Error::new(StatusCode::FORBIDDEN, reason).into_response())
}

impl fmt::Debug for Csrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csrf")
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}
