//! Cache keys of the store (RFC 9111 section 2), their hashes, and the names that are made of them.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;

/// A primary cache key within a site. Cheap to clone.
///
/// The bytes begin with the URL, so that a purge by prefix matches URLs, followed by the other
/// parts of the key. Two sites never share an object, whatever their keys are.
#[derive(Clone)]
pub struct StoreKey(Arc<StoreKeyParts>);

struct StoreKeyParts {
    site: Arc<str>,
    bytes: Box<[u8]>,
    hash: KeyHash,
}

impl StoreKey {
    /// The key `bytes` of the site named `site`.
    pub fn new(site: &Arc<str>, bytes: &[u8]) -> Self {
        Self(Arc::new(StoreKeyParts {
            site: site.clone(),
            bytes: bytes.into(),
            hash: KeyHash::of(&[site.as_bytes(), bytes]),
        }))
    }

    /// The name of the site.
    pub fn site(&self) -> &Arc<str> {
        &self.0.site
    }

    /// The bytes, without the site.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.0.hash
    }

    /// The hash of the variant with this secondary key; the hash of the primary key without one.
    pub(crate) fn variant(&self, secondary: &[u8]) -> KeyHash {
        if secondary.is_empty() {
            self.0.hash
        } else {
            KeyHash::of(&[self.site().as_bytes(), self.bytes(), secondary])
        }
    }
}

impl PartialEq for StoreKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.hash == other.0.hash
                && self.0.bytes == other.0.bytes
                && self.0.site == other.0.site)
    }
}

impl Eq for StoreKey {}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.site, self.0.bytes.escape_ascii())
    }
}

/// 128 bits of a SHA-256: collisions cannot be found, and it is the same after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct KeyHash(pub(crate) u128);

impl KeyHash {
    /// The hash of `parts`, each with its length, so that no two lists of parts have the same
    /// input.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let digest = context.finish();
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
            *to = *from;
        }
        Self(u128::from_be_bytes(bytes))
    }

    /// Sixteen bits of it, to distribute objects by.
    pub(crate) fn spread(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// It is distributed evenly, so that 64 of its bits suffice for any map.
impl std::hash::Hash for KeyHash {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64((self.0 >> 64) as u64);
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The name of an object's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectName {
    /// The hash of the primary key, which also determines the subdirectory.
    pub(crate) primary: KeyHash,
    /// The hash of the variant.
    pub(crate) hash: KeyHash,
}
