//! A connection that is being opened and that all requests which wait for one share.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use apus_client::{FailureCause, RequestFailure, RequestPhase};
use tokio::sync::Notify;

use super::ConnectionPool;

/// A connection that is being opened. Many requests to a node with HTTP/2 or HTTP/3 open one connection, not many.
pub(super) struct PendingConnection {
    ended: Notify,
    outcome: RefCell<Option<ConnectOutcome>>,
}

enum ConnectOutcome {
    /// It is open, or its request was dropped: the pool has to be checked again.
    CheckPool,
    /// It could not be opened.
    Failed(RequestPhase, ConnectFailure),
}

/// The cause of a failure, in a form that can be copied for each request that waits.
enum ConnectFailure {
    TimedOut,
    Closed,
    NoDescriptors,
    Io(io::ErrorKind, String),
    Other(String),
}

impl PendingConnection {
    /// Waits until it is open.
    ///
    /// # Errors
    /// It could not be opened.
    pub(super) async fn ended(&self) -> Result<(), RequestFailure> {
        // Created before the look at the outcome, so that an end between the two is not missed.
        let ended = self.ended.notified();
        if self.outcome.borrow().is_none() {
            ended.await;
        }
        match &*self.outcome.borrow() {
            Some(ConnectOutcome::Failed(phase, reason)) => Err(RequestFailure {
                phase: *phase,
                cause: reason.cause(),
                request_sent: false,
                body: None,
            }),
            _ => Ok(()),
        }
    }
}

impl ConnectFailure {
    fn of(cause: &FailureCause) -> Self {
        match cause {
            FailureCause::TimedOut => Self::TimedOut,
            FailureCause::Closed => Self::Closed,
            FailureCause::NoDescriptors => Self::NoDescriptors,
            FailureCause::Io(error) => Self::Io(error.kind(), error.to_string()),
            other => Self::Other(other.to_string()),
        }
    }

    fn cause(&self) -> FailureCause {
        match self {
            Self::TimedOut => FailureCause::TimedOut,
            Self::Closed => FailureCause::Closed,
            Self::NoDescriptors => FailureCause::NoDescriptors,
            Self::Io(kind, text) => FailureCause::Io(io::Error::new(*kind, text.clone())),
            Self::Other(text) => FailureCause::Protocol(text.clone().into()),
        }
    }
}

/// The guard of the request that opens the connection. If it is dropped before, another request that waits
/// opens one.
pub(super) struct ConnectGuard<'a> {
    pool: &'a ConnectionPool,
    pending: Rc<PendingConnection>,
}

impl<'a> ConnectGuard<'a> {
    pub(super) fn begin(pool: &'a ConnectionPool) -> Self {
        let pending = Rc::new(PendingConnection {
            ended: Notify::new(),
            outcome: RefCell::new(None),
        });
        pool.pending.replace(Some(Rc::clone(&pending)));
        Self { pool, pending }
    }

    /// Ends with an open connection, or with a failure.
    pub(super) fn end(self, failure: Option<&RequestFailure>) {
        if let Some(failure) = failure {
            let cause = ConnectFailure::of(&failure.cause);
            let failed = ConnectOutcome::Failed(failure.phase, cause);
            self.pending.outcome.replace(Some(failed));
        }
    }
}

impl Drop for ConnectGuard<'_> {
    fn drop(&mut self) {
        self.pool.pending.replace(None);
        self.pending
            .outcome
            .borrow_mut()
            // Also when the request was dropped: those that wait would otherwise wait for a connection that nobody
            // opens.
            .get_or_insert(ConnectOutcome::CheckPool);
        self.pending.ended.notify_waiters();
    }
}
