//! Several servers, measured in turn under the same load until the difference is known.

mod clock;
mod environment;
mod file;
mod page;
mod result;
mod server;
mod statistics;
mod text;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::clock::ComparisonClock;
use self::environment::ComparisonEnvironment as Environment;
use self::server::{ComparedServer, StartedServer};
use crate::plan::LoadPlan;
use crate::recorder::ResponseSample;
use crate::{BenchError, BenchReport, run};

pub use self::environment::ComparisonEnvironment;
pub use self::page::to_page;
pub use self::result::{ComparedRatio, ComparisonReport, RoundSample, ServerSamples};
pub use self::text::to_comparison_text;

/// Servers, the load on each, and how long they are compared.
#[derive(Clone, Debug)]
pub struct ComparisonPlan {
    /// The file.
    text: String,
    folder: PathBuf,
    title: String,
    servers: Vec<ComparedServer>,
    /// The load on each server.
    loads: Vec<LoadPlan>,
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
}

/// What a comparison does.
#[derive(Clone, Debug)]
pub struct ComparisonProgress<'a> {
    /// The round, from 1 on.
    pub round: usize,
    /// The most rounds.
    pub rounds: usize,
    /// The server that was measured.
    pub server: &'a str,
    /// Good responses per second.
    pub responses_per_second: f64,
    /// CPU time of the server for each response, in microseconds.
    pub cpu_per_response_us: Option<f64>,
}

impl ComparisonPlan {
    /// The plan of a report, to repeat it.
    ///
    /// # Errors
    /// The text is no report of a comparison, or the files that it names have changed.
    pub fn of_report(json: &str) -> Result<Self, BenchError> {
        let wrong =
            |error: String| BenchError::Plan(format!("the report cannot be repeated: {error}"));
        let report: serde_json::Value =
            serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        let text = |name: &str| {
            report
                .get(name)
                .and_then(serde_json::Value::as_str)
                .ok_or_else(|| wrong(format!("it has no `{name}`")))
        };
        Self::parse(
            text("configuration")?,
            PathBuf::from(text("folder")?).as_path(),
        )
        .map_err(wrong)
    }

    /// Allows loads on hosts that are not this machine.
    pub fn allow_others(&mut self) {
        for load in &mut self.loads {
            load.may_load_others = true;
        }
    }
}

/// Compares servers, and tells `observe` about each measurement. SIGINT ends it after the round before.
///
/// # Errors
/// A server cannot be started or measured in the first round, or the servers send different responses.
pub fn compare(
    plan: &ComparisonPlan,
    observe: &mut dyn FnMut(&ComparisonProgress<'_>),
) -> Result<ComparisonReport, BenchError> {
    let mut comparison = Comparison {
        plan,
        clock: ComparisonClock::new()?,
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
    clock: ComparisonClock,
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
            let Some(report) = self.measure(index)? else {
                return Ok(None);
            };
            let Some(server) = self.plan.servers.get(index) else {
                continue;
            };
            observe(&ComparisonProgress {
                round,
                rounds: self.plan.rounds.1,
                server: &server.name,
                responses_per_second: report.responses_per_second,
                cpu_per_response_us: report
                    .server
                    .as_ref()
                    .map(|server| server.cpu_per_response_us),
            });
            if report.responses == 0 {
                let kind = report
                    .failures
                    .first()
                    .map_or("", |failure| failure.kind.words());
                return Err(BenchError::Server(format!(
                    "`{}` sent no good response: {kind}",
                    server.name
                )));
            }
            if let Some(sample) = samples.get_mut(index) {
                *sample = Some(RoundSample::new(&report, position));
            }
        }
        Ok(samples.into_iter().collect())
    }

    fn measure(&mut self, index: usize) -> Result<Option<BenchReport>, BenchError> {
        let (Some(server), Some(load)) = (self.plan.servers.get(index), self.plan.loads.get(index))
        else {
            return Ok(None);
        };
        if self.clock.wait(Duration::ZERO) {
            return Ok(None);
        }
        let is_running = self.running.get(index).is_some_and(Option::is_some);
        if !is_running {
            let (running, response) = server.start(load, &mut self.clock)?;
            if let Some(place) = self.running.get_mut(index) {
                *place = Some(running);
            }
            self.check_response(index, response)?;
        }
        let mut load = load.clone();
        load.probes = false;
        let running = self.running.get_mut(index).and_then(Option::as_mut);
        load.server_pid = running.and_then(StartedServer::pid);
        let report = run(load, &mut |_| {})?;
        if self.plan.restarts
            && !server.command.is_empty()
            && let Some(running) = self.running.get_mut(index).and_then(Option::take)
        {
            running.stop(&mut self.clock)?;
        }
        Ok((!report.interrupted).then_some(report))
    }

    fn check_response(&mut self, index: usize, response: ResponseSample) -> Result<(), BenchError> {
        let name = |index: usize| {
            let server = self.plan.servers.get(index);
            server.map_or("", |server| server.name.as_str())
        };
        match &self.first_response {
            Some((first, expected)) => {
                if self.plan.expects_same_responses && *expected != response {
                    return Err(BenchError::Server(format!(
                        "`{}` and `{}` send different responses: status {} with {} bytes, and status {} with {} bytes{}; if that is \
                         meant, set rounds.same_responses = false",
                        name(*first),
                        name(index),
                        expected.status,
                        expected.body.len(),
                        response.status,
                        response.body.len(),
                        match expected.body.len() == response.body.len() {
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
                running.stop(&mut self.clock)?;
            }
        }
        Ok(())
    }
}
