//! A load that can begin: its requests are encoded, its address is known, and single requests of it can be sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::plan::{LoadLimit, LoadPlan};
use crate::protocol::http1;
use crate::rate::WorkerShare;
use crate::recorder::{LoadCounts, ResponseSample};
use crate::target::is_this_machine;
use crate::websocket_mode::BroadcastCounts;
use crate::worker::{Phase, WorkerMessage, WorkerTask};
use crate::{BenchError, LoadFailure};

/// The shortest and the longest interval in which the load is described over time.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Intervals of a load with a known duration.
const INTERVAL_COUNT: u32 = 100;

/// The interval if the duration is not known.
const OPEN_INTERVAL: Duration = Duration::from_millis(250);

/// A load that can begin.
pub(crate) struct PreparedLoad {
    pub(crate) plan: Arc<LoadPlan>,
    requests: Arc<[Vec<u8>]>,
    pub(crate) address: SocketAddr,
    /// Of messages to all connections.
    broadcast: Arc<BroadcastCounts>,
    /// Whether the server is on this machine.
    pub(crate) is_local: bool,
}

impl PreparedLoad {
    pub(crate) fn new(plan: LoadPlan) -> Result<Self, BenchError> {
        plan.check()?;
        let Some(first) = plan.requests.first() else {
            return Err(BenchError::plan("a load needs a URL"));
        };
        let url = first.url.clone();
        let address = url.resolve()?;
        let is_local = is_this_machine(address);
        if !plan.may_load_others && !is_local {
            return Err(BenchError::NotLocal {
                host: url.host().to_owned(),
                address: address.ip().to_string(),
            });
        }
        // Those of scenarios are encoded when they are sent.
        let fixed = plan.requests.iter().filter(|_| plan.scenario.is_none());
        let requests = fixed.map(|request| http1::encode(request, &plan));
        Ok(Self {
            requests: requests.collect::<Result<_, _>>()?,
            address,
            broadcast: Arc::new(BroadcastCounts::new()),
            is_local,
            plan: Arc::new(plan),
        })
    }

    pub(crate) fn worker(
        &self,
        plan: &Arc<LoadPlan>,
        share: WorkerShare,
        channels: (watch::Receiver<Phase>, mpsc::UnboundedSender<WorkerMessage>),
    ) -> Result<WorkerTask, BenchError> {
        let url = plan.requests.first().map(|request| &request.url);
        let tls = match url.filter(|url| url.is_tls()) {
            Some(url) => Some(plan.tls.prepare(url, plan.version.alpn())?),
            None => None,
        };
        Ok(WorkerTask {
            plan: Arc::clone(plan),
            share,
            address: self.address,
            tls,
            requests: Arc::clone(&self.requests),
            broadcast: Arc::clone(&self.broadcast),
            interval: self.interval(),
            phase: channels.0,
            messages: channels.1,
        })
    }

    pub(crate) fn interval(&self) -> Duration {
        match self.plan.limit {
            LoadLimit::Time(time) => (time / INTERVAL_COUNT).clamp(INTERVALS.0, INTERVALS.1),
            LoadLimit::Requests(_) => OPEN_INTERVAL,
        }
    }

    /// Sends requests over one connection.
    pub(crate) fn send(&self, limit: LoadLimit) -> Result<LoadCounts, BenchError> {
        let mut plan = LoadPlan::clone(&self.plan);
        plan.connections = std::num::NonZeroUsize::MIN;
        plan.in_flight = std::num::NonZeroUsize::MIN;
        plan.limit = limit;
        plan.warm_up = Duration::ZERO;
        plan.rate = None;
        plan.think_time = None;
        plan.cores = None;
        let (_phase, phase) = watch::channel(Phase::Load(Instant::now()));
        let (messages, _received) = mpsc::unbounded_channel();
        let share = WorkerShare { index: 0, count: 1 };
        let mut worker = self.worker(&Arc::new(plan), share, (phase, messages))?;
        // The message of this load is not one of those of the next.
        worker.broadcast = Arc::new(BroadcastCounts::new());
        Ok(worker.run()?.counts)
    }

    /// Sends one request, so that a mistake in the URL, a wrong certificate or a server that is not there is reported
    /// before there is any load.
    pub(crate) fn probe(&self) -> Result<ResponseSample, BenchError> {
        let counts = self.send(LoadLimit::Requests(1))?;
        let url = self.plan.requests.first();
        let failure = counts.failed_by_kind().next();
        match failure {
            // The server is there, and what it sends is measured.
            None => Ok(counts.sample),
            Some(failure) if failure.kind.is_of_a_response() => Ok(counts.sample),
            Some(failure) => {
                let advice = match failure.kind {
                    LoadFailure::Tls if failure.is_about("invalid peer certificate") => {
                        "; name its authority with --cacert, or accept any certificate with --insecure"
                    }
                    _ => "",
                };
                Err(BenchError::Unreachable {
                    url: url.map_or(String::new(), |request| request.url.to_string()),
                    cause: format!("{failure}{advice}"),
                })
            }
        }
    }
}

/// Sends one request; the response, if it is complete.
///
/// # Errors
/// It cannot be sent: see [`BenchError`].
pub fn fetch(plan: &LoadPlan) -> Result<ResponseSample, BenchError> {
    let mut plan = plan.clone();
    plan.keeps_sample = true;
    PreparedLoad::new(plan)?.probe()
}

/// Runs the scenario of a plan once, over one connection; what is wrong with the first step that fails, if one does.
///
/// # Errors
/// It cannot begin: see [`BenchError`].
pub fn run_scenario(mut plan: LoadPlan) -> Result<Option<String>, BenchError> {
    plan.limit = LoadLimit::Requests(plan.requests.len() as u64);
    plan.warm_up = Duration::ZERO;
    let prepared = PreparedLoad::new(plan)?;
    let counts = prepared.send(prepared.plan.limit)?;
    let failed = counts.by_request.iter().position(|(_, failed)| *failed > 0);
    let step = failed.and_then(|index| prepared.plan.requests.get(index));
    Ok(step
        .zip(counts.failed_by_kind().next())
        .map(|(step, failure)| {
            let name = step.name.as_deref().unwrap_or_default();
            format!("{name}, {} {}: {failure}", step.method, step.url)
        }))
}
