//! JSON Web Key Sets (RFC 7517): the public keys of an issuer, or of a bot.

use std::fmt;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Header};

/// The public keys of an issuer, by which the signatures of its tokens are verified, or of a bot, by which its requests are.
///
/// A key is used only for algorithms of its own type, and for the one that it names if it names one. So nobody can choose the
/// algorithm of a token, and no public key is ever taken for a secret. Keys for something else, of unknown types, and secrets are
/// left out.
#[derive(Clone)]
pub struct KeySet {
    keys: Vec<SetKey>,
}

#[derive(Clone)]
struct SetKey {
    id: Option<Box<str>>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
    /// The key itself, if it is of Ed25519.
    ed25519: Option<Ed25519Key>,
}

/// A key of Ed25519 (RFC 8037), which signs messages.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "bots"),
    allow(dead_code, reason = "only bots sign messages")
)]
pub(crate) struct Ed25519Key {
    thumbprint: Box<str>,
    pub(crate) public: Box<[u8]>,
    /// From which second on, and until which one, it is used, as key directories say.
    not_before: Option<u64>,
    expires: Option<u64>,
}

/// The most keys of a set.
const MAX_KEYS: usize = 100;

/// The algorithms that the keys of a set may have.
const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// A text that is no key set, or that has no key for signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKeySet {
    /// It is no JSON object with an array `keys`.
    Syntax,
    /// It has more keys than are allowed.
    TooManyKeys,
    /// It has no key that can verify a signature.
    NoKeys,
}

impl fmt::Display for InvalidKeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => {
                f.write_str("this is no JSON Web Key Set: an object with an array `keys`")
            }
            Self::TooManyKeys => write!(f, "the key set has more than {MAX_KEYS} keys"),
            Self::NoKeys => f.write_str("the key set has no public key for signatures"),
        }
    }
}

impl std::error::Error for InvalidKeySet {}

impl KeySet {
    /// Reads a key set.
    ///
    /// # Errors
    /// It is none, or has no key for signatures.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidKeySet> {
        #[derive(serde::Deserialize)]
        struct Members {
            keys: Vec<serde_json::Value>,
        }

        let members: Members = serde_json::from_slice(text).map_err(|_| InvalidKeySet::Syntax)?;
        if members.keys.len() > MAX_KEYS {
            return Err(InvalidKeySet::TooManyKeys);
        }
        let keys = members.keys.into_iter();
        let keys: Vec<_> = keys.filter_map(SetKey::read).collect();
        if keys.is_empty() {
            return Err(InvalidKeySet::NoKeys);
        }
        Ok(Self { keys })
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has none, which no valid set has.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of Ed25519 with this thumbprint (RFC 7638).
    #[cfg(feature = "bots")]
    pub(crate) fn ed25519(&self, thumbprint: &str) -> Option<&Ed25519Key> {
        let mut keys = self.keys.iter().filter_map(|key| key.ed25519.as_ref());
        keys.find(|key| *key.thumbprint == *thumbprint)
    }

    /// The thumbprints of its keys of Ed25519.
    pub fn thumbprints(&self) -> impl Iterator<Item = &str> {
        let keys = self.keys.iter().filter_map(|key| key.ed25519.as_ref());
        keys.map(|key| &*key.thumbprint)
    }

    /// Whether it has the key that a token names. A token that names none may be signed with any.
    pub(super) fn knows(&self, header: &Header) -> bool {
        self.keys.iter().any(|key| key.is_named(header))
    }

    /// The keys that may have signed a token.
    pub(super) fn keys_of<'a>(
        &'a self,
        header: &'a Header,
    ) -> impl Iterator<Item = &'a DecodingKey> {
        let keys = self.keys.iter();
        let keys = keys.filter(|key| key.is_named(header) && key.algorithms.contains(&header.alg));
        keys.map(|key| &key.key)
    }
}

impl SetKey {
    fn read(value: serde_json::Value) -> Option<Self> {
        let ed25519 = Ed25519Key::read(&value);
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let is_for_signatures = match (&common.public_key_use, &common.key_operations) {
            (Some(key_use), _) => *key_use == PublicKeyUse::Signature,
            (None, Some(operations)) => operations.contains(&KeyOperations::Verify),
            (None, None) => true,
        };
        if !is_for_signatures {
            return None;
        }
        let of_type: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &RSA,
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => &[Algorithm::ES256],
                EllipticCurve::P384 => &[Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            // A secret in a public file is none.
            _ => return None,
        };
        let algorithms: Vec<_> = match common.key_algorithm {
            None => of_type.to_vec(),
            Some(named) => of_type
                .iter()
                .copied()
                .filter(|one| is(*one, named))
                .collect(),
        };
        if algorithms.is_empty() {
            return None;
        }
        Some(Self {
            id: common.key_id.as_deref().map(Into::into),
            key: DecodingKey::from_jwk(&jwk).ok()?,
            algorithms,
            ed25519,
        })
    }

    fn is_named(&self, header: &Header) -> bool {
        match &header.kid {
            Some(id) => self.id.as_deref() == Some(id),
            None => true,
        }
    }
}

impl Ed25519Key {
    fn read(value: &serde_json::Value) -> Option<Self> {
        let text = |name| value.get(name)?.as_str();
        if text("kty") != Some("OKP") || text("crv") != Some("Ed25519") {
            return None;
        }
        let encoded = text("x")?;
        let public = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        if public.len() != 32 {
            return None;
        }
        // RFC 8037 appendix A.3. The text has no byte that JSON would escape.
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{encoded}"}}"#);
        let thumbprint = digest::digest(&digest::SHA256, members.as_bytes());
        let second = |name| {
            let second = value.get(name)?.as_u64()?;
            // Some directories have milliseconds: seconds are that large after 5138.
            Some(if second >= 100_000_000_000 {
                second / 1000
            } else {
                second
            })
        };
        Some(Self {
            thumbprint: URL_SAFE_NO_PAD.encode(thumbprint).into(),
            public: public.into(),
            not_before: second("nbf"),
            expires: second("exp"),
        })
    }

    /// Whether the directory has the key for this second.
    #[cfg(feature = "bots")]
    pub(crate) fn is_for(&self, now: u64) -> bool {
        self.not_before.is_none_or(|from| from <= now)
            && self.expires.is_none_or(|until| now <= until)
    }
}

fn is(algorithm: Algorithm, named: KeyAlgorithm) -> bool {
    matches!(
        (algorithm, named),
        (Algorithm::RS256, KeyAlgorithm::RS256)
            | (Algorithm::RS384, KeyAlgorithm::RS384)
            | (Algorithm::RS512, KeyAlgorithm::RS512)
            | (Algorithm::PS256, KeyAlgorithm::PS256)
            | (Algorithm::PS384, KeyAlgorithm::PS384)
            | (Algorithm::PS512, KeyAlgorithm::PS512)
            | (Algorithm::ES256, KeyAlgorithm::ES256)
            | (Algorithm::ES384, KeyAlgorithm::ES384)
            | (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
    )
}

/// The ids of the keys.
impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.iter().map(|key| &key.id);
        f.debug_list().entries(ids).finish()
    }
}
