//! Scenarios: requests one after another, as a user sends them, with checks of the responses and values that later requests
//! take from them.

mod check;
mod cookies;
mod data;
mod error;
mod file;
mod template;
mod user;

use std::sync::Arc;

use apus_http::Method;

use self::check::{ResponseCapture, ResponseCheck};
use self::data::RowSource;
use self::template::{LoadTemplate, ValueEscape};
use crate::think_time::ThinkTime;
use crate::{BenchUrl, PlannedRequest};

pub(crate) use self::user::{ScenarioUser, ScenarioWorker};

/// Scenarios, of which each connection runs one after another.
#[derive(Debug)]
pub struct ScenarioPlan {
    scenarios: Vec<Scenario>,
    /// The rows that templates take values from, by their names.
    sources: Vec<(String, RowSource)>,
    /// The requests as they are reported: one for each step, in the order of the scenarios.
    reported: Vec<PlannedRequest>,
}

/// Requests one after another.
#[derive(Debug)]
struct Scenario {
    /// How often it is run, relative to the others.
    weight: u32,
    think_time: Option<ThinkTime>,
    /// Never empty.
    steps: Vec<ScenarioStep>,
    /// The values that its steps capture.
    variables: usize,
    /// Which of `reported` is its first step.
    first: usize,
}

/// A request of a scenario, and what has to come.
#[derive(Debug)]
struct ScenarioStep {
    method: Method,
    path: LoadTemplate,
    headers: Vec<(String, LoadTemplate)>,
    body: Option<LoadTemplate>,
    body_escape: ValueEscape,
    checks: Vec<ResponseCheck>,
    captures: Vec<(usize, ResponseCapture)>,
    think_time: Option<ThinkTime>,
    /// Whether the body of the response is looked at.
    reads_body: bool,
}

impl ScenarioPlan {
    /// The steps as requests, with their templates instead of values.
    pub fn requests(&self) -> &[PlannedRequest] {
        &self.reported
    }

    /// How many scenarios there are.
    pub fn count(&self) -> usize {
        self.scenarios.len()
    }

    /// The server.
    pub(crate) fn url(&self) -> Option<&BenchUrl> {
        self.reported.first().map(|request| &request.url)
    }

    /// What the users of a worker share.
    pub(crate) fn worker(self: &Arc<Self>, (index, count): (usize, usize)) -> ScenarioWorker {
        ScenarioWorker::new(Arc::clone(self), (index, count))
    }
}
