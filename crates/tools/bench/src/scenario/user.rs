//! A user of a load: a connection that runs scenarios, with cookies and captured values.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{Headers, Method};

use super::check::CheckedResponse;
use super::cookies::UserCookies;
use super::template::{LoadTemplate, TemplateValue, ValueEscape};
use super::{Scenario, ScenarioPlan, ScenarioStep};
use crate::think_time::ThinkTime;
use crate::{LoadFailure, PlannedRequest};

/// The most bytes of a body that is looked at.
const MAX_BODY: usize = 8 << 20;

/// What the users of a worker share.
pub(crate) struct ScenarioWorker {
    plan: Arc<ScenarioPlan>,
    /// Which worker of how many this is, so that no two take the same numbers.
    index: u64,
    count: u64,
    /// The sum of all weights.
    weights: u64,
    state: RefCell<WorkerState>,
}

struct WorkerState {
    random: fastrand::Rng,
    /// Values of `${counter}` that were taken.
    counted: u64,
    /// Rows of each source that were taken.
    taken: Vec<u64>,
}

impl ScenarioWorker {
    pub(super) fn new(plan: Arc<ScenarioPlan>, (index, count): (usize, usize)) -> Self {
        let (index, count) = (index as u64, count.max(1) as u64);
        let weights = plan.scenarios.iter();
        Self {
            index,
            count,
            weights: weights.map(|scenario| u64::from(scenario.weight)).sum(),
            state: RefCell::new(WorkerState {
                random: fastrand::Rng::with_seed(0x5ce0_a210 ^ index),
                counted: 0,
                taken: vec![0; plan.sources.len()],
            }),
            plan,
        }
    }

    fn choose(&self) -> usize {
        let scenarios = &self.plan.scenarios;
        if scenarios.len() == 1 {
            return 0;
        }
        let mut at = self.state.borrow_mut().random.u64(0..self.weights.max(1));
        for (index, scenario) in scenarios.iter().enumerate() {
            match at.checked_sub(u64::from(scenario.weight)) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        0
    }

    /// A row of each source.
    fn rows(&self) -> Vec<usize> {
        let state = &mut *self.state.borrow_mut();
        let sources = self.plan.sources.iter().zip(&mut state.taken);
        sources
            .map(|((_, source), taken)| {
                if source.is_random {
                    return state.random.usize(0..source.rows());
                }
                let row = self.index + *taken * self.count;
                *taken += 1;
                usize::try_from(row % source.rows() as u64).unwrap_or(0)
            })
            .collect()
    }

    fn counter(&self) -> u64 {
        let state = &mut *self.state.borrow_mut();
        let number = 1 + self.index + state.counted * self.count;
        state.counted += 1;
        number
    }
}

/// A user, who runs one scenario after another.
pub(crate) struct ScenarioUser {
    worker: Rc<ScenarioWorker>,
    scenario: usize,
    step: usize,
    /// Whether a run has begun.
    is_running: bool,
    rows: Vec<usize>,
    variables: Vec<String>,
    cookies: UserCookies,
    request: PlannedRequest,
    headers: Headers,
    body: Vec<u8>,
    pause: Option<ThinkTime>,
}

impl ScenarioUser {
    /// A user before the first run. `None` if there is no scenario.
    pub(crate) fn new(worker: &Rc<ScenarioWorker>) -> Option<Self> {
        let url = worker.plan.url()?.clone();
        Some(Self {
            worker: Rc::clone(worker),
            scenario: 0,
            step: 0,
            is_running: false,
            rows: Vec::new(),
            variables: Vec::new(),
            cookies: UserCookies::default(),
            request: PlannedRequest::get(url),
            headers: Headers::new(),
            body: Vec::new(),
            pause: None,
        })
    }

    /// Prepares the next request; returns which one it is in the report.
    pub(crate) fn advance(&mut self) -> usize {
        let plan = Arc::clone(&self.worker.plan);
        if !self.is_running {
            self.is_running = true;
            self.scenario = self.worker.choose();
            self.step = 0;
            self.rows = self.worker.rows();
            self.cookies.clear();
            self.variables.clear();
            if let Some(scenario) = plan.scenarios.get(self.scenario) {
                self.variables.resize(scenario.variables, String::new());
            }
        }
        let Some((scenario, step)) = self.current(&plan) else {
            return 0;
        };
        self.render(step);
        scenario.first + self.step
    }

    fn current<'a>(&self, plan: &'a ScenarioPlan) -> Option<(&'a Scenario, &'a ScenarioStep)> {
        let scenario = plan.scenarios.get(self.scenario)?;
        Some((scenario, scenario.steps.get(self.step)?))
    }

    fn render(&mut self, step: &ScenarioStep) {
        let target = self.text(&step.path, ValueEscape::Percent);
        let mut headers = Headers::new();
        for (name, template) in &step.headers {
            let value = self.text(template, ValueEscape::Field);
            headers.push(name.as_bytes(), value.trim().as_bytes());
        }
        if let Some(cookies) = self.cookies.header(&target) {
            headers.push(b"cookie", cookies.as_bytes());
        }
        self.request.body = match &step.body {
            Some(template) => self.text(template, step.body_escape).into_bytes().into(),
            None => bytes::Bytes::new(),
        };
        self.request.method = Method::clone(&step.method);
        self.request.headers = headers;
        self.request.url.set_path(target);
    }

    fn text(&self, template: &LoadTemplate, escape: ValueEscape) -> String {
        let mut out = String::new();
        template.render(&mut out, escape, &mut |value, out| self.write(value, out));
        out
    }

    fn write(&self, value: TemplateValue, out: &mut String) {
        match value {
            TemplateValue::Counter => *out += &self.worker.counter().to_string(),
            TemplateValue::Number(least, most) => {
                let number = self.worker.state.borrow_mut().random.u64(least..=most);
                *out += &number.to_string();
            }
            TemplateValue::Letters(length) => {
                let random = &mut self.worker.state.borrow_mut().random;
                out.extend(std::iter::repeat_with(|| random.alphanumeric()).take(length));
            }
            TemplateValue::Variable(index) => {
                out.push_str(self.variables.get(index).map_or("", String::as_str));
            }
            TemplateValue::Column(source, column) => {
                let row = self.rows.get(source).copied().unwrap_or(0);
                if let Some((_, source)) = self.worker.plan.sources.get(source) {
                    out.push_str(source.value(row, column));
                }
            }
        }
    }

    /// The request that was prepared.
    pub(crate) fn request(&self) -> &PlannedRequest {
        &self.request
    }

    /// Notes the fields of the response.
    pub(crate) fn note_headers(&mut self, headers: &Headers) {
        self.headers = headers.clone();
    }

    /// Notes data of the body of the response.
    pub(crate) fn note_data(&mut self, data: &[u8]) {
        let plan = Arc::clone(&self.worker.plan);
        let reads = self.current(&plan).is_some_and(|(_, step)| step.reads_body);
        if reads && self.body.len() <= MAX_BODY {
            self.body.extend_from_slice(data);
        }
    }

    /// Checks the response with this status and this number of bytes in its body, and moves on to the next step. A mistake ends the run.
    pub(crate) fn finish(&mut self, status: u16, body_bytes: u64) -> Option<(LoadFailure, String)> {
        let plan = Arc::clone(&self.worker.plan);
        let (scenario, step) = self.current(&plan)?;
        self.cookies.store(&self.headers, self.request.url.path());
        self.pause = step.think_time.or(scenario.think_time);
        let headers = std::mem::take(&mut self.headers);
        let body = std::mem::take(&mut self.body);
        if body.len() > MAX_BODY {
            self.is_running = false;
            let cause = format!("the body has more than {MAX_BODY} bytes, which cannot be checked");
            return Some((LoadFailure::WrongLength, cause));
        }
        let mut response = CheckedResponse::new(status, &headers, (&body, body_bytes));
        let mut checks = step.checks.iter();
        let mut mistake = checks.find_map(|check| check.mistake(&mut response));
        for (variable, capture) in &step.captures {
            if mistake.is_some() {
                break;
            }
            match (
                capture.take(&mut response),
                self.variables.get_mut(*variable),
            ) {
                (Ok(value), Some(variable)) => *variable = value,
                (Err(missing), _) => {
                    mistake = Some((LoadFailure::NothingCaptured, missing.to_string()));
                }
                (Ok(_), None) => {}
            }
        }
        self.step += 1;
        if mistake.is_some() || self.step == scenario.steps.len() {
            self.is_running = false;
        }
        mistake
    }

    /// Ends the run, because a request failed.
    pub(crate) fn abandon(&mut self) {
        self.is_running = false;
        self.headers = Headers::new();
        self.body.clear();
    }

    /// The pause before the next request.
    pub(crate) fn pause(&self) -> Option<ThinkTime> {
        self.pause
    }
}
