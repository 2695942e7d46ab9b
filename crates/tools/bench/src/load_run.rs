//! Carries out a load: its workers, its clock, and the consumption of the server.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::usage::ServerProcesses;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::plan::{LoadLimit, LoadPlan};
use crate::prepared_load::PreparedLoad;
use crate::rate::WorkerShare;
use crate::recorder::{IntervalCounts, LoadCounts, band_start};
use crate::report::{BenchReport, LoadOutcome, LoadWindow, ReadingSource, ServerReadings};
use crate::status_page::StatusPage;
use crate::worker::{Phase, WorkerMessage, WorkerResult};
use crate::{BenchError, WebSocketMode};

/// The most intervals; what comes later is in the last one.
const MAX_INTERVALS: usize = 100_000;

/// How often the consumption of the server is read at most.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The time between the decision to begin and the begin, so that all threads begin together.
const BEGIN_AFTER: Duration = Duration::from_millis(5);

/// What is known while a load runs.
#[derive(Clone, Debug)]
pub struct LoadProgress {
    /// Seconds since the begin of the measurement.
    pub seconds: f64,
    /// Good responses and failures in the last interval.
    pub good: u64,
    /// Failures in the last interval.
    pub failed: u64,
    /// The length of an interval in seconds.
    pub interval: f64,
    /// Milliseconds below which half of the latencies of the interval are.
    pub p50_ms: f64,
    /// Milliseconds below which 99% of the latencies of the interval are.
    pub p99_ms: f64,
    /// Good responses of the interval by their latency; [`latency_band_start_ms`] tells where each band begins.
    pub bands: Vec<u32>,
}

/// Where a band of latencies of [`LoadProgress::bands`] begins, in milliseconds.
pub fn latency_band_start_ms(band: usize) -> f64 {
    band_start(band) * 1e3
}

/// Carries out a load, and tells `observe` about each interval. Waits until the load is over. SIGINT ends it early; then
/// the report is about the time until then.
///
/// # Errors
/// The load cannot begin: see [`BenchError`]. Failures during the load are part of the report.
pub fn run(
    plan: LoadPlan,
    observe: &mut dyn FnMut(&LoadProgress),
) -> Result<BenchReport, BenchError> {
    let prepared = PreparedLoad::new(plan)?;
    raise_descriptor_limit();
    if prepared.plan.probes {
        prepared.probe()?;
    }
    let server = prepared.reading_source()?;
    let behind = match prepared.plan.behind_pids.split_first() {
        Some((first, others)) => Some(process(*first)?.and(others)),
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let sources = (server, behind.map(of_processes));
    runtime.block_on(prepared.control(sources, observe))
}

/// The proportional set size of the server of a plan, and of the processes that are counted as the server's, if it is of this machine.
///
/// # Errors
/// The plan is wrong, or its processes are not there: see [`BenchError`].
pub fn server_pss(plan: LoadPlan) -> Result<Option<u64>, BenchError> {
    let source = PreparedLoad::new(plan)?.reading_source()?;
    Ok(source.and_then(|source| (source.pss)()))
}

impl PreparedLoad {
    /// Who tells what the server consumes.
    fn reading_source(&self) -> Result<Option<ReadingSource>, BenchError> {
        let plan = &self.plan;
        if let Some(url) = &plan.status_page {
            let page = StatusPage::new(url, plan)?;
            return Ok(Some(ReadingSource {
                name: url.to_string(),
                pid: None,
                read: Box::new(move || page.read()),
                pss: Box::new(|| None),
            }));
        }
        let processes = match plan.server_pid {
            Some(pid) => Some(process(pid)?),
            None if self.is_local => ServerProcesses::of_port(self.address.port()),
            None => None,
        };
        let processes = processes.map(|processes| processes.and(&plan.further_pids));
        Ok(processes.map(of_processes))
    }

    async fn control(
        &self,
        (server, behind): (Option<ReadingSource>, Option<ReadingSource>),
        observe: &mut dyn FnMut(&LoadProgress),
    ) -> Result<BenchReport, BenchError> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let has_warm_up = !self.plan.warm_up.is_zero();
        let readings = ServerReadings::new(server, has_warm_up);
        let threads = self.plan.useful_threads();
        let (phase, workers_phase) = watch::channel(Phase::Preparing);
        let (messages, mut received) = mpsc::unbounded_channel();
        for index in 0..threads {
            let share = WorkerShare {
                index,
                count: threads,
            };
            let channels = (workers_phase.clone(), messages.clone());
            let task = self.worker(&self.plan, share, channels)?;
            let messages = messages.clone();
            thread::Builder::new()
                .name(format!("bench-{index}"))
                .spawn(move || {
                    let result = task.run();
                    let _ = messages.send(WorkerMessage::Done(Box::new(result)));
                })?;
        }
        drop(messages);
        let mut control = LoadControl {
            interval: self.interval(),
            plan: &self.plan,
            phase,
            prepared: 0,
            begin: None,
            series: Vec::new(),
            arrived: Vec::new(),
            results: Vec::new(),
            threads,
            last_good: Instant::now(),
            is_interrupted: false,
            readings,
            behind: ServerReadings::new(behind, has_warm_up),
        };
        let mut ticks = tokio::time::interval(READ_EVERY.max(control.interval));
        while control.results.len() < threads {
            tokio::select! {
                message = received.recv() => match message {
                    Some(message) => control.handle(message, observe)?,
                    None => return Err(BenchError::System(std::io::Error::other("a thread of the load failed"))),
                },
                _ = ticks.tick() => control.tick(),
                () = control.window_edge() => control.note_edge(),
                _ = interrupt.recv() => control.stop(true),
            }
        }
        Ok(control.report(self.address))
    }
}

/// The state of the thread that controls a load.
struct LoadControl<'a> {
    plan: &'a LoadPlan,
    phase: watch::Sender<Phase>,
    /// Workers that can begin.
    prepared: usize,
    /// The begin of the window.
    begin: Option<Instant>,
    interval: Duration,
    series: Vec<IntervalCounts>,
    /// How many workers have sent each interval.
    arrived: Vec<usize>,
    results: Vec<WorkerResult>,
    threads: usize,
    last_good: Instant,
    is_interrupted: bool,
    readings: ServerReadings,
    /// Of the programs behind the server.
    behind: ServerReadings,
}

impl LoadControl<'_> {
    fn handle(
        &mut self,
        message: WorkerMessage,
        observe: &mut dyn FnMut(&LoadProgress),
    ) -> Result<(), BenchError> {
        match message {
            WorkerMessage::Prepared => {
                self.prepared += 1;
                if self.prepared == self.threads {
                    let begin = Instant::now() + BEGIN_AFTER;
                    self.begin = Some(begin + self.plan.warm_up);
                    self.last_good = begin + self.plan.warm_up;
                    self.phase.send_if_modified(|phase| {
                        let is_first = *phase == Phase::Preparing;
                        if is_first {
                            *phase = Phase::Load(begin);
                        }
                        is_first
                    });
                }
            }
            WorkerMessage::Interval(index, counts) => self.add_interval(index, &counts, observe),
            WorkerMessage::Done(result) => self.results.push((*result)?),
        }
        Ok(())
    }

    fn add_interval(
        &mut self,
        index: usize,
        counts: &IntervalCounts,
        observe: &mut dyn FnMut(&LoadProgress),
    ) {
        let index = index.min(MAX_INTERVALS);
        if self.series.len() <= index {
            self.series.resize(index + 1, IntervalCounts::default());
            self.arrived.resize(index + 1, 0);
        }
        if counts.good > 0 {
            self.last_good = Instant::now();
        }
        let (Some(sum), Some(arrived)) = (self.series.get_mut(index), self.arrived.get_mut(index))
        else {
            return;
        };
        sum.add(counts);
        *arrived += 1;
        if *arrived == self.threads {
            let interval = self.interval.as_secs_f64();
            observe(&LoadProgress {
                seconds: interval * (index + 1) as f64,
                good: sum.good,
                failed: sum.failed,
                interval,
                p50_ms: sum.quantile(0.5) * 1e3,
                p99_ms: sum.quantile(0.99) * 1e3,
                bands: sum.bands.to_vec(),
            });
        }
    }

    /// Waits for the next edge of the window.
    async fn window_edge(&self) {
        let Some(begin) = self.begin else {
            return std::future::pending().await;
        };
        if !self.readings.has_begun() {
            return tokio::time::sleep_until(begin.into()).await;
        }
        match self.plan.limit {
            LoadLimit::Time(time) if !self.readings.has_ended() => {
                tokio::time::sleep_until((begin + time).into()).await;
            }
            _ => std::future::pending().await,
        }
    }

    fn note_edge(&mut self) {
        if !self.readings.has_begun() {
            self.readings.begin();
            self.behind.begin();
        } else if self.plan.is_idle() {
            self.stop(false);
        } else {
            self.end_readings();
        }
    }

    fn end_readings(&mut self) {
        self.readings.end();
        self.behind.end();
    }

    fn tick(&mut self) {
        self.readings.add_point();
        // Otherwise a number of requests might never be reached.
        let is_silent = self.begin.is_some() && self.last_good.elapsed() > self.plan.timeout * 2;
        if is_silent
            && matches!(self.plan.limit, LoadLimit::Requests(_))
            && self.plan.rate.is_none()
        {
            self.stop(false);
        }
    }

    fn stop(&mut self, is_interrupted: bool) {
        self.is_interrupted |= is_interrupted;
        self.end_readings();
        self.phase.send_replace(Phase::Stopped);
    }

    fn report(mut self, address: SocketAddr) -> BenchReport {
        self.end_readings();
        let mut counts = LoadCounts::new(self.plan.requests.len());
        let mut lag = None;
        let mut used = Vec::new();
        for result in self.results {
            counts.add(result.counts);
            used.push(result.used);
            lag = match (lag, result.lag) {
                (None, lag) => lag,
                (Some(mut sum), Some(lag)) => {
                    // All have the same bounds, so this cannot fail.
                    let _ = hdrhistogram::Histogram::add(&mut sum, &lag);
                    Some(sum)
                }
                (lag, None) => lag,
            };
        }
        if self.plan.websocket == Some(WebSocketMode::Broadcast) && !self.is_interrupted {
            counts.note_lost_broadcasts(self.plan.connections.get() as u64);
        }
        let begin = self.begin.unwrap_or_else(Instant::now);
        let ended = match (self.plan.limit, self.is_interrupted) {
            (LoadLimit::Time(time), false) => begin + time,
            (LoadLimit::Time(time), true) => Instant::now().min(begin + time),
            (LoadLimit::Requests(_), _) => counts.last_end.unwrap_or(begin),
        };
        BenchReport::new(
            self.plan,
            LoadOutcome {
                address,
                counts,
                lag,
                used,
                window: LoadWindow {
                    begin,
                    time: ended.saturating_duration_since(begin),
                },
                interval: self.interval,
                series: self.series,
                is_interrupted: self.is_interrupted,
                readings: self.readings,
                behind: self.behind,
            },
        )
    }
}

fn process(pid: u32) -> Result<ServerProcesses, BenchError> {
    let unknown = || {
        BenchError::Process(format!(
            "there is no process {pid}, or it belongs to somebody else"
        ))
    };
    ServerProcesses::of_pid(pid).ok_or_else(unknown)
}

fn of_processes(processes: ServerProcesses) -> ReadingSource {
    let (name, pid) = processes.name();
    let same = processes.clone();
    ReadingSource {
        name,
        pid: Some(pid),
        read: Box::new(move || processes.read()),
        pss: Box::new(move || same.pss()),
    }
}

/// Raises the limit of open files, of which each connection needs one, to the hard limit.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // A lower limit is noticed, and counted, when there is no descriptor left.
    let _ = setrlimit(Resource::Nofile, raised);
}
