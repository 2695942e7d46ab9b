//! What a load is: the requests, the connections, the loop, and what a good response is.

use std::num::{NonZeroU64, NonZeroUsize};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cpu_list::CpuList;
use crate::rate::{ArrivalOrder, ArrivalRate};
use crate::scenario::ScenarioPlan;
use crate::{BenchError, BenchUrl, ClientSpeed, PlannedRequest, ThinkTime, TlsPlan, WebSocketMode};

/// A load on one server.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The requests, of which each is sent as often as its weight says. All have the same origin.
    pub requests: Vec<PlannedRequest>,
    /// Scenarios, whose steps are `requests`: see [`set_scenario`](Self::set_scenario).
    pub(crate) scenario: Option<Arc<ScenarioPlan>>,
    /// Messages over WebSocket instead of requests: the body of the first request, over HTTP/1.1 or HTTP/2.
    pub websocket: Option<WebSocketMode>,
    /// The version of HTTP.
    pub version: HttpVersion,
    /// The connections, over all threads.
    pub connections: NonZeroUsize,
    /// The threads that generate the load.
    pub threads: NonZeroUsize,
    /// The requests that a connection has in flight: pipelined ones over HTTP/1.1, streams over HTTP/2 and HTTP/3.
    pub in_flight: NonZeroUsize,
    /// Whether a connection is used for more than one request (HTTP/1.1, HTTP/3).
    pub keeps_alive: bool,
    /// How long a connection is used before another one replaces it.
    pub life: ConnectionLife,
    /// How fast connections send and receive.
    pub speed: ClientSpeed,
    /// Bytes that a server may send over a connection before they are read (HTTP/2, HTTP/3), instead of 16 MiB over
    /// HTTP/2 and 1 MiB over HTTP/3.
    pub receive_window: Option<u32>,
    /// Whether one request is sent before the load, so that a server that cannot be reached is an error.
    pub probes: bool,
    /// When the load ends.
    pub limit: LoadLimit,
    /// Load before the measurement.
    pub warm_up: Duration,
    /// An open loop with this rate. Without it, a closed loop: a connection sends its next request when it has the
    /// response to the last one.
    pub rate: Option<ArrivalRate>,
    /// How the requests of `rate` are spread.
    pub order: ArrivalOrder,
    /// How long a connection of a closed loop waits between a response and its next request.
    pub think_time: Option<ThinkTime>,
    /// How long a connection may take to be opened, and a response to be complete.
    pub timeout: Duration,
    /// What a good response is.
    pub expected: Expectations,
    /// TLS, for `https`.
    pub tls: TlsPlan,
    /// Whether hosts that are not this machine may be loaded.
    pub may_load_others: bool,
    /// The processors that the threads of the generator may use; all, if there is none.
    pub cores: Option<CpuList>,
    /// Whether the first response is kept.
    pub(crate) keeps_sample: bool,
    /// The process whose consumption is measured; without it, those that listen on the port if they are of this machine.
    pub server_pid: Option<u32>,
    /// Further processes that are counted as the server's.
    pub further_pids: Vec<u32>,
    /// Processes behind the server, which are counted apart.
    pub behind_pids: Vec<u32>,
    /// The status endpoint of the server, whose values are read instead of those of processes.
    pub status_page: Option<BenchUrl>,
}

/// How long a connection is used before another one replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionLife {
    /// So many requests.
    pub requests: Option<NonZeroU64>,
    /// So long; requests in flight are completed.
    pub time: Option<Duration>,
}

/// The version of HTTP over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, negotiated by ALPN over TLS, and by prior knowledge in clear text.
    Http2,
    /// HTTP/3 over QUIC, which always has TLS.
    Http3,
}

impl HttpVersion {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadLimit {
    /// After this time, without the warm-up.
    Time(Duration),
    /// After this number of requests.
    Requests(u64),
}

/// What a good response is. Any other is a failure and part of no latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectations {
    /// The statuses.
    pub statuses: RangeInclusive<u16>,
    /// The length of the body.
    pub length: Option<u64>,
    /// The body.
    pub body: Option<Vec<u8>>,
    /// A call of gRPC: the trailers, or the head, have the status 0 (OK).
    pub grpc: bool,
}

impl Default for Expectations {
    /// A status from 200 to 399, and any body.
    fn default() -> Self {
        Self {
            statuses: 200..=399,
            length: None,
            body: None,
            grpc: false,
        }
    }
}

impl LoadPlan {
    /// A closed loop with GET requests over 50 connections for 10 seconds.
    pub fn new(url: BenchUrl) -> Self {
        Self {
            requests: vec![PlannedRequest::get(url)],
            scenario: None,
            websocket: None,
            version: HttpVersion::default(),
            connections: NonZeroUsize::MIN.saturating_add(49),
            threads: default_threads(),
            in_flight: NonZeroUsize::MIN,
            keeps_alive: true,
            life: ConnectionLife::default(),
            speed: ClientSpeed::default(),
            receive_window: None,
            probes: true,
            limit: LoadLimit::Time(Duration::from_secs(10)),
            warm_up: Duration::from_secs(1),
            rate: None,
            order: ArrivalOrder::default(),
            think_time: None,
            timeout: Duration::from_secs(10),
            expected: Expectations::default(),
            tls: TlsPlan::default(),
            may_load_others: false,
            cores: None,
            keeps_sample: false,
            server_pid: None,
            further_pids: Vec::new(),
            behind_pids: Vec::new(),
            status_page: None,
        }
    }

    /// Runs scenarios instead of requests.
    pub fn set_scenario(&mut self, scenario: Arc<ScenarioPlan>) {
        self.requests = scenario.requests().to_vec();
        self.scenario = Some(scenario);
    }

    /// Whether connections are left alone once they had a response each. They stay open until the consumption of the server was read at
    /// the end.
    pub(crate) fn is_idle(&self) -> bool {
        self.think_time == Some(ThinkTime::UNTIL_THE_END)
    }

    /// Whether no further request is to be sent over a connection that was opened then, after this number of them.
    pub(crate) fn is_spent(&self, begun: u64, opened: Instant) -> bool {
        let life = &self.life;
        (!self.keeps_alive && begun > 0)
            || life.requests.is_some_and(|most| begun >= most.get())
            || life.time.is_some_and(|most| opened.elapsed() >= most)
    }

    /// Checks that the parts of the plan fit together.
    pub fn check(&self) -> Result<(), BenchError> {
        let wrong = |message: &str| Err(BenchError::plan(message));
        let Some((first, others)) = self.requests.split_first() else {
            return wrong("a load needs a URL");
        };
        if let Some(other) = others
            .iter()
            .find(|one| !one.url.has_same_origin(&first.url))
        {
            return Err(BenchError::plan(format!(
                "{} and {} are of different servers; a load is for one scheme, host and port",
                first.url, other.url
            )));
        }
        if self.requests.iter().all(|request| request.weight == 0) {
            return wrong("at least one URL needs a weight of more than 0");
        }
        if self.limit == LoadLimit::Time(Duration::ZERO) || self.limit == LoadLimit::Requests(0) {
            return wrong("a load needs a duration or a number of requests of more than 0");
        }
        if matches!(self.limit, LoadLimit::Requests(_)) && !self.warm_up.is_zero() {
            return wrong("a number of requests cannot have a warm-up; use a duration");
        }
        if self.timeout.is_zero() {
            return wrong("the time limit of a request must be more than 0");
        }
        if self.version == HttpVersion::Http2 && !self.keeps_alive {
            return wrong(
                "HTTP/2 has no `Connection: close`; a connection can have a number of requests",
            );
        }
        if self.version == HttpVersion::Http3 && !first.url.is_tls() {
            return wrong("HTTP/3 needs a URL with https");
        }
        if !self.keeps_alive && self.in_flight.get() > 1 {
            return wrong("several requests in flight need connections that are kept alive");
        }
        if self.think_time.is_some() && (self.rate.is_some() || self.in_flight.get() > 1) {
            return wrong(
                "a think time needs a closed loop with one request in flight over each connection",
            );
        }
        if self.websocket.is_some() {
            self.check_websocket()?;
        }
        if self.websocket.is_none() && self.requests.iter().any(|one| one.url.is_websocket()) {
            return wrong("a URL with ws or wss needs a load of messages");
        }
        if self.expected.grpc && self.version != HttpVersion::Http2 {
            return wrong("gRPC needs HTTP/2");
        }
        if self.scenario.is_some() && self.in_flight.get() > 1 {
            return wrong("a scenario has one request in flight over each connection");
        }
        let is_pipelined = self.version == HttpVersion::Http1 && self.websocket.is_none();
        if is_pipelined && self.in_flight.get() > 1 && self.rate.is_some() {
            return wrong(
                "pipelining needs a closed loop: with a rate, a request would wait behind another although it is due",
            );
        }
        Ok(())
    }

    /// Checks a load of messages.
    fn check_websocket(&self) -> Result<(), BenchError> {
        let wrong = |message: &str| Err(BenchError::plan(message));
        if self.version == HttpVersion::Http3 || self.scenario.is_some() {
            return wrong("WebSocket needs HTTP/1.1 or HTTP/2, and has no scenarios");
        }
        if !self.keeps_alive {
            return wrong(
                "a connection of WebSocket has no `Connection: close`; it can have a number of requests, which are messages",
            );
        }
        let is_to_all = self.websocket == Some(WebSocketMode::Broadcast);
        if is_to_all && self.life != ConnectionLife::default() {
            return wrong("connections that get all messages stay open");
        }
        if self.expected != Expectations::default() {
            return wrong("a message has no status, and its body is known: it is what was sent");
        }
        Ok(())
    }

    /// The threads that have a connection each.
    pub(crate) fn useful_threads(&self) -> usize {
        self.threads.min(self.connections).get()
    }
}

/// Half of the cores, so that a server of this machine has the other half.
fn default_threads() -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN)
}
