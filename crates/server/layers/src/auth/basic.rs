//! Name and password with every request (RFC 7617).

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use apus_http::{HeaderValue, RemoteUser, Request, ResponseFuture, StatusCode};

#[cfg(feature = "password")]
use super::Users;
use super::{Credentials, same, unauthorized};
use apus_handler::Error;
use apus_handler::ResponseMarker;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{FromRequestHead, Matched};

/// A layer that rejects requests without a valid name and password with 401. Clients send them with every
/// request, so the layer belongs behind TLS. A handler takes the name as [`BasicUser`].
///
/// ```
/// # use apus_layers::auth::{BasicAuth, BasicUser};
/// let auth = BasicAuth::user("status", "admin", "correct horse battery staple");
///
/// async fn status(BasicUser(name): BasicUser) -> String {
///     format!("hello {name}\n")
/// }
/// # let _ = auth;
/// ```
#[derive(Clone)]
pub struct BasicAuth {
    challenge: HeaderValue,
    check: Arc<Check>,
    /// The users, for debugging.
    users: Arc<str>,
}

type Check = dyn Fn(Credentials) -> Checked + Send + Sync;
type Checked = Pin<Box<dyn Future<Output = Result<bool, Error>>>>;

/// The result of a check of [`BasicAuth`]: a `bool`, or an [`Error`] that the client gets.
pub trait CredentialsCheck {
    /// Whether the request is allowed.
    ///
    /// # Errors
    /// The check failed: the response to the client.
    fn into_result(self) -> Result<bool, Error>;
}

impl CredentialsCheck for bool {
    fn into_result(self) -> Result<bool, Error> {
        Ok(self)
    }
}

impl CredentialsCheck for Result<bool, Error> {
    fn into_result(self) -> Result<bool, Error> {
        self
    }
}

impl BasicAuth {
    /// With a function that decides which users are allowed. The browser shows `realm`. The function
    /// should take as long for an unknown name as for a known one; `password::verify` does so for
    /// hashed passwords. The client gets an error of the function, for example a 429 if too many of
    /// its passwords are being compared.
    pub fn new<F, R>(realm: &str, check: F) -> Self
    where
        F: Fn(Credentials) -> R + Send + Sync + 'static,
        R: Future + 'static,
        R::Output: CredentialsCheck,
    {
        Self {
            challenge: challenge(realm),
            check: Arc::new(move |credentials| {
                let checked = check(credentials);
                Box::pin(async move { checked.await.into_result() })
            }),
            users: "those whom a function knows".into(),
        }
    }

    /// With one name and password, compared in constant time.
    pub fn user(realm: &str, name: &str, password: &str) -> Self {
        let (name, password) = (name.to_owned(), password.to_owned());
        Self::new(realm, move |given| {
            let is_name = same(given.name.as_bytes(), name.as_bytes());
            let is_password = same(given.password.as_bytes(), password.as_bytes());
            ready(is_name & is_password)
        })
    }

    /// With names and what `password::hash` made of their passwords.
    #[cfg(feature = "password")]
    pub fn users<N, H>(realm: &str, users: impl IntoIterator<Item = (N, H)>) -> Self
    where
        N: Into<String>,
        H: Into<String>,
    {
        Self::stored(realm, users.into_iter().collect())
    }

    /// With users whose passwords are stored, as in an `htpasswd` file.
    #[cfg(feature = "password")]
    pub fn stored(realm: &str, users: Users) -> Self {
        let text = format!("{users:?}").into();
        let users = Arc::new(users);
        let auth = Self::new(realm, move |given| {
            let users = users.clone();
            async move { users.check(given).await }
        });
        Self {
            users: text,
            ..auth
        }
    }
}

/// `Basic` with a realm in quotes, and the charset (RFC 7617 section 2.1).
fn challenge(realm: &str) -> HeaderValue {
    let plain: String = realm
        .chars()
        .filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\'))
        .collect();
    HeaderValue::from_str(&format!("Basic realm=\"{plain}\", charset=\"UTF-8\"")).unwrap_or(
        HeaderValue::from_static("Basic realm=\"\", charset=\"UTF-8\""),
    )
}

impl Middleware<ResponseMarker> for BasicAuth {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        let Some(given) = Credentials::of(&request) else {
            return unauthorized(&rendering, self.challenge.clone()).into();
        };
        let name = given.name.clone();
        let checked = (self.check)(given);
        let challenge = self.challenge.clone();
        ResponseFuture::later(async move {
            match checked.await {
                Ok(true) => {}
                Ok(false) => return unauthorized(&rendering, challenge),
                Err(error) => return rendering.respond(error),
            }
            let user = RemoteUser {
                name: name.as_str().into(),
                scheme: "Basic",
            };
            user.set(&mut request);
            request.extensions_mut().insert(BasicUser(name));
            next.call(request).wait().await
        })
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth")
            .field("challenge", &self.challenge)
            .field("users", &self.users)
            .finish_non_exhaustive()
    }
}

/// The name of the user that [`BasicAuth`] accepted; an extractor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicUser(pub String);

/// Without the layer, 401.
impl FromRequestHead for BasicUser {
    type Rejection = StatusCode;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, StatusCode> {
        let user = request.extensions().get::<Self>().cloned();
        user.ok_or(StatusCode::UNAUTHORIZED)
    }
}
