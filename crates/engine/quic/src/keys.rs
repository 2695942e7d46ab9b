//! The keys that all endpoints of a server share: for connection IDs, stateless resets and tokens (RFC 9000 sections
//! 5.1, 8.1 and 10.3).

use std::fmt;
use std::sync::Arc;

use apus_quic_protocol::TokenKey;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::{hmac, rand};

use crate::connection_id::ConnectionIdKey;

/// The keys that all endpoints of a server share, also the endpoints of the next configuration: with them, an
/// endpoint recognises the connection IDs and tokens of every other, and can reset connections of one that is
/// gone.
#[derive(Clone)]
pub struct QuicKeys {
    pub(crate) reset: Arc<hmac::Key>,
    pub(crate) tokens: Arc<TokenKey>,
    pub(crate) connection_id: Arc<ConnectionIdKey>,
}

impl QuicKeys {
    /// Random keys.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn generate() -> Result<Self, QuicKeysError> {
        let mut secret = [0; 32];
        rand::fill(&mut secret)?;
        Self::from_secret(&secret)
    }

    /// The keys that follow from this secret, for processes that have to share them.
    ///
    /// # Errors
    /// The cryptographic library failed.
    pub fn from_secret(secret: &[u8; 32]) -> Result<Self, QuicKeysError> {
        let root = Salt::new(HKDF_SHA256, b"apus quic").extract(secret);
        let derive = |label: &[u8]| -> Result<[u8; 32], Unspecified> {
            let mut key = [0; 32];
            root.expand(&[label], HKDF_SHA256)?.fill(&mut key)?;
            Ok(key)
        };
        let sha256 = |key: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, key);
        let mask = derive(b"connection id mask")?;
        Ok(Self {
            reset: Arc::new(sha256(&derive(b"stateless reset")?)),
            tokens: Arc::new(TokenKey::new(&derive(b"token")?)),
            connection_id: Arc::new(ConnectionIdKey::new(
                mask,
                sha256(&derive(b"connection id tag")?),
            )),
        })
    }
}

impl fmt::Debug for QuicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicKeys")
    }
}

/// The cryptographic library failed to make keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicKeysError;

impl From<Unspecified> for QuicKeysError {
    fn from(_: Unspecified) -> Self {
        Self
    }
}

impl fmt::Display for QuicKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cryptographic library failed to make keys for QUIC")
    }
}

impl std::error::Error for QuicKeysError {}
