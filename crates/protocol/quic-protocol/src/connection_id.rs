//! Connection IDs and stateless reset tokens (RFC 9000 sections 5.1 and 10.3).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use apus_tokens::Hexadecimal;
use aws_lc_rs::hmac;

/// The most bytes of a connection ID in version 1.
pub(crate) const MAX_LENGTH: usize = 20;
/// The bytes of a stateless reset token.
pub(crate) const RESET_TOKEN_LENGTH: usize = 16;

/// A connection ID of at most 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    length: u8,
    bytes: [u8; MAX_LENGTH],
}

impl ConnectionId {
    /// The connection ID with these bytes; what exceeds 20 bytes is left out.
    pub fn new(id: &[u8]) -> Self {
        let mut bytes = [0; MAX_LENGTH];
        let mut length = 0;
        for (to, from) in bytes.iter_mut().zip(id) {
            *to = *from;
            length += 1;
        }
        Self { length, bytes }
    }

    /// The connection ID with these bytes, unless there are more than 20.
    pub(crate) fn checked(id: &[u8]) -> Option<Self> {
        (id.len() <= MAX_LENGTH).then(|| Self::new(id))
    }
}

impl Deref for ConnectionId {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or(&self.bytes)
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Hexadecimal(self), f)
    }
}

/// Issues the connection IDs of an endpoint. All have the same length, of 8 to 20 bytes.
pub trait ConnectionIdGenerator {
    /// A new one, which no observer can link to others.
    fn generate(&mut self) -> ConnectionId;

    /// Whether an endpoint with the same keys may have issued this one. Only packets with such a connection ID get a
    /// stateless reset.
    fn is_valid(&self, id: &[u8]) -> bool;

    /// The length of all connection IDs in bytes.
    fn length(&self) -> usize;
}

/// A stateless reset token.
#[derive(Clone, Copy)]
pub(crate) struct ResetToken(pub(crate) [u8; RESET_TOKEN_LENGTH]);

impl ResetToken {
    /// The token of a connection ID that this key's endpoint issued (section 10.3.2).
    pub(crate) fn of(key: &hmac::Key, id: &[u8]) -> Self {
        let signature = hmac::sign(key, id);
        let token = signature.as_ref().first_chunk().copied();
        Self(token.unwrap_or_default())
    }
}

impl PartialEq for ResetToken {
    /// In a time that does not depend on the bytes (section 10.3.1).
    fn eq(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for ResetToken {}

impl Hash for ResetToken {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for ResetToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_at_most_20_bytes() {
        for length in [0, 1, 19, 20] {
            let bytes = vec![7; length];
            assert_eq!(&*ConnectionId::checked(&bytes).unwrap(), bytes);
        }
        assert_eq!(ConnectionId::checked(&[7; 21]), None);
        assert_eq!(ConnectionId::new(&[7; 21]).len(), 20);
    }

    #[test]
    fn the_reset_token_follows_from_key_and_id() {
        let key = |byte| hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32]);
        let token = ResetToken::of(&key(1), &[1, 2, 3]);
        assert_eq!(token, ResetToken::of(&key(1), &[1, 2, 3]));
        assert_ne!(token, ResetToken::of(&key(2), &[1, 2, 3]));
        assert_ne!(token, ResetToken::of(&key(1), &[1, 2, 4]));
    }
}
