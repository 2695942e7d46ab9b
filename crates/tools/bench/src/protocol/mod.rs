//! The protocols of a load, each as the task of a connection.
//!
//! These tasks drive the codecs as those of `apus-net` and `apus-client` do, and share with them what is below a request: the
//! codecs, QUIC, and the sockets and TLS of `apus-transport`. They do not send their requests through `apus-client`:
//!
//! - A request of the client comes from another task, and its response is read there. So each has a head and a target of its
//!   own, a slot for the response, a boxed stream, a waker and a channel for the body. Here one task chooses a request,
//!   encodes it from where it stands in the plan, and counts the response where it was received. None of these is allocated,
//!   and no task is woken for a response. The generator shares its machine with the server that it measures.
//! - The client decides for its callers what a load has to decide: windows, the streams of a connection, deadlines to about
//!   a quarter of a second, when a body is sent. A load needs windows that no server waits for, or those of a slow reader,
//!   the moment at which each response ended, and the kind of each failure.

pub(crate) mod http1;
pub(crate) mod http2;
mod http2_tunnel;
pub(crate) mod http3;
pub(crate) mod streams;
pub(crate) mod websocket;

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use apus_http::Headers;
use apus_transport::Transport;

use crate::arrivals::Arrivals;
use crate::connect::{Connector, OpenedConnection};
use crate::pace::BytePace;
use crate::plan::{Expectations, LoadPlan};
use crate::recorder::{GoodResponse, Recorder};
use crate::scenario::{ScenarioUser, ScenarioWorker};
use crate::think_time::ThinkPause;
use crate::websocket_mode::BroadcastCounts;
use crate::{LoadFailure, PlannedRequest};

/// The time between two attempts of a connection that cannot be opened.
pub(crate) const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// The user of a connection, if the load has scenarios.
pub(crate) type LoadUser = Option<Box<ScenarioUser>>;

/// What all connections of a worker share.
pub(crate) struct WorkerContext {
    pub(crate) plan: Arc<LoadPlan>,
    pub(crate) arrivals: Arrivals,
    pub(crate) recorder: RefCell<Recorder>,
    pub(crate) connector: Connector,
    pub(crate) random: RefCell<fastrand::Rng>,
    pub(crate) scenario: Option<Rc<ScenarioWorker>>,
    pub(crate) broadcast: Arc<BroadcastCounts>,
    /// The threads of the load.
    pub(crate) workers: usize,
    /// The sum of all weights.
    pub(crate) weights: u64,
}

impl WorkerContext {
    /// The user of a connection.
    pub(crate) fn user(&self) -> LoadUser {
        let user = ScenarioUser::new(self.scenario.as_ref()?)?;
        Some(Box::new(user))
    }

    /// A request that was chosen.
    pub(crate) fn request<'a>(
        &'a self,
        index: usize,
        user: &'a LoadUser,
    ) -> Option<&'a PlannedRequest> {
        match user {
            Some(user) => Some(user.request()),
            None => self.plan.requests.get(index),
        }
    }

    /// Chooses the next request: the next step of a user, or one of the plan by the weights.
    pub(crate) fn choose(&self, user: &mut LoadUser) -> usize {
        if let Some(user) = user {
            return user.advance();
        }
        if self.plan.requests.len() == 1 {
            return 0;
        }
        let mut at = self.random.borrow_mut().u64(0..self.weights.max(1));
        for (index, request) in self.plan.requests.iter().enumerate() {
            match at.checked_sub(u64::from(request.weight)) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        0
    }

    /// When a request begins that is due then: at once in a closed loop, and now in an open one, where it may have waited for
    /// a connection.
    pub(crate) fn begin(&self, due: Instant, request: usize) -> BegunRequest {
        let began = if self.arrivals.is_closed_loop() {
            due
        } else {
            Instant::now()
        };
        BegunRequest {
            due,
            began,
            request,
        }
    }

    /// Takes data of the body of a response.
    pub(crate) fn receive(&self, received: &mut ReceivedBody, data: &[u8], user: &mut LoadUser) {
        received.add(data, &self.plan.expected);
        if self.plan.keeps_sample {
            self.recorder.borrow_mut().counts.sample.add(data);
        }
        if let Some(user) = user {
            user.note_data(data);
        }
    }

    /// Records a request that failed.
    pub(crate) fn failed(&self, kind: LoadFailure, begun: BegunRequest, user: &mut LoadUser) {
        if let Some(user) = user {
            user.abandon();
        }
        self.recorder
            .borrow_mut()
            .failed(kind, begun.request, begun.due);
    }

    /// Records a complete response.
    pub(crate) fn complete(
        &self,
        begun: BegunRequest,
        (received, ended): (&ReceivedBody, Instant),
        user: &mut LoadUser,
    ) {
        let mistake = match user {
            Some(user) => user.finish(received.status, received.bytes),
            None => received.mistake(&self.plan.expected),
        };
        self.record(begun, (received, ended), mistake);
    }

    /// Records a complete response with what is wrong with it, if anything.
    pub(crate) fn record(
        &self,
        begun: BegunRequest,
        (received, ended): (&ReceivedBody, Instant),
        mistake: Option<(LoadFailure, String)>,
    ) {
        let mut recorder = self.recorder.borrow_mut();
        if self.plan.keeps_sample {
            recorder.counts.sample.status = received.status;
        }
        match mistake {
            None => recorder.good(GoodResponse {
                due: begun.due,
                began: begun.began,
                ended,
                status: received.status,
                body_bytes: received.bytes,
                request: begun.request,
            }),
            Some((kind, cause)) => {
                recorder.cause(kind, || cause);
                recorder.status_of_failed(received.status, begun.due);
                recorder.failed(kind, begun.request, begun.due);
            }
        }
    }

    /// Begins the pause of a connection after a response, if there is one.
    pub(crate) fn pause(&self, pause: &mut ThinkPause, user: &LoadUser) {
        let of_user = user.as_ref().and_then(|user| user.pause());
        if let Some(time) = of_user.or(self.plan.think_time) {
            pause.begin(time.choose(&mut self.random.borrow_mut()), &self.arrivals);
        }
    }

    /// Opens a connection and records it.
    pub(crate) async fn open(self: &Rc<Self>) -> Result<OpenedConnection, LoadFailure> {
        let opened = self.connector.open().await;
        let mut recorder = self.recorder.borrow_mut();
        match opened {
            Ok(opened) => {
                recorder.opened(opened.took, opened.resumed);
                Ok(opened)
            }
            Err(failure) => {
                recorder.cause(failure.kind, || failure.cause);
                Err(failure.kind)
            }
        }
    }
}

/// Reads from a connection, at its pace.
pub(crate) fn poll_read(
    transport: &mut Transport,
    cx: &mut Context<'_>,
    (input, pace): (&mut Vec<u8>, &mut BytePace),
) -> Poll<io::Result<usize>> {
    let Some(most) = ready!(pace.poll_ready(cx)) else {
        return transport.poll_read(cx, input);
    };
    let mut part = Vec::with_capacity(most);
    let read = ready!(transport.poll_read(cx, &mut part))?;
    pace.spend(read);
    input.append(&mut part);
    Poll::Ready(Ok(read))
}

/// Writes to a connection, at its pace.
pub(crate) fn poll_write(
    transport: &mut Transport,
    cx: &mut Context<'_>,
    (bytes, pace): (&[u8], &mut BytePace),
) -> Poll<io::Result<usize>> {
    let most = ready!(pace.poll_ready(cx)).unwrap_or(bytes.len());
    let part = bytes.get(..most.min(bytes.len())).unwrap_or_default();
    let written = ready!(transport.poll_write(cx, &[IoSlice::new(part)]))?;
    pace.spend(written);
    Poll::Ready(Ok(written))
}

/// A request that was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunRequest {
    pub(crate) due: Instant,
    pub(crate) began: Instant,
    /// Which request of the plan it is.
    pub(crate) request: usize,
}

/// The part of the response to a request that was received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceivedBody {
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    is_other: bool,
    /// The status of a call of gRPC.
    grpc_status: Option<u32>,
}

impl ReceivedBody {
    /// A message over WebSocket.
    pub(crate) fn of_message(bytes: usize) -> Self {
        Self {
            status: 101,
            bytes: bytes as u64,
            ..Self::default()
        }
    }

    /// Notes the fields of the head or of the trailers, of which gRPC needs one.
    pub(crate) fn note_fields(&mut self, fields: &Headers, expected: &Expectations) {
        if expected.grpc
            && let Some(status) = fields.get_str("grpc-status")
        {
            self.grpc_status = status.parse().ok();
        }
    }

    /// Adds data of the body.
    pub(crate) fn add(&mut self, data: &[u8], expected: &Expectations) {
        if let Some(body) = &expected.body
            && !self.is_other
        {
            let from = usize::try_from(self.bytes).unwrap_or(usize::MAX);
            self.is_other = !body.get(from..).is_some_and(|rest| rest.starts_with(data));
        }
        self.bytes += data.len() as u64;
    }

    /// What is wrong with the whole response.
    pub(crate) fn mistake(&self, expected: &Expectations) -> Option<(LoadFailure, String)> {
        if !expected.statuses.contains(&self.status) {
            return Some((LoadFailure::WrongStatus, format!("status {}", self.status)));
        }
        if expected.grpc && self.grpc_status != Some(0) {
            let status = self.grpc_status.map(|status| status.to_string());
            let cause = format!("status {}", status.as_deref().unwrap_or("missing"));
            return Some((LoadFailure::GrpcStatus, cause));
        }
        let length = expected
            .length
            .or(expected.body.as_ref().map(|body| body.len() as u64));
        match length {
            Some(length) if length != self.bytes => Some((
                LoadFailure::WrongLength,
                format!("{} bytes instead of {length}", self.bytes),
            )),
            _ if self.is_other => Some((
                LoadFailure::WrongBody,
                "the body has other bytes than expected".to_owned(),
            )),
            _ => None,
        }
    }
}
