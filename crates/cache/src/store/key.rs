//! What an object is found by: the cache key (RFC 9111 section 2), and the hash that stands for it.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;

/// A primary cache key within a site. Cheap to clone.
///
/// The bytes begin with the URL, so that a purge by prefix means what it says; what else the key is
/// made of comes behind it. Two sites never share an object, whatever their keys are.
#[derive(Clone)]
pub struct Key(Arc<Parts>);

struct Parts {
    site: Arc<str>,
    bytes: Box<[u8]>,
    hash: Hash,
}

impl Key {
    /// The key `bytes` of the site named `site`.
    pub fn new(site: &Arc<str>, bytes: &[u8]) -> Self {
        Self(Arc::new(Parts {
            site: site.clone(),
            bytes: bytes.into(),
            hash: Hash::of(&[site.as_bytes(), bytes]),
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

    pub(crate) fn hash(&self) -> Hash {
        self.0.hash
    }

    /// The hash of the variant that `secondary` selects below this key; the key's own without one.
    pub(crate) fn variant(&self, secondary: &[u8]) -> Hash {
        if secondary.is_empty() {
            self.0.hash
        } else {
            Hash::of(&[self.site().as_bytes(), self.bytes(), secondary])
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.hash == other.0.hash
                && self.0.bytes == other.0.bytes
                && self.0.site == other.0.site)
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.site, self.0.bytes.escape_ascii())
    }
}

/// 128 bits of a SHA-256: nobody finds two keys with the same one, and it is the same after a
/// restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Hash(pub(crate) u128);

impl Hash {
    /// The hash of `parts`, each with its length, so that no two lists of parts look alike.
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

    /// Sixteen bits of it, to spread objects by.
    pub(crate) fn spread(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// It is spread evenly already: sixty-four of its bits do for any map.
impl std::hash::Hash for Hash {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64((self.0 >> 64) as u64);
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
