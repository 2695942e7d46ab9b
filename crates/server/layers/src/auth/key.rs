//! `Key`: the secret of an application.

use std::fmt;

use apus_tokens::random_bytes;
use aws_lc_rs::hmac;

use super::KeyError;

/// A secret that cookies and URLs are signed or encrypted with.
///
/// All processes that serve the same visitors need the same key. It can create any session and URL, so keep it in
/// a file or a variable that only the application can read.
#[derive(Clone)]
pub struct Key(Box<[u8]>);

impl Key {
    /// A key of a secret of at least 32 bytes, which should be random: `openssl rand -base64 48`.
    ///
    /// # Errors
    /// The secret is shorter.
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let secret = secret.as_ref();
        if secret.len() < 32 {
            return Err(KeyError::TooShort {
                bytes: secret.len(),
                needed: 32,
            });
        }
        Ok(Self(secret.into()))
    }

    /// A random key: its sessions are lost when the process ends.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> Result<Self, KeyError> {
        let secret = random_bytes::<32>().map_err(|_| KeyError::NoRandomness)?;
        Ok(Self(secret.into()))
    }

    /// 32 bytes for one purpose (HKDF, RFC 5869, of which they are the first block).
    pub fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        let of = |key: &[u8], data: &[u8]| {
            let mut bytes = [0; 32];
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
            bytes.copy_from_slice(tag.as_ref());
            bytes
        };
        of(&of(b"apus", &self.0), &[purpose, &[1]].concat())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_secret_is_rejected() {
        assert_eq!(
            Key::new("password").unwrap_err(),
            KeyError::TooShort {
                bytes: 8,
                needed: 32
            }
        );
    }
}
