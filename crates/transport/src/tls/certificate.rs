//! A certificate with its chain and private key, which are checked to belong together.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apus_private_files::{PrivateFiles, register};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

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
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| CertificateError::Unreadable(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| CertificateError::UnreadableKey(error.to_string()))?;
        let leaf = chain.first().ok_or(CertificateError::Missing)?.clone();
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(
            |error| match error {
                rustls::Error::InconsistentKeys(_) => CertificateError::KeyMismatch,
                error => CertificateError::UnreadableKey(error.to_string()),
            },
        )?;
        let (_, leaf) = X509Certificate::from_der(&leaf)
            .map_err(|error| CertificateError::Unreadable(error.to_string()))?;
        Ok(Self {
            names: names(&leaf),
            not_after: leaf.validity().not_after.timestamp(),
            key: Arc::new(key),
        })
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

fn names(leaf: &X509Certificate<'_>) -> Vec<Box<str>> {
    let Ok(Some(extension)) = leaf.subject_alternative_name() else {
        return Vec::new();
    };
    extension
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase().into()),
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
    /// The key is missing, encrypted, not PEM, or of a kind that TLS cannot use.
    UnreadableKey(String),
    /// The key is not the one in the certificate.
    KeyMismatch,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, why) => write!(f, "{} cannot be read: {why}", path.display()),
            Self::Missing => f.write_str("there is no certificate in it"),
            Self::Unreadable(why) => write!(f, "the certificate cannot be read: {why}"),
            Self::UnreadableKey(why) => write!(f, "the private key cannot be read: {why}"),
            Self::KeyMismatch => f.write_str("the private key belongs to another certificate"),
        }
    }
}

impl std::error::Error for CertificateError {}
