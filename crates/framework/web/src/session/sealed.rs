//! Sessions in a cookie, signed (HMAC-SHA-256, RFC 2104) or encrypted (AES-256-GCM, NIST SP 800-38D).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use apus_layers::auth::Key;

/// Keeps sessions in a cookie that the visitor can read but not change.
///
/// The server keeps nothing, so a copy of the cookie stays valid until it expires, even if the session was
/// ended. All values together must fit into about 4,000 bytes.
pub struct SignedCookie {
    /// The first key signs; all are accepted.
    keys: Vec<hmac::Key>,
}

impl SignedCookie {
    /// Signs with this key.
    pub fn new(key: &Key) -> Self {
        Self {
            keys: vec![Self::derived(key)],
        }
    }

    /// Accepts cookies that were signed with an old key.
    #[must_use]
    pub fn accept(mut self, key: &Key) -> Self {
        self.keys.push(Self::derived(key));
        self
    }

    fn derived(key: &Key) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &key.derive(b"signed session cookie"))
    }

    fn seal(&self, name: &str, content: &str) -> Option<String> {
        let content = URL_SAFE_NO_PAD.encode(content);
        let tag = hmac::sign(self.keys.first()?, format!("{name}={content}").as_bytes());
        Some(format!("{content}.{}", URL_SAFE_NO_PAD.encode(tag)))
    }

    fn open(&self, name: &str, text: &str) -> Option<Vec<u8>> {
        let (content, tag) = text.split_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        let signed = format!("{name}={content}");
        let is_valid = |key| hmac::verify(key, signed.as_bytes(), &tag).is_ok();
        if !self.keys.iter().any(is_valid) {
            return None;
        }
        URL_SAFE_NO_PAD.decode(content).ok()
    }
}

impl fmt::Debug for SignedCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedCookie").finish_non_exhaustive()
    }
}

/// Keeps sessions in a cookie that the visitor can neither read nor change.
///
/// The server keeps nothing, as with [`SignedCookie`]. Replace a key before it encrypted 2^32 cookies
/// (NIST SP 800-38D section 8.3).
pub struct EncryptedCookie {
    /// The first key encrypts; all are accepted.
    keys: Vec<RandomizedNonceKey>,
}

impl EncryptedCookie {
    /// Encrypts with this key.
    pub fn new(key: &Key) -> Self {
        Self {
            keys: Self::derived(key).into_iter().collect(),
        }
    }

    /// Accepts cookies that were encrypted with an old key.
    #[must_use]
    pub fn accept(mut self, key: &Key) -> Self {
        self.keys.extend(Self::derived(key));
        self
    }

    fn derived(key: &Key) -> Option<RandomizedNonceKey> {
        // The key has the length of the algorithm, so it does not fail.
        RandomizedNonceKey::new(&AES_256_GCM, &key.derive(b"encrypted session cookie")).ok()
    }

    fn seal(&self, name: &str, content: &str) -> Option<String> {
        let mut bytes = content.as_bytes().to_vec();
        let nonce = self
            .keys
            .first()?
            .seal_in_place_append_tag(Aad::from(name), &mut bytes)
            .ok()?;
        bytes.extend_from_slice(nonce.as_ref());
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    fn open(&self, name: &str, text: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (sealed, nonce) = bytes.split_last_chunk::<NONCE_LEN>()?;
        self.keys.iter().find_map(|key| {
            let mut opened = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let len = key
                .open_in_place(nonce, Aad::from(name), &mut opened)
                .ok()?
                .len();
            opened.truncate(len);
            Some(opened)
        })
    }
}

impl fmt::Debug for EncryptedCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptedCookie").finish_non_exhaustive()
    }
}

/// A cookie that is signed or encrypted.
pub(super) enum Sealer {
    Encrypted(EncryptedCookie),
    Signed(SignedCookie),
}

impl Sealer {
    /// The value of the cookie of this name; `None` if the system has no random bytes.
    pub(super) fn seal(&self, name: &str, content: &str) -> Option<String> {
        match self {
            Self::Encrypted(cookie) => cookie.seal(name, content),
            Self::Signed(cookie) => cookie.seal(name, content),
        }
    }

    /// The text of a sealed cookie of this name; `None` if it is not valid.
    pub(super) fn open(&self, name: &str, text: &str) -> Option<String> {
        let content = match self {
            Self::Encrypted(cookie) => cookie.open(name, text),
            Self::Signed(cookie) => cookie.open(name, text),
        };
        String::from_utf8(content?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new([byte; 32]).unwrap()
    }

    fn both(keys: &[u8]) -> [Sealer; 2] {
        let mut encrypted = EncryptedCookie::new(&key(keys[0]));
        let mut signed = SignedCookie::new(&key(keys[0]));
        for byte in &keys[1..] {
            encrypted = encrypted.accept(&key(*byte));
            signed = signed.accept(&key(*byte));
        }
        [Sealer::Encrypted(encrypted), Sealer::Signed(signed)]
    }

    #[test]
    fn only_unchanged_cookies_are_opened() {
        for sealer in both(&[1]) {
            let text = sealer.seal("session", "{\"a\":1}").unwrap();
            assert_eq!(sealer.open("session", &text).as_deref(), Some("{\"a\":1}"));
            assert_eq!(sealer.open("other", &text), None);
            for at in 0..text.len() {
                let mut changed = text.clone().into_bytes();
                changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(sealer.open("session", &changed), None, "{at} of {text}");
                assert_eq!(sealer.open("session", &text[..at]), None);
            }
        }
    }

    #[test]
    fn encrypted_cookies_are_unreadable_and_differ() {
        let [encrypted, _] = both(&[1]);
        let text = encrypted.seal("session", "secret").unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"secret"));
        assert_ne!(encrypted.seal("session", "secret").unwrap(), text);
    }

    #[test]
    fn old_keys_are_accepted_while_they_are_listed() {
        for ((old, both), new) in both(&[1]).into_iter().zip(both(&[2, 1])).zip(both(&[2])) {
            let text = old.seal("session", "x").unwrap();
            assert_eq!(both.open("session", &text).as_deref(), Some("x"));
            assert_eq!(new.open("session", &text), None);
            let text = both.seal("session", "x").unwrap();
            assert_eq!(new.open("session", &text).as_deref(), Some("x"));
        }
    }
}
