//! Name and password with every request (RFC 7617).

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use apus_http::{HeaderValue, RemoteUser, Request, ResponseFuture, StatusCode};

#[cfg(feature = "password")]
use super::Users;
use super::comparisons::{Comparisons, PasswordComparison};
use super::failures::FailureLimit;
use super::{Credentials, challenged, same};
use crate::access::{self, AccessCheck, AccessDecision, AccessGrant};
use apus_handler::Error;
use apus_handler::ResponseMarker;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{FromRequestHead, Matched};

/// A layer that rejects requests without a valid name and password with 401. Clients send them with every
/// request, so the layer belongs behind TLS. A handler takes the name as [`BasicUser`].
///
/// A client that sends ten wrong passwords for a name within a minute gets 429 for further ones, one of which is checked each six
/// seconds then ([`BasicAuth::failures_per_minute`]). All workers count together.
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
    comparisons: Arc<Comparisons>,
    failures: FailureLimit,
    /// Those whose passwords were right before are not checked again.
    #[cfg(feature = "password")]
    stored: Option<Arc<Users>>,
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
            comparisons: Comparisons::new(),
            failures: FailureLimit::default(),
            #[cfg(feature = "password")]
            stored: None,
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
        let stored = Some(users.clone());
        let auth = Self::new(realm, move |given| {
            let users = users.clone();
            async move { users.check(given).await }
        });
        Self {
            stored,
            users: text,
            ..auth
        }
    }

    /// How many wrong passwords of one client for one name are checked in a minute, all of which may come at once; further ones
    /// get 429 with `Retry-After`. An IPv6 network of 64 bits is one client; clients of Unix sockets are not limited. Default: 10.
    /// 0: no limit.
    #[must_use]
    pub fn failures_per_minute(mut self, count: u32) -> Self {
        self.failures = FailureLimit::per_minute(count);
        self
    }

    /// Whether the password was right before.
    fn is_verified(&self, given: &Credentials) -> bool {
        #[cfg(feature = "password")]
        if let Some(users) = &self.stored {
            return users.is_verified(given);
        }
        let _ = given;
        false
    }

    /// Whether the password is right. Requests with the same one at the same time share a comparison, and count once.
    async fn compare(&self, given: Credentials) -> Result<bool, Error> {
        loop {
            match self.comparisons.begin(&given) {
                PasswordComparison::Own(comparison) => {
                    // The comparison may have ended since this request looked.
                    if self.is_verified(&given) {
                        comparison.finish(true);
                        return Ok(true);
                    }
                    let counted = self.failures.count(given.client, &given.name)?;
                    let is_right = (self.check)(given).await?;
                    if !is_right {
                        counted.was_wrong();
                    }
                    comparison.finish(is_right);
                    return Ok(is_right);
                }
                PasswordComparison::Shared(comparison) => {
                    if let Some(is_right) = comparison.result().await {
                        return Ok(is_right);
                    }
                }
            }
        }
    }

    /// What a request of this user gets.
    fn admission(name: String) -> AccessGrant {
        AccessGrant::of_user(move |request| {
            let user = RemoteUser {
                name: name.as_str().into(),
                scheme: "Basic",
            };
            user.set(request);
            request.extensions_mut().insert(BasicUser(name));
        })
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

impl AccessCheck for BasicAuth {
    fn name(&self) -> &'static str {
        "basic_auth"
    }

    fn check(&self, request: &Request) -> AccessDecision {
        let Some(given) = Credentials::of(request) else {
            return AccessDecision::refused(challenged(self.challenge.clone()));
        };
        if self.is_verified(&given) {
            return AccessDecision::Now(Ok(Self::admission(given.name)));
        }
        let auth = self.clone();
        AccessDecision::Later(Box::pin(async move {
            let name = given.name.clone();
            if auth.compare(given).await? {
                Ok(Self::admission(name))
            } else {
                Err(challenged(auth.challenge))
            }
        }))
    }

    fn establishes_user(&self) -> bool {
        true
    }
}

impl Middleware<ResponseMarker> for BasicAuth {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
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
