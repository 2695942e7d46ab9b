//! The signals that stop a server.

use apus_net::StopSignals;
use tokio::sync::oneshot;

/// The signals that stop a server: from its start, or from when the program waits for its end.
pub(super) struct SignalSource {
    signals: Option<StopSignals>,
    later: Option<oneshot::Receiver<StopSignals>>,
}

impl SignalSource {
    /// These signals, or those that come through `later`.
    pub(super) fn new(signals: Option<StopSignals>, later: oneshot::Receiver<StopSignals>) -> Self {
        Self {
            signals,
            later: Some(later),
        }
    }

    /// Waits for the next signal. Without signals it never returns.
    pub(super) async fn next(&mut self) {
        if self.signals.is_none()
            && let Some(later) = &mut self.later
        {
            self.signals = later.await.ok();
            self.later = None;
        }
        match &mut self.signals {
            Some(signals) => signals.next().await,
            None => std::future::pending().await,
        }
    }
}

/// Passes the signals of the process to the thread of a server.
pub(super) struct SignalSender {
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) sender: Option<oneshot::Sender<StopSignals>>,
}

impl SignalSender {
    /// The signals stop the server from now on, as they do in [`Server::run`](crate::Server::run).
    pub(super) fn send(&mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        let _entered = self.runtime.enter();
        match StopSignals::new() {
            // A server that has ended does not need them.
            Ok(signals) => drop(sender.send(signals)),
            Err(error) => tracing::warn!(%error, "signals do not stop the server"),
        }
    }
}
