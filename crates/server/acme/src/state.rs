//! What is known of a certificate beside itself, as it is stored.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// What is known of a certificate beside itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CertificateState {
    /// The open order.
    pub(crate) order: Option<OpenOrder>,
    /// Failed attempts since the last certificate.
    pub(crate) failures: u32,
    /// When the next attempt may be made.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) next_attempt: Option<OffsetDateTime>,
    /// Why the last attempt failed.
    pub(crate) last_error: Option<String>,
    /// The settings of the last attempt, as a number: others are tried at once.
    pub(crate) settings: Option<u64>,
    /// When the certificate is renewed.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) renew_at: Option<OffsetDateTime>,
    /// The directory of the authority that issued the certificate.
    pub(crate) issued_by: Option<String>,
    /// Whether the certificate was revoked, so that a new one with another key is ordered at once.
    pub(crate) revoked: bool,
    /// Whether it was ordered for a name that was first seen in a handshake.
    pub(crate) on_demand: bool,
}

/// An order that has no certificate yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenOrder {
    /// The directory of the authority.
    pub(crate) directory: String,
    /// Its URL.
    pub(crate) url: String,
    /// The names that were ordered.
    pub(crate) names: Vec<String>,
    /// The failed attempts before it was made.
    #[serde(default)]
    pub(crate) failures_before: u32,
}
