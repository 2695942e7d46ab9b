//! The state of the application, which the supervisor publishes and the services of workers read.

use std::sync::Arc;

use apus_proxy::Proxy;
use tokio::sync::watch;

use crate::diagnostics::BuildFailure;
use crate::output::ProcessOutput;

/// The state at one time.
#[derive(Clone)]
pub(crate) struct DevState {
    /// What a page that is loaded now may show: a page of another version is loaded again.
    pub(crate) version: u64,
    pub(crate) phase: DevPhase,
}

/// What the application does.
#[derive(Clone)]
pub(crate) enum DevPhase {
    /// It is built, and there is none from before that may respond.
    Building,
    /// It was built, and starts.
    Starting,
    /// It responds.
    Ready(Arc<ReadyApplication>),
    /// It cannot be built.
    BuildFailed(Arc<BuildFailure>),
    /// It has ended, or does not listen.
    Failed(Arc<ApplicationFailure>),
}

/// An application that listens.
pub(crate) struct ReadyApplication {
    /// The number of the process, which no other of this run has.
    pub(crate) number: u64,
    pub(crate) proxy: Proxy,
    pub(crate) output: Arc<ProcessOutput>,
    pub(crate) requests: UnansweredRequests,
}

/// The number of requests that a process was sent and has not responded to, and that cannot be sent to another one.
#[derive(Clone)]
pub(crate) struct UnansweredRequests(Arc<watch::Sender<usize>>);

/// A request that was sent, until there is a response.
pub(crate) struct UnansweredRequest(UnansweredRequests);

impl UnansweredRequests {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn begin(&self) -> UnansweredRequest {
        self.0.send_modify(|count| *count += 1);
        UnansweredRequest(self.clone())
    }

    /// Waits until there is none.
    pub(crate) async fn ended(&self) {
        // It fails only without a sender, which this has.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// Why there is a program, but no application that responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApplicationFailure {
    /// The reason.
    pub(crate) title: String,
    /// What the program wrote to standard error.
    pub(crate) output: String,
}

/// The sender of states.
pub(crate) struct DevStateSender(watch::Sender<DevState>);

impl DevStateSender {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(DevState {
            version: 0,
            phase: DevPhase::Building,
        }))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<DevState> {
        self.0.subscribe()
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.0.borrow().phase, DevPhase::Ready(_))
    }

    /// Publishes that requests have to wait.
    pub(crate) fn wait(&self, phase: DevPhase) {
        self.0.send_modify(|state| state.phase = phase);
    }

    /// Publishes a result, which open pages show.
    pub(crate) fn finish(&self, phase: DevPhase) {
        self.0.send_modify(|state| {
            state.version += 1;
            state.phase = phase;
        });
    }

    /// Makes open pages load again.
    pub(crate) fn reload(&self) {
        self.0.send_modify(|state| state.version += 1);
    }
}
