//! A certificate with its chain and private key, which are checked to belong together.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use apus_private_files::{PrivateFiles, register};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::pem::{PemFault, certificates_from_pem, keys_from_pem};

/// The shortest RSA key that TLS libraries take.
// aws-lc-rs takes no shorter key, and authorities issue no certificate for one (CA/Browser Forum, Baseline Requirements
// section 6.1.5).
const MIN_RSA_BITS: usize = 2048;

/// A certificate chain, leaf first, with the key of its leaf.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Vec<Box<str>>,
    not_after: i64,
}

impl Certificate {
    /// Reads a chain and a key in PEM form (RFC 7468).
    ///
    /// # Errors
    /// A part is missing or unreadable, of a kind that TLS cannot use, or the key is another
    /// certificate's.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain = certificates_from_pem(chain).map_err(CertificateError::Chain)?;
        let keys = keys_from_pem(key).map_err(CertificateError::Key)?;
        let leaf = chain.first().ok_or(CertificateError::Missing)?.clone();
        let (_, leaf) = X509Certificate::from_der(&leaf)
            .map_err(|error| CertificateError::Unreadable(error.to_string()))?;
        let count = keys.len();
        let mut unfit = None;
        for key in keys {
            match CertifiedKey::from_der(chain.clone(), key, &aws_lc_rs::default_provider()) {
                Ok(key) => {
                    return Ok(Self {
                        names: names(&leaf),
                        not_after: leaf.validity().not_after.timestamp(),
                        key: Arc::new(key),
                    });
                }
                Err(error) => unfit = Some(error),
            }
        }
        Err(match unfit {
            Some(rustls::Error::InconsistentKeys(_)) => match fitting(&chain, key) {
                Some(at) => CertificateError::Order(at),
                None => CertificateError::KeyMismatch(count),
            },
            Some(error) => CertificateError::UnreadableKey(unusable_key(&leaf, &error)),
            None => CertificateError::UnreadableKey("there is none".to_owned()),
        })
    }

    /// What clients may stumble over, although the certificate and its key can be used: each with what to do.
    pub fn chain_faults(&self) -> Vec<PemFault> {
        let chain: Vec<_> = self
            .key
            .cert
            .iter()
            .filter_map(|der| X509Certificate::from_der(der).ok())
            .map(|(_, certificate)| certificate)
            .collect();
        let mut faults = Vec::new();
        for (at, pair) in chain.windows(2).enumerate() {
            if let [of, issuer] = pair
                && of.issuer().as_raw() != issuer.subject().as_raw()
            {
                faults.push(PemFault::new(format!(
                    "the certificates are in the wrong order, or one is missing: number {} (`{}`) did not issue number {} \
                     (`{}`); each one has to be followed by its issuer",
                    at + 2,
                    issuer.subject(),
                    at + 1,
                    of.subject(),
                )));
            }
        }
        // A self-signed certificate has no issuer that could be missing.
        if let [leaf] = chain.as_slice()
            && leaf.issuer().as_raw() != leaf.subject().as_raw()
        {
            faults.push(PemFault::new(format!(
                "the certificate of its issuer (`{}`) is missing: clients that do not have it refuse the connection; append it, \
                 as in `cat cert.pem issuer.pem > fullchain.pem`",
                leaf.issuer()
            )));
        }
        if let Some(leaf) = chain.first()
            && leaf.validity().not_before.timestamp() > now()
        {
            faults.push(PemFault::new(format!(
                "the certificate is not valid yet: from {} on",
                leaf.validity().not_before
            )));
        }
        faults
    }

    /// Reads a chain and a key from files in PEM form, before anything is served. No service of this
    /// process sends the file of the key.
    ///
    /// # Errors
    /// As of [`Certificate::from_pem`], or a file cannot be read.
    pub fn from_files(
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, CertificateError> {
        // Before the files are read: a key that TLS cannot use is still one that must not be sent.
        register(PrivateFiles::default().file(key.as_ref()));
        Self::from_pem(&read(chain.as_ref())?, &read(key.as_ref())?)
    }

    /// The DNS names, wildcards too, and IP addresses that the certificate is for, in lower case.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// When it expires, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// The chain and the key, as rustls takes them.
    pub fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(path).map_err(|error| CertificateError::File(path.to_owned(), error.to_string()))
}

/// The number of the certificate in a chain that one of these keys belongs to, counted from 1.
fn fitting(chain: &[CertificateDer<'static>], keys: &[u8]) -> Option<usize> {
    let at = chain.iter().position(|certificate| {
        let keys = keys_from_pem(keys).unwrap_or_default();
        keys.into_iter().any(|key| {
            let alone = vec![certificate.clone()];
            CertifiedKey::from_der(alone, key, &aws_lc_rs::default_provider()).is_ok()
        })
    })?;
    Some(at + 1)
}

/// Why a key of this certificate cannot be used.
fn unusable_key(leaf: &X509Certificate<'_>, error: &rustls::Error) -> String {
    match leaf.public_key().parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < MIN_RSA_BITS => format!(
            "it is an RSA key of {} bits, expected {MIN_RSA_BITS} at least: order the certificate again, for a new key",
            key.key_size()
        ),
        _ => format!(
            "{error}: expected an RSA, ECDSA (P-256, P-384, P-521) or Ed25519 key; this shows what it is: openssl pkey -in FILE \
             -noout -text"
        ),
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

fn names(leaf: &X509Certificate<'_>) -> Vec<Box<str>> {
    // Not the common name of the subject: clients must not look at it (RFC 9525 section 2).
    let Ok(Some(extension)) = leaf.subject_alternative_name() else {
        return Vec::new();
    };
    extension
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => {
                let name = name.strip_suffix('.').unwrap_or(name);
                Some(name.to_ascii_lowercase().into())
            }
            GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(*bytes)
                .map(std::net::IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from))
                .ok()
                .map(|address| address.to_string().into()),
            _ => None,
        })
        .collect()
}

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read: which, and why.
    File(PathBuf, String),
    /// The PEM text holds no certificate.
    Missing,
    /// The chain is not PEM, or its leaf is not an X.509 certificate.
    Unreadable(String),
    /// The file of the chain has another form.
    Chain(PemFault),
    /// The file of the key has another form, such as an encrypted key.
    Key(PemFault),
    /// The key is of a kind that TLS cannot use.
    UnreadableKey(String),
    /// The key belongs to another certificate of the chain, whose number this is, so the first one is not the server's
    /// certificate.
    Order(usize),
    /// None of this number of keys is the one in the certificate.
    KeyMismatch(usize),
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, why) => write!(f, "{} cannot be read: {why}", path.display()),
            Self::Missing => f.write_str("there is no certificate in it"),
            Self::Unreadable(why) => write!(f, "the certificate cannot be read: {why}"),
            Self::UnreadableKey(why) => write!(f, "the private key cannot be read: {why}"),
            Self::Chain(fault) | Self::Key(fault) => fault.fmt(f),
            Self::Order(at) => write!(
                f,
                "the certificates are in the wrong order: the private key belongs to number {at}, expected the certificate of the \
                 server first and its issuers after it, as in `cat cert.pem issuer.pem > fullchain.pem`"
            ),
            Self::KeyMismatch(0 | 1) => {
                f.write_str("the private key belongs to another certificate")
            }
            Self::KeyMismatch(count) => write!(
                f,
                "none of the {count} private keys in it belongs to the certificate"
            ),
        }
    }
}

impl std::error::Error for CertificateError {}
