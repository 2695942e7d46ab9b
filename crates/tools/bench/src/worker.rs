//! A thread that generates a share of the load: its runtime, its connections, its recorder.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::arrivals::Arrivals;
use crate::connect::Connector;
use crate::failure::LoadFailure;
use crate::generator::{ThreadReading, ThreadUse};
use crate::plan::{HttpVersion, LoadLimit, LoadPlan};
use crate::protocol::WorkerContext;
use crate::protocol::http1::Http1Load;
use crate::protocol::http2::Http2Load;
use crate::protocol::http3::{Http3Load, QuicSockets};
use crate::protocol::streams;
use crate::protocol::websocket::WebSocketLoad;
use crate::rate::WorkerShare;
use crate::recorder::{IntervalCounts, LoadCounts, MeasurementWindow, Recorder};
use crate::tls::ConnectionTls;
use crate::websocket_mode::BroadcastCounts;

/// The connections that a worker opens at once before the load.
const OPENING_AT_ONCE: usize = 64;

/// What the control thread tells the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Connections are opened.
    Preparing,
    /// The load begins at this time.
    Load(Instant),
    /// The load ends now.
    Stopped,
}

/// What a worker tells the control thread.
pub(crate) enum WorkerMessage {
    /// Its connections are open, or could not be opened.
    Prepared,
    /// What happened in an interval.
    Interval(usize, Box<IntervalCounts>),
    /// It has ended.
    Done(Box<io::Result<WorkerResult>>),
}

/// What a worker needs.
pub(crate) struct WorkerTask {
    pub(crate) plan: Arc<LoadPlan>,
    pub(crate) share: WorkerShare,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<ConnectionTls>,
    /// The encoded requests of the plan, for HTTP/1.1.
    pub(crate) requests: Arc<[Vec<u8>]>,
    pub(crate) broadcast: Arc<BroadcastCounts>,
    pub(crate) interval: Duration,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) messages: mpsc::UnboundedSender<WorkerMessage>,
}

/// What a worker measured.
pub(crate) struct WorkerResult {
    pub(crate) counts: LoadCounts,
    /// Nanoseconds by which the schedule of an open loop was missed.
    pub(crate) lag: Option<Histogram<u64>>,
    /// What the thread consumed in the window.
    pub(crate) used: ThreadUse,
}

impl WorkerTask {
    /// Generates the load of this worker on the current thread.
    pub(crate) fn run(self) -> io::Result<WorkerResult> {
        if let Some(cores) = &self.plan.cores {
            cores.pin()?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())?;
        runtime.block_on(self.generate())
    }

    async fn generate(mut self) -> io::Result<WorkerResult> {
        let context = Rc::new(self.context());
        let sockets = self.quic_sockets()?;
        let connections = self.prepare(&context, sockets.as_ref()).await;
        let _ = self.messages.send(WorkerMessage::Prepared);
        let Some(begin) = self.begin().await else {
            return Ok(self.result(&context, ThreadUse::default()));
        };
        let window_begin = begin + self.plan.warm_up;
        let end = match self.plan.limit {
            LoadLimit::Time(time) => Some(window_begin + time),
            LoadLimit::Requests(_) => None,
        };
        let window = MeasurementWindow {
            begin: window_begin,
            end,
        };
        context.recorder.borrow_mut().set_window(window);
        // Idle connections are held until the load is stopped.
        let end = end.filter(|_| !self.plan.is_idle());
        context.arrivals.set_end(end);
        tokio::time::sleep_until(begin.into()).await;
        let mut tasks = JoinSet::new();
        for connection in connections {
            tasks.spawn_local(connection.run());
        }
        let reading = Rc::new(RefCell::new(None));
        let mut helpers = JoinSet::new();
        helpers.spawn_local(send_intervals(
            Rc::clone(&context),
            (window, self.interval),
            self.messages.clone(),
        ));
        helpers.spawn_local(read_thread(Rc::clone(&reading), window));
        let schedule = {
            let context = Rc::clone(&context);
            async move { context.arrivals.run_schedule(begin).await }
        };
        let mut schedule = tokio::task::spawn_local(schedule);
        self.wait(&context, &mut tasks, end).await;
        self.send_last_interval(&context, window);
        let used = reading
            .borrow()
            .map_or(ThreadUse::default(), |readings: Readings| readings.used());
        // An error of the timer would have made the load end early.
        if schedule.is_finished() {
            (&mut schedule).await.map_err(io::Error::other)??;
        }
        schedule.abort();
        if let Some(sockets) = sockets {
            sockets.close().await;
        }
        if let Some(tls) = &self.tls {
            tls.flush_key_log();
        }
        Ok(self.result(&context, used))
    }

    fn context(&self) -> WorkerContext {
        let plan = &self.plan;
        let times = plan
            .rate
            .as_ref()
            .map(|rate| rate.arrivals(self.share, plan.order));
        let left = match plan.limit {
            LoadLimit::Requests(number) => Some(self.share.of_requests(number)),
            LoadLimit::Time(_) => None,
        };
        let window = MeasurementWindow {
            begin: Instant::now(),
            end: None,
        };
        WorkerContext {
            plan: Arc::clone(plan),
            arrivals: Arrivals::new(times, left),
            recorder: RefCell::new(Recorder::new(window, plan.requests.len())),
            connector: Connector {
                address: self.address,
                tls: self.tls.clone(),
                timeout: plan.timeout,
                reads_slowly: plan.speed.receive.is_some(),
            },
            random: RefCell::new(fastrand::Rng::with_seed(self.share.seed())),
            broadcast: Arc::clone(&self.broadcast),
            workers: self.share.count,
            scenario: plan
                .scenario
                .as_ref()
                .map(|scenario| Rc::new(scenario.worker((self.share.index, self.share.count)))),
            weights: plan
                .requests
                .iter()
                .map(|request| u64::from(request.weight))
                .sum(),
        }
    }

    /// The sockets of HTTP/3.
    fn quic_sockets(&self) -> io::Result<Option<Rc<QuicSockets>>> {
        let (HttpVersion::Http3, Some(tls)) = (self.plan.version, &self.tls) else {
            return Ok(None);
        };
        let count = self.share.of(self.plan.connections.get());
        let sockets = QuicSockets::open(count, self.address, tls.clone(), &self.plan)?;
        Ok(Some(Rc::new(sockets)))
    }

    /// Makes the connections, and opens them if they are kept.
    async fn prepare(
        &self,
        context: &Rc<WorkerContext>,
        sockets: Option<&Rc<QuicSockets>>,
    ) -> Vec<LoadConnection> {
        let requests: Rc<[Vec<u8>]> = self.requests.iter().cloned().collect();
        let count = self.share.of(self.plan.connections.get());
        let mut opening = JoinSet::new();
        let mut connections = Vec::with_capacity(count);
        for id in 0..count {
            let context = Rc::clone(context);
            let mut connection = match (self.plan.version, sockets) {
                (_, Some(sockets)) => {
                    LoadConnection::Http3(Box::new(Http3Load::new(id, context, Rc::clone(sockets))))
                }
                (_, None) if let Some(mode) = self.plan.websocket => {
                    LoadConnection::WebSocket(Box::new(WebSocketLoad::new(id, context, mode)))
                }
                (HttpVersion::Http2, None) => {
                    LoadConnection::Http2(Box::new(Http2Load::new(id, context)))
                }
                (_, None) => LoadConnection::Http1(Box::new(Http1Load::new(
                    id,
                    context,
                    Rc::clone(&requests),
                ))),
            };
            if opening.len() >= OPENING_AT_ONCE
                && let Some(Ok(opened)) = opening.join_next().await
            {
                connections.push(opened);
            }
            opening.spawn_local(async move {
                connection.prepare().await;
                connection
            });
        }
        while let Some(Ok(opened)) = opening.join_next().await {
            connections.push(opened);
        }
        connections
    }

    /// When the load begins; `None` if it was stopped before.
    async fn begin(&mut self) -> Option<Instant> {
        let phase = self
            .phase
            .wait_for(|phase| *phase != Phase::Preparing)
            .await;
        match phase.map(|phase| *phase) {
            Ok(Phase::Load(begin)) => Some(begin),
            _ => None,
        }
    }

    /// Waits until all connections are done, or the load is stopped.
    async fn wait(
        &mut self,
        context: &WorkerContext,
        tasks: &mut JoinSet<()>,
        end: Option<Instant>,
    ) {
        // What is in flight at the end may still be answered.
        let last = end.map(|end| end + self.plan.timeout + Duration::from_millis(100));
        let mut is_stopped = false;
        let mut last = last.unwrap_or_else(far_future);
        while !tasks.is_empty() {
            tokio::select! {
                _ = tasks.join_next() => {}
                () = tokio::time::sleep_until(last.into()) => break,
                stopped = self.phase.wait_for(|phase| *phase == Phase::Stopped), if !is_stopped => {
                    drop(stopped);
                    is_stopped = true;
                    context.arrivals.interrupt();
                    last = Instant::now();
                }
            }
        }
        // Those that end here count what they have in flight.
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        // If the user stopped the load, it is no failure that these were not sent.
        let unsent = context.arrivals.stop();
        if !is_stopped {
            let mut recorder = context.recorder.borrow_mut();
            for due in unsent {
                recorder.failed(LoadFailure::NotSent, 0, due);
            }
        }
    }

    /// Sends what happened since the last whole interval.
    fn send_last_interval(&self, context: &WorkerContext, window: MeasurementWindow) {
        let now = Instant::now().min(window.end.unwrap_or_else(far_future));
        let passed = now.saturating_duration_since(window.begin).as_nanos();
        let index = passed.saturating_sub(1) / self.interval.as_nanos().max(1);
        let counts = context.recorder.borrow_mut().take_interval();
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let _ = self
            .messages
            .send(WorkerMessage::Interval(index, Box::new(counts)));
    }

    fn result(&self, context: &WorkerContext, used: ThreadUse) -> WorkerResult {
        let mut recorder = context.recorder.borrow_mut();
        let requests = self.plan.requests.len();
        WorkerResult {
            counts: std::mem::replace(&mut recorder.counts, LoadCounts::new(requests)),
            lag: context.arrivals.take_lag(),
            used,
        }
    }
}

/// A connection of the load.
enum LoadConnection {
    Http1(Box<Http1Load>),
    Http2(Box<Http2Load>),
    Http3(Box<Http3Load>),
    WebSocket(Box<WebSocketLoad>),
}

impl LoadConnection {
    async fn prepare(&mut self) {
        match self {
            Self::Http1(connection) => connection.prepare().await,
            Self::Http2(connection) => connection.prepare().await,
            Self::Http3(connection) => connection.prepare().await,
            Self::WebSocket(connection) => connection.prepare().await,
        }
    }

    async fn run(self) {
        match self {
            Self::Http1(connection) => connection.run().await,
            Self::Http2(connection) => streams::run(*connection).await,
            Self::Http3(connection) => streams::run(*connection).await,
            Self::WebSocket(connection) => connection.run().await,
        }
    }
}

/// Readings at the begin of the window and last.
#[derive(Clone, Copy)]
struct Readings {
    begin: ThreadReading,
    end: Option<ThreadReading>,
}

impl Readings {
    fn used(self) -> ThreadUse {
        self.end
            .unwrap_or_else(ThreadReading::now)
            .since(self.begin)
    }
}

/// Reads what this thread consumes in the window.
async fn read_thread(readings: Rc<RefCell<Option<Readings>>>, window: MeasurementWindow) {
    tokio::time::sleep_until(window.begin.into()).await;
    let begin = ThreadReading::now();
    *readings.borrow_mut() = Some(Readings { begin, end: None });
    if let Some(end) = window.end {
        tokio::time::sleep_until(end.into()).await;
        let end = Some(ThreadReading::now());
        *readings.borrow_mut() = Some(Readings { begin, end });
    }
}

/// Sends what happens in each interval to the control thread, until it is dropped.
async fn send_intervals(
    context: Rc<WorkerContext>,
    (window, interval): (MeasurementWindow, Duration),
    messages: mpsc::UnboundedSender<WorkerMessage>,
) {
    for index in 0.. {
        let until = window.begin + interval * (index + 1);
        tokio::time::sleep_until(until.into()).await;
        let counts = context.recorder.borrow_mut().take_interval();
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let message = WorkerMessage::Interval(index, Box::new(counts));
        if messages.send(message).is_err() || window.end.is_some_and(|end| until >= end) {
            return;
        }
    }
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}

impl HttpVersion {
    /// The name of the protocol in ALPN (RFC 7301).
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
            Self::Http3 => b"h3",
        }
    }
}
