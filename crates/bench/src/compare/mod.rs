//! Several servers, measured in turn under the same load until the difference is known.

mod check;
mod clock;
mod environment;
mod figures;
mod file;
mod helper;
mod idle;
mod loopback;
mod page;
mod placeholders;
mod result;
mod schedule;
mod server;
mod statistics;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use self::clock::ComparisonClock;
use self::environment::ComparisonEnvironment as Environment;
use self::figures::ComparisonGoal;
use self::helper::{ComparisonHelper, StartedHelper, carry_out, wait_until_idle};
use self::loopback::LoopbackMtu;
use self::server::{ComparedServer, StartedServer};
use crate::plan::{LoadLimit, LoadPlan};
use crate::recorder::ResponseSample;
use crate::{BenchError, run};

pub use self::environment::ComparisonEnvironment;
pub use self::figures::{PublishedFigures, ReachedGoal};
use self::idle::IDLE_FIRST;
pub use self::page::to_page;

pub use self::result::{ComparedRatio, ComparisonReport, RoundSample, ServerSamples};
pub use self::text::to_comparison_text;

/// A file of comparisons: one, or several cases with the same servers.
#[derive(Debug)]
pub struct ComparisonFile {
    title: String,
    note: Option<String>,
    /// The names of its values.
    value_names: Vec<String>,
    /// A folder of this comparison alone.
    work: TempDir,
    /// Texts that are written into it.
    files: Vec<(PathBuf, String)>,
    /// What is run before anything is started.
    prepare: Vec<Vec<String>>,
    helpers: Vec<ComparisonHelper>,
    has_cases: bool,
    cases: Vec<ComparisonPlan>,
}

/// What is changed of a file.
#[derive(Clone, Debug, Default)]
pub struct ComparisonChanges {
    /// Values of its table `values`; names that it does not have are ignored.
    pub values: BTreeMap<String, String>,
    /// Only these of its cases, if there are any.
    pub cases: Vec<String>,
    /// Only these of its servers, if there are any.
    pub servers: Vec<String>,
    /// So many rounds of each case.
    pub rounds: Option<usize>,
    /// The time of load in a round, also in place of a number of requests.
    pub duration: Option<Duration>,
}

/// Servers, the load on each, and how long they are compared.
#[derive(Clone, Debug)]
struct ComparisonPlan {
    /// The file.
    text: Arc<str>,
    folder: PathBuf,
    /// Values of the file that were replaced.
    values: BTreeMap<String, String>,
    title: String,
    case: Option<String>,
    note: Option<String>,
    /// The size of packets over the loopback interface, if it is changed.
    loopback_mtu: Option<u32>,
    servers: Vec<ComparedServer>,
    /// The load on each server.
    loads: Vec<LoadPlan>,
    /// The connections that are left alone after a response each, if that is the load.
    idle: Option<usize>,
    /// A scenario that each server has to pass before it is measured.
    check: Option<PathBuf>,
    /// The responses per second that the origin can do.
    limit: Option<f64>,
    /// The server that the others are compared to.
    reference: usize,
    /// The fewest and the most rounds.
    rounds: (usize, usize),
    /// No round begins that would end after this time.
    budget: Duration,
    /// The comparison ends when the bounds of each ratio are this close to it.
    precision: f64,
    /// Whether each round has new processes.
    restarts: bool,
    /// Whether all servers have to send the same response.
    expects_same_responses: bool,
    /// Of the order of the servers in each round.
    seed: u64,
    published: Vec<PublishedFigures>,
    /// Figures that tables show in any case.
    shown: Vec<&'static str>,
    goals: Vec<ComparisonGoal>,
    /// Why servers are missing.
    left_out: Vec<String>,
}

/// The result of a file.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedCases {
    /// What was compared.
    pub title: String,
    /// What the reader should know.
    pub note: Option<String>,
    /// Whether the file has several cases.
    pub has_cases: bool,
    /// Each case.
    pub reports: Vec<ComparisonReport>,
    /// Cases of which nothing was measured.
    pub failures: Vec<FailedCase>,
    /// Whether the user ended it early.
    pub is_interrupted: bool,
}

/// A case of which nothing was measured.
#[derive(Clone, Debug, Serialize)]
pub struct FailedCase {
    /// The name of the case.
    pub case: String,
    /// Why.
    pub cause: String,
}

/// What a comparison does.
#[derive(Clone, Debug)]
pub struct ComparisonProgress<'a> {
    /// What is compared.
    pub title: &'a str,
    /// The round, from 1 on.
    pub round: usize,
    /// The most rounds.
    pub rounds: usize,
    /// The server that was measured.
    pub server: &'a str,
    /// What was measured.
    pub sample: &'a RoundSample,
}

impl ComparisonFile {
    /// The files of a report, to repeat it.
    ///
    /// # Errors
    /// The text is no report of a comparison, or the files that it names have changed.
    pub fn of_report(json: &str) -> Result<Vec<Self>, BenchError> {
        let wrong =
            |error: String| BenchError::Plan(format!("the report cannot be repeated: {error}"));
        let whole: serde_json::Value =
            serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        let one = std::slice::from_ref(&whole);
        let files = match whole.get("files").and_then(serde_json::Value::as_array) {
            Some(files) => files.iter().map(|file| {
                let reports = file.get("reports").and_then(serde_json::Value::as_array);
                reports.map_or(&[][..], Vec::as_slice)
            }),
            None => return Ok(vec![Self::repeated(one).map_err(wrong)?]),
        };
        let files = files.filter(|reports| !reports.is_empty());
        files
            .map(|reports| Self::repeated(reports).map_err(wrong))
            .collect()
    }

    /// The file with the cases of reports.
    fn repeated(reports: &[serde_json::Value]) -> Result<Self, String> {
        let Some(report) = reports.first() else {
            return Err("it has no reports".to_owned());
        };
        let text = |name: &str| {
            report
                .get(name)
                .and_then(serde_json::Value::as_str)
                .ok_or_else(|| format!("it has no `{name}`"))
        };
        let values = report.get("values").cloned().unwrap_or_default();
        let cases = reports
            .iter()
            .filter_map(|report| report.get("case")?.as_str());
        let changes = ComparisonChanges {
            values: serde_json::from_value(values).unwrap_or_default(),
            cases: cases.map(str::to_owned).collect(),
            ..ComparisonChanges::default()
        };
        Self::parse(text("configuration")?, Path::new(text("folder")?), &changes)
    }

    /// Allows loads on hosts that are not this machine.
    pub fn allow_others(&mut self) {
        for load in self.cases.iter_mut().flat_map(|case| &mut case.loads) {
            load.may_load_others = true;
        }
    }

    /// Whether the file has a value with this name.
    pub fn has_value(&self, name: &str) -> bool {
        self.value_names.iter().any(|known| known == name)
    }

    /// The result if nothing of the file could be measured.
    pub fn failed(&self, error: &BenchError) -> ComparedCases {
        ComparedCases {
            failures: vec![FailedCase {
                case: "all cases".to_owned(),
                cause: error.to_string(),
            }],
            ..self.nothing_compared()
        }
    }

    fn nothing_compared(&self) -> ComparedCases {
        ComparedCases {
            title: self.title.clone(),
            note: self.note.clone(),
            has_cases: self.has_cases,
            reports: Vec::new(),
            failures: Vec::new(),
            is_interrupted: false,
        }
    }

    /// How many cases there are.
    pub fn case_count(&self) -> usize {
        self.cases.len()
    }

    /// Whether the file names its cases.
    pub fn has_cases(&self) -> bool {
        self.has_cases
    }

    fn write_files(&self) -> Result<(), BenchError> {
        for (name, text) in &self.files {
            let path = self.work.path().join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&path, text).map_err(|error| {
                BenchError::Server(format!("{} cannot be written: {error}", path.display()))
            })?;
        }
        Ok(())
    }

    /// The folder of the file.
    fn folder(&self) -> &Path {
        let case = self.cases.first();
        case.map_or(Path::new("."), |case| case.folder.as_path())
    }
}

impl ComparisonPlan {
    fn seconds_of_load(&self) -> f64 {
        match self.loads.first().map(|load| load.limit) {
            Some(LoadLimit::Time(time)) => time.as_secs_f64(),
            _ => 0.0,
        }
    }

    /// Leaves a server out.
    fn leave_out(&mut self, index: usize, why: String) {
        let reference = self
            .servers
            .get(self.reference)
            .map(|server| server.name.clone());
        self.servers.remove(index);
        self.loads.remove(index);
        let reference = self
            .servers
            .iter()
            .position(|server| Some(&server.name) == reference.as_ref());
        self.reference = reference.unwrap_or(0);
        self.left_out.push(why);
    }
}

/// Compares servers, and tells `observe` about each measurement, and `done` about each file so far when a case is complete.
/// SIGINT and SIGTERM end it after the round before.
///
/// # Errors
/// Something that all cases need fails; or, if the file is one comparison, a server cannot be started or measured in the first
/// round, or the servers send different responses.
pub fn compare(
    file: &ComparisonFile,
    observe: &mut dyn FnMut(&ComparisonProgress<'_>),
    done: &mut dyn FnMut(&ComparedCases),
) -> Result<ComparedCases, BenchError> {
    let mut clock = ComparisonClock::new()?;
    let mut compared = file.nothing_compared();
    file.write_files()?;
    for command in &file.prepare {
        carry_out(command, file.folder(), &mut clock)?;
    }
    let mut helpers = Vec::new();
    let result = compare_cases(
        file,
        (&mut helpers, &mut clock),
        (&mut compared, observe, done),
    );
    // In the reverse order, as one may need another one.
    while let Some(helper) = helpers.pop() {
        helper.stop(&clock);
    }
    result.map(|()| compared)
}

/// Who is told about each measurement, and about each complete case.
type Observers<'a> = (
    &'a mut ComparedCases,
    &'a mut dyn FnMut(&ComparisonProgress<'_>),
    &'a mut dyn FnMut(&ComparedCases),
);

/// Starts the helpers, and compares the servers in each case.
fn compare_cases(
    file: &ComparisonFile,
    (helpers, clock): (&mut Vec<StartedHelper>, &mut ComparisonClock),
    (compared, observe, done): Observers<'_>,
) -> Result<(), BenchError> {
    for helper in &file.helpers {
        helpers.push(helper.start(file.folder(), clock)?);
    }
    let mut known = PreparedServers::default();
    for case in &file.cases {
        let mut case = case.clone();
        let report = match known.check(&mut case, clock) {
            Ok(()) => compare_case(&case, (helpers, clock), observe),
            Err(error) => Err(error),
        };
        match report {
            Ok(report) => compared.reports.push(report),
            Err(error) if !file.has_cases => return Err(error),
            Err(error @ (BenchError::Plan(_) | BenchError::NotLocal { .. })) => return Err(error),
            Err(error) => compared.failures.push(FailedCase {
                case: case.title,
                cause: error.to_string(),
            }),
        }
        done(compared);
        if clock.wait(Duration::ZERO) {
            compared.is_interrupted = true;
            break;
        }
    }
    Ok(())
}

/// The servers that were prepared, by their names, each with why it has to be left out.
#[derive(Default)]
struct PreparedServers(BTreeMap<String, Option<String>>);

impl PreparedServers {
    /// Prepares the servers of a case, and leaves out those without which it can be made.
    fn check(
        &mut self,
        case: &mut ComparisonPlan,
        clock: &mut ComparisonClock,
    ) -> Result<(), BenchError> {
        let mut index = 0;
        while let Some(server) = case.servers.get(index) {
            if !self.0.contains_key(&server.name) {
                let load = case.loads.get(index);
                let why = match prepare(server, load, clock) {
                    Ok(()) => None,
                    Err(error) if !server.is_optional => return Err(error),
                    Err(error) => Some(format!("{} was left out: {error}", server.name)),
                };
                self.0.insert(server.name.clone(), why);
            }
            match self.0.get(&server.name) {
                Some(Some(why)) => case.leave_out(index, why.clone()),
                _ => index += 1,
            }
        }
        match case.servers.is_empty() {
            true => Err(BenchError::Server(case.left_out.join("; "))),
            false => Ok(()),
        }
    }
}

/// Runs what a server needs, and, if it may be left out, starts it once.
fn prepare(
    server: &ComparedServer,
    load: Option<&LoadPlan>,
    clock: &mut ComparisonClock,
) -> Result<(), BenchError> {
    for command in &server.prepare {
        carry_out(command, &server.directory, clock)?;
    }
    if let Some(load) = load.filter(|_| server.is_optional) {
        let (started, _) = server.start(load, clock)?;
        if !server.command.is_empty() {
            started.stop(clock)?;
        }
    }
    Ok(())
}

/// Compares servers under one load.
fn compare_case(
    plan: &ComparisonPlan,
    (helpers, clock): (&[StartedHelper], &mut ComparisonClock),
    observe: &mut dyn FnMut(&ComparisonProgress<'_>),
) -> Result<ComparisonReport, BenchError> {
    let _until_the_end = plan.loopback_mtu.map(LoopbackMtu::set).transpose()?;
    let mut comparison = Comparison {
        plan,
        helpers,
        clock,
        running: plan.servers.iter().map(|_| None).collect(),
        random: fastrand::Rng::with_seed(plan.seed),
        first_response: None,
    };
    let mut report = ComparisonReport::new(plan, Environment::read());
    let begin = Instant::now();
    let (least, most) = plan.rounds;
    for round in 1..=most {
        let round_begin = Instant::now();
        match comparison.round(round, observe) {
            Ok(Some(samples)) => report.add_round(samples),
            Ok(None) => {
                report.ended_by = "it was interrupted".to_owned();
                break;
            }
            Err(error) if round == 1 => return Err(error),
            // What was measured before is kept.
            Err(error) => {
                report.ended_by = format!("a failure: {error}");
                report.has_failed = true;
                break;
            }
        }
        report.evaluate(plan);
        if round >= least && report.is_precise(plan.precision) {
            report.ended_by = format!(
                "all ratios of rate and CPU are known to {}%",
                plan.precision * 100.0
            );
            break;
        }
        if round < most && begin.elapsed() + round_begin.elapsed() > plan.budget {
            report.ended_by = format!("another round would not fit into {:?}", plan.budget);
            break;
        }
    }
    comparison.stop_all()?;
    report.seconds = begin.elapsed().as_secs_f64();
    Ok(report)
}

/// A comparison that goes on.
struct Comparison<'a> {
    plan: &'a ComparisonPlan,
    helpers: &'a [StartedHelper],
    clock: &'a mut ComparisonClock,
    running: Vec<Option<StartedServer>>,
    random: fastrand::Rng,
    /// The response of the first server that was started, and its index.
    first_response: Option<(usize, ResponseSample)>,
}

impl Comparison<'_> {
    /// Measures each server once, in an order by chance. `None` if the user has interrupted it.
    fn round(
        &mut self,
        round: usize,
        observe: &mut dyn FnMut(&ComparisonProgress<'_>),
    ) -> Result<Option<Vec<RoundSample>>, BenchError> {
        let mut order: Vec<usize> = (0..self.plan.servers.len()).collect();
        self.random.shuffle(&mut order);
        let mut samples: Vec<Option<RoundSample>> = order.iter().map(|_| None).collect();
        for (position, index) in order.into_iter().enumerate() {
            let Some(mut sample) = self.measure(index)? else {
                return Ok(None);
            };
            sample.position = position;
            let Some(server) = self.plan.servers.get(index) else {
                continue;
            };
            observe(&ComparisonProgress {
                title: &self.plan.title,
                round,
                rounds: self.plan.rounds.1,
                server: &server.name,
                sample: &sample,
            });
            if let Some(place) = samples.get_mut(index) {
                *place = Some(sample);
            }
        }
        Ok(samples.into_iter().collect())
    }

    /// Measures a server, which is started if it does not run. `None` if the user has interrupted it.
    fn measure(&mut self, index: usize) -> Result<Option<RoundSample>, BenchError> {
        let (Some(server), Some(load)) = (self.plan.servers.get(index), self.plan.loads.get(index))
        else {
            return Ok(None);
        };
        if self.clock.wait(Duration::ZERO) {
            return Ok(None);
        }
        let is_running = self.running.get(index).is_some_and(Option::is_some);
        if !is_running {
            let (running, response) = server.start(load, self.clock)?;
            if let Some(place) = self.running.get_mut(index) {
                *place = Some(running);
            }
            self.check_response(index, response)?;
            if let Some(file) = &self.plan.check
                && !server.has_other_response
            {
                check::run(file, server, load)?;
            }
        }
        wait_until_idle(self.helpers, self.clock)?;
        let mut load = load.clone();
        load.probes = false;
        let running = self.running.get_mut(index).and_then(Option::as_mut);
        load.server_pid = running.and_then(StartedServer::pid);
        for helper in self
            .helpers
            .iter()
            .filter(|helper| helper.of.contains(&server.name))
        {
            match helper.is_apart {
                true => load.behind_pids.push(helper.pid()),
                false => load.further_pids.push(helper.pid()),
            }
        }
        let sample = match self.plan.idle {
            Some(connections) => idle::measure(&server.name, (load, connections), self.clock)?,
            None => {
                let report = run(load, &mut |_| {})?;
                (!report.interrupted).then(|| RoundSample::new(&report, self.plan.limit))
            }
        };
        if let Some(running) = self.running.get_mut(index).and_then(Option::as_mut) {
            running.expect_alive()?;
        }
        if self.plan.restarts
            && !server.command.is_empty()
            && let Some(running) = self.running.get_mut(index).and_then(Option::take)
        {
            running.stop(self.clock)?;
        }
        Ok(sample)
    }

    fn check_response(&mut self, index: usize, response: ResponseSample) -> Result<(), BenchError> {
        let name = |index: usize| {
            let server = self.plan.servers.get(index);
            server.map_or("", |server| server.name.as_str())
        };
        let server = self.plan.servers.get(index);
        if server.is_some_and(|server| server.has_other_response) {
            return Ok(());
        }
        match &self.first_response {
            Some((first, expected)) => {
                if self.plan.expects_same_responses && *expected != response {
                    return Err(BenchError::Server(format!(
                        "`{}` and `{}` send different responses: status {} with {} bytes, and status {} with {} bytes{}; if that is \
                         meant, set rounds.same_responses = false",
                        name(*first),
                        name(index),
                        expected.status,
                        expected.length,
                        response.status,
                        response.length,
                        match expected.length == response.length {
                            true => " that are not the same",
                            false => "",
                        },
                    )));
                }
            }
            None => self.first_response = Some((index, response)),
        }
        Ok(())
    }

    fn stop_all(&mut self) -> Result<(), BenchError> {
        for (place, server) in self.running.iter_mut().zip(&self.plan.servers) {
            if let Some(running) = place.take()
                && !server.command.is_empty()
            {
                running.stop(self.clock)?;
            }
        }
        Ok(())
    }
}
