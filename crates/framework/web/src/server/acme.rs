//! The certificates of a server that are ordered and renewed by ACME (RFC 8555).

use std::future::Future;
use std::pin::Pin;

use apus_acme::{Acme, ApplicationCertificates, MaintainedPlan};
use apus_net::EnginePlan;
use serde_json::{Value, json};

use super::controlled_server::{ServedCertificates, StartCertificates};
use super::error::StartError;

/// Prepares the listeners of a plan, each with its number and its certificate.
pub(super) fn prepare(
    listeners: Vec<(usize, Acme)>,
    plan: EnginePlan,
) -> Result<(EnginePlan, Option<StartCertificates>), StartError> {
    let (plan, certificates) = ApplicationCertificates::prepare(listeners, plan)
        .map_err(|error| StartError::Tls(error.into()))?;
    let start = certificates.map(|certificates| {
        let start = || Box::new(MaintainedPlan::start(certificates)) as Box<dyn ServedCertificates>;
        Box::new(start) as StartCertificates
    });
    Ok((plan, start))
}

impl ServedCertificates for MaintainedPlan {
    fn next_plan(&mut self) -> Pin<Box<dyn Future<Output = Result<EnginePlan, StartError>> + '_>> {
        Box::pin(async move {
            let plan = MaintainedPlan::next_plan(self).await;
            plan.map_err(|error| StartError::Tls(error.into()))
        })
    }

    fn status(&self) -> Value {
        json!(MaintainedPlan::status(self))
    }

    fn renew(&self, name: &str) -> usize {
        MaintainedPlan::renew(self, name)
    }
}
