//! Certificates by ACME (RFC 8555): orders, challenges, renewal, and the folder in which they are kept.
//!
//! A [`CertificateMaintenance`] has a task for each certificate of a plan. It orders the certificate if the
//! [`CertificateStore`] lacks it, renews it in time, and reports when there is a new one. While an order is open, the
//! [`PendingChallenges`] have the responses that a certificate authority asks for: the services of listeners and the TLS
//! handshake look there.
//!
//! What is done survives the end of the process: the order and the private key are stored before the authority is asked
//! for the certificate, so that nothing is ordered twice.
//!
//! # Modules
//!
//! - `maintenance`, `schedule`: when a certificate is ordered or renewed, also by ARI (RFC 9773). `issue`: one order.
//!   `store`: the folder of certificates.
//! - `challenges`, `service`, `dns_publisher`: the responses to `http-01`, `tls-alpn-01` and `dns-01`. `dns`: dynamic
//!   updates (`update`), delegation and name servers (`lookup`), acme-dns and webhooks (`http`).
//! - `on_demand`, `permission`: names that are first seen in a handshake, and the limits of clients and sites.
//! - requests to URLs are those of `apus_client::UrlClient`: to the authority (`authority_client`), and to servers of the operator
//!   (`operator_request`).
//! - `reachability`, `authority_client`: when nothing is asked of an authority, because of DNS, the clock, the disk or
//!   `Retry-After`.
//! - `shared`: storage that machines share (`SharedStorage`), in Redis or PostgreSQL. `peers`: processes with one
//!   folder.
//! - `alternate_chains`, `import`, `inventory`: which chain of an authority is used, folders of other programs, and
//!   what `apus cert` changes.
//! - `ticket_secrets`, `http3_secret`: secrets of session tickets, and of stateless resets of QUIC. `application`: ACME
//!   for the framework.
//!
//! # Decisions
//!
//! - **Handshakes find certificates on demand in memory** (`on_demand`); the control thread reads the store, asks for
//!   permission and orders. So a flood of invented names costs workers a look at a table, and the control thread a
//!   bounded queue.
//! - **DNS changes are ours for three protocols** (RFC 2136, acme-dns, webhooks), by hickory-proto and
//!   apus-client, which other parts need as well. The crate dns-update has many more providers. It is well kept (Apache-2.0 or MIT, by the
//!   authors of Stalwart), but its interface has changed five times since October 2025 (0.1 to 0.6.1, which was looked
//!   at in November 2026), it adds another HTTP client (reqwest) and 13 other crates to a server with it, and its
//!   providers cannot be tested without accounts: the addresses of most are fixed. A webhook or a program reaches them.
//! - **Machines share certificates by files that are compared** (`shared`). Each has its folder, from which it serves,
//!   so that nothing waits for the storage but orders and commands. A file is sent by the side that changed it since
//!   both were the same. PostgreSQL is reached by one connection of sqlx, without apus-database, which is for workers
//!   and their requests.
//! - **Processes with one folder find one another by locked files** (`peers`). A lock ends with its process, needs no
//!   clock, and tells a process that is alone, so that it does not wait for others to read a challenge.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. `crates/tools/cli/tests/it/acme` runs servers against a real authority
//! (pebble) with a DNS server, also two servers with one storage (`shared`).

#![forbid(unsafe_code)]

mod alternate_chains;
mod application;
mod authority_client;
mod challenges;
mod dns;
mod dns_publisher;
mod http3_secret;
mod import;
mod inventory;
mod issue;
mod issue_error;
mod maintenance;
mod names;
mod on_demand;
mod operator_request;
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
