//! Several servers, measured in turn under the same load until the difference is known.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::{BenchError, LoadPlan, ResponseSample, run};

use crate::comparison::check::run_check;
use crate::comparison::clock::ComparisonClock;
use crate::comparison::environment::ComparisonEnvironment;
use crate::comparison::helper::{StartedHelper, carry_out, wait_until_idle};
use crate::comparison::idle::measure_idle;
use crate::comparison::loopback::LoopbackMtu;
use crate::comparison::plan::{ComparisonFile, ComparisonPlan};
use crate::comparison::result::{ComparedCases, ComparisonReport, FailedCase};
use crate::comparison::samples::RoundSample;
use crate::comparison::server::{ComparedServer, StartedServer};

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
        if case.servers.is_empty() {
            Err(BenchError::Server(case.left_out.join("; ")))
        } else {
            Ok(())
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
    let mut report = ComparisonReport::new(plan, ComparisonEnvironment::read());
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
                run_check(file, server, load)?;
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
            if helper.is_apart {
                load.behind_pids.push(helper.pid())
            } else {
                load.further_pids.push(helper.pid())
            }
        }
        let sample = match self.plan.idle {
            Some(connections) => measure_idle(&server.name, (load, connections), self.clock)?,
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
                        if expected.length == response.length {
                            " that are not the same"
                        } else {
                            ""
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
