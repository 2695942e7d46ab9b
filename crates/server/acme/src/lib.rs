//! Certificates by ACME (RFC 8555): orders, challenges, renewal, and the folder in which they are kept.
//!
//! A [`CertificateMaintenance`] has a task for each certificate of a plan. It orders the certificate if the
//! [`CertificateStore`] lacks it, renews it in time, and reports when there is a new one. While an order is open, the
//! [`PendingChallenges`] have the responses that a certificate authority asks for: the services of listeners and the TLS
//! handshake look there.
//!
//! What is done survives the end of the process: the order and the private key are stored before the authority is asked
//! for the certificate, so that nothing is ordered twice.

#![forbid(unsafe_code)]

mod alternate_chains;
mod application;
mod authority_client;
mod challenges;
mod dns;
mod dns_publisher;
mod http3_secret;
mod http_client;
mod import;
mod inventory;
mod issue;
mod issue_error;
mod maintenance;
mod names;
mod on_demand;
mod peers;
mod permission;
mod provider;
mod reachability;
mod schedule;
mod service;
mod settings;
mod shared;
mod state;
mod store;
mod stored;
mod ticket_secrets;

pub use self::application::{Acme, AcmeError, ApplicationCertificates, MaintainedPlan};
pub use self::challenges::PendingChallenges;
pub use self::dns_publisher::{
    AcmeDnsAccount, DnsKeyAlgorithm, DnsPublisher, DnsUpdateKey, DnsUpdateServer,
};
pub use self::import::{ForeignCertificates, ImportResult, ImportedCertificate};
pub use self::inventory::CertificateInventory;
pub use self::issue_error::IssueError;
pub use self::maintenance::{CertificateMaintenance, CertificateStatus};
pub use self::names::is_public;
pub use self::on_demand::{OnDemandNames, OnDemandSite};
pub use self::provider::AcmeProvider;
pub use self::service::HttpChallengeService;
pub use self::settings::{
    AcmeSettings, CertificateKeyType, ChallengeKind, ExternalAccount, ManagedCertificate,
};
pub use self::shared::{
    SharedChallenge, SharedStorage, SharedStorageAddress, SharedStorageError, StorageFuture,
};
pub use self::store::{CertificateStore, CertificateStoreError};
pub use self::stored::{CertificateDetails, RevocationReason, StoredCertificate};
pub use self::ticket_secrets::TicketRotation;
