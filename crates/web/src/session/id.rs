//! `SessionId`: a random session id, which stores know only by its digest.

use std::fmt;

use aws_lc_rs::{digest, rand};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::SessionError;

/// The id of a session: 256 random bits, which only the cookie contains.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionId([u8; 32]);

impl SessionId {
    pub(super) fn random() -> Result<Self, SessionError> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_| SessionError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// The id in a cookie; `None` if it is not valid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 33];
        let len = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        let bytes = bytes.get(..len)?.try_into().ok()?;
        Some(Self(bytes))
    }

    pub(super) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// The key of the session in stores.
    pub(super) fn key(&self) -> SessionKey {
        let mut key = [0; 32];
        key.copy_from_slice(digest::digest(&digest::SHA256, &self.0).as_ref());
        SessionKey(key)
    }
}

/// The key of a session in a store: the SHA-256 digest of its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// A key with this digest, for tests of a store.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_ids_are_parsed() {
        let id = SessionId::random().unwrap();
        assert_eq!(id.text().len(), 43);
        assert!(SessionId::parse(&id.text()) == Some(id));
        assert!(id != SessionId::random().unwrap());
        for text in [
            "",
            "abc",
            &"A".repeat(44),
            &"=".repeat(43),
            &format!("{} ", id.text()),
        ] {
            assert!(SessionId::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn the_key_is_the_digest_of_the_id() {
        let key = SessionId([0; 32]).key();
        assert_eq!(
            key.to_string(),
            "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"
        );
    }
}
