//! JSON Web Tokens in `Authorization: Bearer` (RFC 7519, RFC 8725).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use apus_http::{RemoteUser, Request, ResponseFuture, VerifiedClaims};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::de::DeserializeOwned;

use super::bearer::{NO_TOKEN, WRONG_TOKEN};
use super::key_set::KeySet;
use super::remote_key_set::{KnownKeys, RemoteKeySet};
use super::{KeyError, challenged, credentials};
use crate::access::{self, AccessCheck, AccessDecision, AccessGrant};
use apus_handler::Error;
use apus_handler::ResponseMarker;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{FromRequestHead, Matched};

/// A layer that rejects requests without a valid JSON Web Token with 401. Handlers take its claims as
/// [`Claims`].
///
/// The layer determines the algorithm, never the token. `exp` is required and must be in the future; `nbf`
/// is optional and must be in the past; both with a leeway of a minute by default. A token with an audience
/// is accepted only if that is [`JwtAuth::audience`].
///
/// ```
/// # use apus_layers::auth::{Claims, JwtAuth};
/// use serde::Deserialize;
///
/// #[derive(Clone, Deserialize)]
/// struct User {
///     sub: String,
/// }
///
/// # let secret = [7; 32];
/// let auth = JwtAuth::<User>::hs256(&secret)?
///     .issuer("https://id.example")
///     .audience("shop");
///
/// async fn me(Claims(user): Claims<User>) -> String {
///     user.sub
/// }
/// # let _ = auth;
/// # Ok::<(), apus_layers::auth::KeyError>(())
/// ```
pub struct JwtAuth<T> {
    keys: TokenKeys,
    validation: Arc<Validation>,
    is_optional: bool,
    claims: PhantomData<fn() -> T>,
}

/// The keys that tokens may be signed with.
#[derive(Clone)]
enum TokenKeys {
    /// All of the one algorithm.
    Fixed(Arc<[DecodingKey]>),
    /// The keys of an issuer.
    Set(Arc<KeySet>),
    /// The keys of an issuer, which are fetched.
    Remote(RemoteKeySet),
}

/// Why a token is not accepted.
enum TokenRefusal {
    /// It names a key that is not known.
    UnknownKey,
    /// It is not valid.
    Invalid(jsonwebtoken::errors::Error),
}

/// The algorithms of the keys of issuers.
const SET_ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

impl<T: DeserializeOwned + Clone + Send + Sync + 'static> JwtAuth<T> {
    /// For tokens that are signed with a key of a set. Each key is for the algorithms of its own type only.
    pub fn key_set(keys: KeySet) -> Self {
        Self::with_keys(&SET_ALGORITHMS, TokenKeys::Set(Arc::new(keys)))
    }

    /// As [`Self::key_set`], with keys that are fetched from the issuer. Until they are there, requests wait for them, and get
    /// 503 if they cannot be fetched.
    ///
    /// ```
    /// # use apus_layers::auth::{JwtAuth, RemoteKeySet};
    /// # use apus_http::{Response, StatusCode, service_fn};
    /// # let proxy = || service_fn(|_| Response::new(StatusCode::OK).into());
    /// // `proxy` is a `Proxy` to the host of the URL.
    /// let keys = RemoteKeySet::new(proxy, "https://id.example.com/.well-known/jwks.json")?;
    /// let auth = JwtAuth::<serde_json::Value>::remote_key_set(keys).issuer("https://id.example.com");
    /// # let _ = auth;
    /// # Ok::<(), apus_http::InvalidTarget>(())
    /// ```
    pub fn remote_key_set(keys: RemoteKeySet) -> Self {
        Self::with_keys(&SET_ALGORITHMS, TokenKeys::Remote(keys))
    }

    /// Accepts only tokens with one of these algorithms. Where the keys are no set, this has no effect.
    #[must_use]
    pub fn algorithms(self, algorithms: &[Algorithm]) -> Self {
        if matches!(self.keys, TokenKeys::Fixed(_)) {
            return self;
        }
        let is_for_sets = |algorithm: &&Algorithm| SET_ALGORITHMS.contains(algorithm);
        let allowed: Vec<_> = algorithms.iter().filter(is_for_sets).copied().collect();
        self.with(|validation| validation.algorithms = allowed)
    }

    /// For tokens that are signed with a shared secret (HMAC with SHA-256).
    ///
    /// # Errors
    /// The secret is shorter than 32 bytes (RFC 7518 section 3.2).
    pub fn hs256(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < 32 {
            return Err(KeyError::TooShort {
                bytes: secret.len(),
                needed: 32,
            });
        }
        Ok(Self::new(
            Algorithm::HS256,
            DecodingKey::from_secret(secret),
        ))
    }

    /// For tokens that are signed with this algorithm, with the key as a file holds it: for HMAC the secret,
    /// without spaces and line ends around it; else the public key in PEM.
    ///
    /// # Errors
    /// The secret is shorter than the algorithm's hash (RFC 7518 section 3.2), or the key is not one of this
    /// algorithm.
    pub fn from_key(algorithm: Algorithm, key: &[u8]) -> Result<Self, KeyError> {
        let secret = key.trim_ascii();
        let of_secret = |needed: usize| match secret.len() {
            bytes if bytes < needed => Err(KeyError::TooShort { bytes, needed }),
            _ => Ok(DecodingKey::from_secret(secret)),
        };
        let of_pem = |read: fn(&[u8]) -> jsonwebtoken::errors::Result<DecodingKey>| {
            read(key).map_err(|_| KeyError::Unreadable)
        };
        let key = match algorithm {
            Algorithm::HS256 => of_secret(32),
            Algorithm::HS384 => of_secret(48),
            Algorithm::HS512 => of_secret(64),
            Algorithm::ES256 | Algorithm::ES384 => of_pem(DecodingKey::from_ec_pem),
            Algorithm::EdDSA => of_pem(DecodingKey::from_ed_pem),
            _ => of_pem(DecodingKey::from_rsa_pem),
        };
        Ok(Self::new(algorithm, key?))
    }

    /// For tokens that are signed with this algorithm. With a public key, only the owner of the private key
    /// can issue tokens.
    pub fn new(algorithm: Algorithm, key: DecodingKey) -> Self {
        Self::with_keys(&[algorithm], TokenKeys::Fixed(Arc::new([key])))
    }

    fn with_keys(algorithms: &[Algorithm], keys: TokenKeys) -> Self {
        let mut validation = Validation::new(Algorithm::RS256);
        validation.algorithms = algorithms.to_vec();
        validation.validate_nbf = true;
        Self {
            keys,
            validation: Arc::new(validation),
            is_optional: false,
            claims: PhantomData,
        }
    }

    /// Accepts tokens of a further key of the same algorithm, while keys are replaced. A set of keys stays as it is.
    #[must_use]
    pub fn accept(mut self, key: DecodingKey) -> Self {
        if let TokenKeys::Fixed(keys) = &mut self.keys {
            *keys = keys.iter().cloned().chain([key]).collect();
        }
        self
    }

    /// The required issuer of tokens (`iss`).
    #[must_use]
    pub fn issuer(self, issuer: &str) -> Self {
        self.with(|validation| {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".to_owned());
        })
    }

    /// The required audience of tokens (`aud`).
    #[must_use]
    pub fn audience(self, audience: &str) -> Self {
        self.with(|validation| {
            validation.set_audience(&[audience]);
            validation.required_spec_claims.insert("aud".to_owned());
        })
    }

    /// The allowed difference of clocks, in whole seconds.
    #[must_use]
    pub fn leeway(self, leeway: Duration) -> Self {
        self.with(|validation| validation.leeway = leeway.as_secs())
    }

    /// Accepts requests without a token; handlers take `Option<Claims<T>>`. An invalid token is still
    /// rejected.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Validation)) -> Self {
        change(Arc::make_mut(&mut self.validation));
        self
    }

    fn claims<'k>(
        keys: impl IntoIterator<Item = &'k DecodingKey>,
        validation: &Validation,
        token: &str,
    ) -> Result<T, TokenRefusal> {
        let mut last = jsonwebtoken::errors::ErrorKind::InvalidSignature.into();
        for key in keys {
            match decode::<T>(token, key, validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => last = error,
            }
        }
        Err(TokenRefusal::Invalid(last))
    }

    /// The claims of a token that a key of a set has signed.
    fn claims_by_set(&self, set: &KeySet, token: &str) -> Result<T, TokenRefusal> {
        let header = decode_header(token).map_err(TokenRefusal::Invalid)?;
        if !self.validation.algorithms.contains(&header.alg) {
            let kind = jsonwebtoken::errors::ErrorKind::InvalidAlgorithm;
            return Err(TokenRefusal::Invalid(kind.into()));
        }
        if !set.knows(&header) {
            return Err(TokenRefusal::UnknownKey);
        }
        // The key decides whether the algorithm is one of its own.
        let validation = Validation {
            algorithms: vec![header.alg],
            ..(*self.validation).clone()
        };
        Self::claims(set.keys_of(&header), &validation, token)
    }

    /// The decision about a token by keys that may have to be fetched.
    fn check_by_remote_set(&self, remote: &RemoteKeySet, token: &str) -> AccessDecision {
        let attempt = match remote.keys() {
            KnownKeys::None => return AccessDecision::refused(keys_missing()),
            KnownKeys::Wait(attempt) => attempt,
            KnownKeys::Keys(keys) => match self.claims_by_set(&keys, token) {
                // The issuer may have a new key.
                Err(TokenRefusal::UnknownKey) => match remote.refresh() {
                    Some(attempt) => attempt,
                    None => return Self::decision(token, Err(TokenRefusal::UnknownKey)),
                },
                result => return Self::decision(token, result),
            },
        };
        let (this, remote, token) = (self.clone(), remote.clone(), token.to_owned());
        AccessDecision::Later(Box::pin(async move {
            let mut attempt = attempt;
            // An attempt ends with an error: nothing is sent.
            let _ = attempt.changed().await;
            let keys = remote.current().ok_or_else(keys_missing)?;
            Self::grant(&token, this.claims_by_set(&keys, &token))
        }))
    }

    fn decision(token: &str, result: Result<T, TokenRefusal>) -> AccessDecision {
        AccessDecision::Now(Self::grant(token, result))
    }

    fn grant(token: &str, result: Result<T, TokenRefusal>) -> Result<AccessGrant, Error> {
        let error = match result {
            Ok(claims) => {
                let (user, verified) = (user(token), payload(token));
                return Ok(AccessGrant::of_user(move |request| {
                    if let Some(user) = user {
                        user.set(request);
                    }
                    if let Some(verified) = verified {
                        verified.set(request);
                    }
                    request.extensions_mut().insert(Claims(claims));
                }));
            }
            Err(error) => error,
        };
        match error {
            TokenRefusal::UnknownKey => tracing::debug!("a token names an unknown key"),
            TokenRefusal::Invalid(error) => tracing::debug!(%error, "a token is refused"),
        }
        Err(challenged(WRONG_TOKEN))
    }
}

/// The response while there are no keys.
fn keys_missing() -> Error {
    Error::unavailable("no token can be verified at the moment")
}

impl<T: DeserializeOwned + Clone + Send + Sync + 'static> AccessCheck for JwtAuth<T> {
    fn name(&self) -> &'static str {
        "jwt"
    }

    fn check(&self, request: &Request) -> AccessDecision {
        let Some(token) = credentials(request, "Bearer") else {
            if self.is_optional {
                return AccessDecision::ADMITTED;
            }
            return AccessDecision::refused(challenged(NO_TOKEN));
        };
        let result = match &self.keys {
            TokenKeys::Fixed(keys) => Self::claims(&**keys, &self.validation, token),
            TokenKeys::Set(keys) => self.claims_by_set(keys, token),
            TokenKeys::Remote(remote) => return self.check_by_remote_set(remote, token),
        };
        Self::decision(token, result)
    }

    fn establishes_user(&self) -> bool {
        true
    }
}

impl<T: DeserializeOwned + Clone + Send + Sync + 'static> Middleware<ResponseMarker>
    for JwtAuth<T>
{
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
    }
}

/// The user of a token that was verified: its `sub` (RFC 7519 section 4.1.2), if it has one.
fn user(token: &str) -> Option<RemoteUser> {
    #[derive(serde::Deserialize)]
    struct Subject {
        sub: String,
    }

    let claims = jsonwebtoken::dangerous::insecure_decode_claims::<Subject>(token).ok()?;
    (!claims.sub.is_empty()).then(|| RemoteUser {
        name: claims.sub.into(),
        scheme: "Bearer",
    })
}

/// The claims of a token that was verified.
fn payload(token: &str) -> Option<VerifiedClaims> {
    let bytes = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    String::from_utf8(bytes)
        .ok()
        .map(|text| VerifiedClaims(text.into()))
}

impl<T> Clone for JwtAuth<T> {
    fn clone(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            validation: self.validation.clone(),
            is_optional: self.is_optional,
            claims: PhantomData,
        }
    }
}

impl<T> fmt::Debug for JwtAuth<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtAuth")
            .field("validation", &self.validation)
            .field("is_optional", &self.is_optional)
            .finish_non_exhaustive()
    }
}

/// The claims of a valid token; an extractor behind [`JwtAuth`].
#[derive(Clone, Copy, Debug)]
pub struct Claims<T>(pub T);

/// Without a token, 401.
impl<T: Clone + Send + Sync + 'static> FromRequestHead for Claims<T> {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        request.extensions().get::<Self>().cloned().ok_or_else(|| {
            let error = Error::new(apus_http::StatusCode::UNAUTHORIZED, "a token is missing");
            error.header(apus_http::header::WWW_AUTHENTICATE, NO_TOKEN)
        })
    }
}
