//! `ControlledServer`: what requests on the control socket are about, and the certificates that change while a server runs.

use std::future::Future;
use std::pin::Pin;

use apus_http::ServiceFactory;
use apus_net::{Engine, EnginePlan};
use serde_json::Value;

use super::error::StartError;

/// Begins to maintain certificates, on the control thread.
pub(super) type StartCertificates = Box<dyn FnOnce() -> Box<dyn ServedCertificates> + Send>;

/// Certificates that change while the server runs.
#[cfg_attr(
    not(feature = "control"),
    expect(dead_code, reason = "nobody asks without a control socket")
)]
pub(super) trait ServedCertificates {
    /// Waits for the next certificate, and returns the plan with it.
    fn next_plan(&mut self) -> Pin<Box<dyn Future<Output = Result<EnginePlan, StartError>> + '_>>;

    /// What is known of the certificates.
    fn status(&self) -> Value;

    /// Renews the certificates that have this name; returns how many there are.
    fn renew(&self, name: &str) -> usize;
}

/// What requests on the control socket are about.
#[cfg_attr(
    not(feature = "control"),
    expect(dead_code, reason = "nobody asks without a control socket")
)]
pub(super) struct ControlledServer<'a> {
    pub(super) engine: &'a Engine,
    pub(super) service: &'a dyn ServiceFactory,
    pub(super) certificates: Option<&'a dyn ServedCertificates>,
    #[cfg(feature = "jobs")]
    pub(super) queues: &'a [apus_jobs::Jobs],
}
