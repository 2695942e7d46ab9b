//! Bearer tokens that a function looks up (RFC 6750).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use apus_http::{HeaderValue, Request, ResponseFuture};
use apus_tokens::{Hexadecimal, sha256};

use super::{challenged, credentials};
use crate::access::{self, AccessCheck, AccessDecision, AccessGrant};
use apus_handler::ResponseMarker;
use apus_handler::middleware::{Middleware, Next};

/// A layer that rejects requests without a valid token with 401. A function looks the token up; handlers take
/// its result by [`apus_handler::Extension`].
///
/// Store and look up the digest of a token ([`BearerAuth::digest`]): then the time of the lookup reveals
/// nothing, and a reader of the table gets no token.
///
/// ```
/// # use apus_handler::Extension;
/// # use apus_layers::auth::BearerAuth;
/// #[derive(Clone)]
/// struct Client(&'static str);
///
/// // What `BearerAuth::digest` makes of "shop-token".
/// const SHOP: &str = "88cc4600551e64b7cb97dd7f63ebad405255e5d17bdd71ee9fe1ed5cc20d0b3b";
///
/// let auth = BearerAuth::new(async |token: String| {
///     (BearerAuth::digest(&token) == SHOP).then_some(Client("shop"))
/// });
///
/// async fn name(Extension(client): Extension<Client>) -> &'static str {
///     client.0
/// }
/// # let _ = auth;
/// ```
pub struct BearerAuth<T> {
    find: Arc<Find<T>>,
}

type Find<T> = dyn Fn(String) -> Pin<Box<dyn Future<Output = Option<T>>>> + Send + Sync;

impl<T: Clone + Send + Sync + 'static> BearerAuth<T> {
    /// With a function that returns the owner of a token, or `None`.
    pub fn new<F, R>(find: F) -> Self
    where
        F: Fn(String) -> R + Send + Sync + 'static,
        R: Future<Output = Option<T>> + 'static,
    {
        Self {
            find: Arc::new(move |token| Box::pin(find(token))),
        }
    }
}

impl BearerAuth<()> {
    /// The SHA-256 of a token in 64 hexadecimal digits. Tokens must have at least 128 random bits.
    pub fn digest(token: &str) -> String {
        Hexadecimal(&sha256(token.as_bytes())).to_string()
    }
}

/// The challenges for a missing and for an invalid token (RFC 6750 section 3).
pub(super) const NO_TOKEN: HeaderValue = HeaderValue::from_static("Bearer");
pub(super) const WRONG_TOKEN: HeaderValue =
    HeaderValue::from_static("Bearer error=\"invalid_token\"");

impl<T: Clone + Send + Sync + 'static> AccessCheck for BearerAuth<T> {
    fn name(&self) -> &'static str {
        "bearer"
    }

    fn check(&self, request: &Request) -> AccessDecision {
        let Some(token) = credentials(request, "Bearer") else {
            return AccessDecision::refused(challenged(NO_TOKEN));
        };
        let found = (self.find)(token.to_owned());
        AccessDecision::Later(Box::pin(async move {
            let Some(owner) = found.await else {
                return Err(challenged(WRONG_TOKEN));
            };
            Ok(AccessGrant::of_user(|request| {
                request.extensions_mut().insert(owner);
            }))
        }))
    }

    fn establishes_user(&self) -> bool {
        true
    }
}

impl<T: Clone + Send + Sync + 'static> Middleware<ResponseMarker> for BearerAuth<T> {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
    }
}

impl<T> Clone for BearerAuth<T> {
    fn clone(&self) -> Self {
        Self {
            find: self.find.clone(),
        }
    }
}

impl<T> fmt::Debug for BearerAuth<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerAuth").finish_non_exhaustive()
    }
}
