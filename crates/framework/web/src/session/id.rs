//! `SessionId`: a random session id, which stores know only by its digest.

use std::fmt;

use apus_tokens::{Hexadecimal, random_bytes, sha256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::SessionError;

/// The id of a session: 256 random bits, which only the cookie contains, and whether its visitor is not logged in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionId {
    bytes: [u8; 32],
    is_visitor: bool,
}

/// Precedes the id of a visitor who is not logged in.
const VISITOR: char = 'v';

impl SessionId {
    /// An id for a user, or for a visitor who is not logged in.
    pub(super) fn random(is_visitor: bool) -> Result<Self, SessionError> {
        let bytes = random_bytes().map_err(|_| SessionError::NoRandomness)?;
        Ok(Self { bytes, is_visitor })
    }

    /// The id in a cookie; `None` if it is not valid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // 43 characters are 32 bytes.
        let of_visitor = text.strip_prefix(VISITOR).filter(|id| id.len() == 43);
        let mut bytes = [0; 33];
        let len = URL_SAFE_NO_PAD
            .decode_slice(of_visitor.unwrap_or(text), &mut bytes)
            .ok()?;
        Some(Self {
            bytes: bytes.get(..len)?.try_into().ok()?,
            is_visitor: of_visitor.is_some(),
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if self.is_visitor {
            text.push(VISITOR);
        }
        URL_SAFE_NO_PAD.encode_string(self.bytes, &mut text);
        text
    }

    /// The key of the session in stores.
    pub(super) fn key(&self) -> SessionKey {
        SessionKey {
            digest: sha256(&self.bytes),
            is_visitor: self.is_visitor,
        }
    }
}

/// The key of a session in a store: the SHA-256 digest of its id, and whether its visitor is not logged in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    digest: [u8; 32],
    is_visitor: bool,
}

impl SessionKey {
    /// The key of a user with this digest, for tests of a store.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self {
            digest,
            is_visitor: false,
        }
    }

    /// The same key of a visitor who is not logged in.
    #[must_use]
    pub fn of_visitor(self) -> Self {
        Self {
            is_visitor: true,
            ..self
        }
    }

    /// The digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Whether the session is of a visitor who is not logged in ([`super::Session::renew`] was not called). A store that is full
    /// removes such sessions first, and never removes another one for them.
    pub fn is_visitor(&self) -> bool {
        self.is_visitor
    }
}

/// 64 hexadecimal digits; for a visitor who is not logged in, `v` and the first 63 of them.
impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_visitor {
            let digits = Hexadecimal(&self.digest).to_string();
            write!(f, "v{:.63}", digits)
        } else {
            Hexadecimal(&self.digest).fmt(f)
        }
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
        let id = SessionId::random(false).unwrap();
        assert_eq!(id.text().len(), 43);
        assert!(SessionId::parse(&id.text()) == Some(id));
        assert!(id != SessionId::random(false).unwrap());
        let of_visitor = SessionId::random(true).unwrap();
        assert_eq!(of_visitor.text().len(), 44);
        assert!(SessionId::parse(&of_visitor.text()) == Some(of_visitor));
        // The id of a user is another one than the same bytes of a visitor.
        let claimed = SessionId::parse(&format!("v{}", id.text())).unwrap();
        assert_ne!(claimed.key(), id.key());
        assert_ne!(claimed.key().to_string(), id.key().to_string());
        for text in [
            "",
            "abc",
            &"A".repeat(44),
            &"v".repeat(42),
            &"v".repeat(45),
            &"=".repeat(43),
            &format!("{} ", id.text()),
        ] {
            assert!(SessionId::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn the_key_is_the_digest_of_the_id() {
        let id = |is_visitor| SessionId {
            bytes: [0; 32],
            is_visitor,
        };
        assert_eq!(
            id(false).key().to_string(),
            "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"
        );
        assert_eq!(
            id(true).key().to_string(),
            "v66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f292"
        );
    }
}
