//! Requests that a server of a comparison has to respond to as expected before it is measured.

use std::path::Path;
use std::sync::Arc;

use crate::{BenchError, Expectations, LoadPlan, ScenarioPlan, run_scenario};

use crate::comparison::server::ComparedServer;

/// Runs the scenario of a file once on a server, as the load reaches it: with its protocol, TLS and header fields.
pub(crate) fn run_check(
    file: &Path,
    server: &ComparedServer,
    load: &LoadPlan,
) -> Result<(), BenchError> {
    let fields = load.requests.first().map(|request| request.headers.clone());
    let scenario = ScenarioPlan::read(file, Some(server.url.clone()), &fields.unwrap_or_default())?;
    if scenario.count() != 1 {
        return Err(BenchError::plan(format!(
            "the scenario {}: expected one scenario with all steps, as it is a check, not {}",
            file.display(),
            scenario.count()
        )));
    }
    let mut plan = load.clone();
    plan.expected = Expectations::default();
    plan.in_flight = std::num::NonZeroUsize::MIN;
    plan.set_scenario(Arc::new(scenario));
    match run_scenario(plan)? {
        None => Ok(()),
        Some(mistake) => Err(BenchError::Server(format!(
            "`{}` does not pass the check {}: {mistake}",
            server.name,
            file.display()
        ))),
    }
}
