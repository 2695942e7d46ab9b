//! The certificates in a store, whether a configuration names them or not, for the commands of operators.

use std::path::PathBuf;

use apus_tokens::{Hexadecimal, sha256};
use apus_transport::tls::Certificate;
use serde::Serialize;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::provider::AcmeProvider;
use crate::settings::ManagedCertificate;
use crate::state::CertificateState;
use crate::store::{CertificateStore, CertificateStoreError};

/// A certificate in a store.
#[derive(Debug)]
pub struct StoredCertificate {
    store: CertificateStore,
    pub(crate) folder: PathBuf,
    pub(crate) certificate: Certificate,
    pub(crate) state: CertificateState,
}

/// What there is to know of a certificate in a store, without its private key.
#[derive(Clone, Debug, Serialize)]
pub struct CertificateDetails {
    /// The names that it is for.
    pub names: Vec<String>,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// The distinguished name of its issuer.
    pub issuer: String,
    /// The kind of its key.
    pub key: String,
    /// The SHA-256 digest of the certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// When its lifetime begins.
    #[serde(with = "time::serde::rfc3339::option")]
    pub not_before: Option<OffsetDateTime>,
    /// When it expires.
    #[serde(with = "time::serde::rfc3339::option")]
    pub not_after: Option<OffsetDateTime>,
    /// When it is renewed.
    #[serde(with = "time::serde::rfc3339::option")]
    pub renew_at: Option<OffsetDateTime>,
    /// The name or the directory of the authority that issued it.
    pub issued_by: Option<String>,
    /// Whether it was revoked.
    pub revoked: bool,
    /// Failed attempts to order the next one.
    pub failures: u32,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// The file with the chain and the private key.
    pub file: PathBuf,
}

/// Why a certificate is revoked (RFC 5280 section 5.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RevocationReason {
    /// No reason is given.
    #[default]
    Unspecified,
    /// Others may know its private key.
    KeyCompromise,
    /// Its names belong to somebody else now.
    AffiliationChanged,
    /// Another certificate replaces it.
    Superseded,
    /// Its names are no longer used.
    CessationOfOperation,
}

impl CertificateStore {
    /// All certificates, in the order of their folders; those that are damaged are passed over with a warning.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn stored(&self) -> Result<Vec<StoredCertificate>, CertificateStoreError> {
        let mut found = Vec::new();
        for folder in self.folders()? {
            match self.certificate_in(&folder) {
                Ok(None) => {}
                Ok(Some(certificate)) => found.push(StoredCertificate {
                    store: self.clone(),
                    state: self.state_in(&folder).unwrap_or_default(),
                    folder,
                    certificate,
                }),
                Err(error @ CertificateStoreError::Damaged(..)) => {
                    tracing::warn!(%error, "a stored certificate is passed over");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

impl StoredCertificate {
    /// The DNS names, wildcards too, and addresses that it is for.
    pub fn names(&self) -> &[Box<str>] {
        self.certificate.names()
    }

    /// Whether the configuration asks for this certificate.
    pub fn is_of(&self, managed: &ManagedCertificate) -> bool {
        self.folder == self.store.of(managed)
    }

    /// Whether it was ordered for a name that was first seen in a handshake.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.state.on_demand
    }

    /// What there is to know of it.
    pub fn details(&self) -> CertificateDetails {
        let leaf = self.certificate.key().cert.first();
        let der: &[u8] = leaf.map_or(&[], AsRef::as_ref);
        let parsed = X509Certificate::from_der(der).ok().map(|(_, leaf)| leaf);
        let time = |seconds| OffsetDateTime::from_unix_timestamp(seconds).ok();
        let validity = parsed.as_ref().map(|leaf| leaf.validity());
        CertificateDetails {
            names: self.names().iter().map(ToString::to_string).collect(),
            serial: parsed.as_ref().map_or(String::new(), |leaf| {
                // A zero byte in front is the sign of the number.
                let serial = leaf.raw_serial();
                Hexadecimal(match serial {
                    [0, rest @ ..] if !rest.is_empty() => rest,
                    _ => serial,
                })
                .to_string()
            }),
            issuer: parsed
                .as_ref()
                .map_or(String::new(), |leaf| leaf.issuer().to_string()),
            key: parsed.as_ref().map_or(String::new(), key_kind),
            fingerprint: Hexadecimal(&sha256(der)).to_string(),
            not_before: validity.and_then(|validity| time(validity.not_before.timestamp())),
            not_after: validity.and_then(|validity| time(validity.not_after.timestamp())),
            renew_at: self.state.renew_at,
            issued_by: self.state.issued_by.clone().map(|directory| {
                AcmeProvider::find(&directory).map_or(directory, |provider| provider.name)
            }),
            revoked: self.state.revoked,
            failures: self.state.failures,
            last_error: self.state.last_error.clone(),
            file: self.folder.join("certificate.pem"),
        }
    }
}

impl RevocationReason {
    /// Its name in RFC 5280.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::KeyCompromise => "keyCompromise",
            Self::AffiliationChanged => "affiliationChanged",
            Self::Superseded => "superseded",
            Self::CessationOfOperation => "cessationOfOperation",
        }
    }

    pub(crate) fn code(self) -> instant_acme::RevocationReason {
        use instant_acme::RevocationReason as Code;
        match self {
            Self::Unspecified => Code::Unspecified,
            Self::KeyCompromise => Code::KeyCompromise,
            Self::AffiliationChanged => Code::AffiliationChanged,
            Self::Superseded => Code::Superseded,
            Self::CessationOfOperation => Code::CessationOfOperation,
        }
    }
}

fn key_kind(leaf: &X509Certificate<'_>) -> String {
    match leaf.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA, {} bits", key.key_size()),
        Ok(PublicKey::EC(point)) => format!("ECDSA, {} bits", point.key_size()),
        _ => "another kind".to_owned(),
    }
}
