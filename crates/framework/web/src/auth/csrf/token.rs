//! `CsrfToken`: the token that only pages of this site have.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use apus_http::Request;
use apus_tokens::random_bytes;
use aws_lc_rs::{constant_time, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::session::{Key, Session, SessionError, TOKEN};
use apus_handler::{Error, FromRequestHead, Matched, RouteCheck};

/// The secret that only this site and the browser of the visitor know.
#[derive(Clone, Copy)]
pub(super) struct CsrfSecret([u8; 32]);

impl CsrfSecret {
    fn random() -> Result<Self, SessionError> {
        let bytes = random_bytes().map_err(|_| SessionError::NoRandomness)?;
        Ok(Self(bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// The cookie value: with a signature, so that only cookies of this site are accepted.
    pub(super) fn sealed(&self, key: &Key) -> String {
        let tag = hmac::sign(&signing(key), &self.0);
        URL_SAFE_NO_PAD.encode([&self.0, tag.as_ref()].concat())
    }

    pub(super) fn open(text: &str, key: &Key) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (secret, tag) = bytes.split_first_chunk::<32>()?;
        hmac::verify(&signing(key), secret, tag).ok()?;
        Some(Self(*secret))
    }

    /// The token in a page: random bytes, and the secret XOR these bytes.
    fn masked(&self) -> Result<String, SessionError> {
        let mask = Self::random()?.0;
        Ok(URL_SAFE_NO_PAD.encode([mask, xor(&mask, &self.0)].concat()))
    }

    /// Whether a text is a token of this secret.
    fn is(&self, text: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(text) else {
            return false;
        };
        let Some((mask, masked)) = bytes.split_first_chunk::<32>() else {
            return false;
        };
        let Ok(masked) = <&[u8; 32]>::try_from(masked) else {
            return false;
        };
        constant_time::verify_slices_are_equal(&xor(mask, masked), &self.0).is_ok()
    }
}

fn signing(key: &Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &key.derive(b"csrf cookie"))
}

fn xor(one: &[u8; 32], other: &[u8; 32]) -> [u8; 32] {
    let mut result = *one;
    for (byte, other) in result.iter_mut().zip(other) {
        *byte ^= other;
    }
    result
}

/// The place of the secret of a request.
pub(super) enum SecretSource {
    Session(Session),
    Cookie {
        shown: Option<CsrfSecret>,
        /// The secret that was made because the request had none.
        made: Mutex<Option<CsrfSecret>>,
    },
    /// The layer of sessions is missing.
    Missing,
}

impl SecretSource {
    pub(super) fn cookie(shown: Option<CsrfSecret>) -> Self {
        Self::Cookie {
            shown,
            made: Mutex::default(),
        }
    }
}

/// Why a [`CsrfToken`] cannot be made.
pub(super) const NO_SESSIONS: &str =
    "`Csrf::new()` keeps tokens in sessions, and no layer `Sessions` is around it";

/// An extractor behind [`super::Csrf`]: the token for forms and scripts of a page.
#[derive(Clone)]
pub struct CsrfToken(Arc<SecretSource>);

impl CsrfToken {
    pub(super) fn of(source: SecretSource) -> Self {
        Self(Arc::new(source))
    }

    /// The token, for a script to send in `X-CSRF-Token`. It is made of letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// The session could not be read, or the system has no random bytes.
    pub async fn token(&self) -> Result<String, SessionError> {
        match self.secret().await? {
            Some(secret) => secret.masked(),
            None => self.make()?.masked(),
        }
    }

    /// The token as a hidden field, for a form.
    ///
    /// # Errors
    /// As [`CsrfToken::token`].
    pub async fn field(&self) -> Result<String, SessionError> {
        let token = self.token().await?;
        Ok(format!(
            "<input type=\"hidden\" name=\"csrf_token\" value=\"{token}\">"
        ))
    }

    /// Whether a text is the token of this visitor.
    pub(super) async fn is(&self, given: &str) -> Result<bool, SessionError> {
        let secret = self.secret().await?;
        Ok(secret.is_some_and(|secret| secret.is(given)))
    }

    /// The new secret, if the browser has no cookie.
    pub(super) fn made(&self) -> Option<CsrfSecret> {
        match &*self.0 {
            SecretSource::Cookie { made, .. } => {
                *made.lock().unwrap_or_else(PoisonError::into_inner)
            }
            _ => None,
        }
    }

    async fn secret(&self) -> Result<Option<CsrfSecret>, SessionError> {
        match &*self.0 {
            SecretSource::Session(session) => {
                let text = session.get::<String>(TOKEN).await?;
                Ok(text.and_then(|text| CsrfSecret::parse(&text)))
            }
            SecretSource::Cookie { shown, .. } => Ok(shown.or_else(|| self.made())),
            SecretSource::Missing => Ok(None),
        }
    }

    fn make(&self) -> Result<CsrfSecret, SessionError> {
        let secret = CsrfSecret::random()?;
        match &*self.0 {
            SecretSource::Session(session) => session.insert(TOKEN, secret.text())?,
            SecretSource::Cookie { made, .. } => {
                *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(secret);
            }
            SecretSource::Missing => {}
        }
        Ok(secret)
    }
}

/// Without the layer, or without the layer of sessions that it needs, it is a 500, and an error is logged.
impl FromRequestHead for CsrfToken {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        match request.extensions().get::<Self>() {
            Some(token) if matches!(*token.0, SecretSource::Missing) => {
                let missing = format!("a handler takes a CsrfToken, but {NO_SESSIONS}");
                Err(Error::not_provided(missing))
            }
            Some(token) => Ok(token.clone()),
            None => Err(Error::not_provided(
                "a handler takes a CsrfToken, but the App has no layer `Csrf`",
            )),
        }
    }

    fn check(route: &mut RouteCheck<'_>) {
        if route.lacks::<Self>() {
            route.mistake("the handler takes a CsrfToken, and no layer `Csrf` is around it");
        }
    }
}

impl fmt::Debug for CsrfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsrfToken").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_all_valid() {
        let secret = CsrfSecret::random().unwrap();
        let (one, other) = (secret.masked().unwrap(), secret.masked().unwrap());
        assert_ne!(one, other);
        assert!(secret.is(&one) && secret.is(&other));
        assert!(!CsrfSecret::random().unwrap().is(&one));
        for wrong in ["", "x", &one[1..], &secret.text(), &format!("{one}AA")] {
            assert!(!secret.is(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_cookie_needs_a_valid_signature() {
        let key = Key::new([1; 32]).unwrap();
        let sealed = CsrfSecret([7; 32]).sealed(&key);
        assert_eq!(CsrfSecret::open(&sealed, &key).unwrap().0, [7; 32]);
        assert!(CsrfSecret::open(&sealed, &Key::new([2; 32]).unwrap()).is_none());
        let unsigned = URL_SAFE_NO_PAD.encode([7; 32]);
        assert!(CsrfSecret::open(&unsigned, &key).is_none());
    }
}
