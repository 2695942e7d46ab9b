//! The signals that stop a server.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// SIGTERM and SIGINT.
pub(super) struct TerminationSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl TerminationSignals {
    /// From now on they do not end the process. The caller is in the runtime of a server.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// The signals that stop a server: from its start, or from when the program waits for its end.
pub(super) struct SignalSource {
    signals: Option<TerminationSignals>,
    later: Option<oneshot::Receiver<TerminationSignals>>,
}

impl SignalSource {
    /// These signals, or those that come through `later`.
    pub(super) fn new(
        signals: Option<TerminationSignals>,
        later: oneshot::Receiver<TerminationSignals>,
    ) -> Self {
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
            Some(signals) => {
                tokio::select! {
                    _ = signals.terminate.recv() => {}
                    _ = signals.interrupt.recv() => {}
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// Passes the signals of the process to the thread of a server.
pub(super) struct SignalSender {
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) sender: Option<oneshot::Sender<TerminationSignals>>,
}

impl SignalSender {
    /// The signals stop the server from now on, as they do in [`Server::run`](crate::Server::run).
    pub(super) fn send(&mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        let _entered = self.runtime.enter();
        match TerminationSignals::new() {
            // A server that has ended does not need them.
            Ok(signals) => drop(sender.send(signals)),
            Err(error) => tracing::warn!(%error, "signals do not stop the server"),
        }
    }
}
