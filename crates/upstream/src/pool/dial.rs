//! Opening one connection for all requests that wait for one.
//!
//! A hundred requests to a node that speaks HTTP/2 do not open a hundred connections.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use apus_net::client::{FailureCause, RequestFailure, RequestPhase};
use tokio::sync::Notify;

use super::Pool;

/// A connection being opened.
pub(super) struct Dial {
    ended: Notify,
    outcome: RefCell<Option<Outcome>>,
}

enum Outcome {
    /// It is open, or whoever opened it gave up: see what there is now.
    Look,
    /// It cannot be opened.
    Failed(RequestPhase, Reason),
}

/// A cause of which there can be copies.
enum Reason {
    TimedOut,
    Closed,
    NoDescriptors,
    Io(io::ErrorKind, String),
    Other(String),
}

impl Dial {
    /// Waits until it is open.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) async fn ended(&self) -> Result<(), RequestFailure> {
        let ended = self.ended.notified();
        if self.outcome.borrow().is_none() {
            ended.await;
        }
        match &*self.outcome.borrow() {
            Some(Outcome::Failed(phase, reason)) => Err(RequestFailure {
                phase: *phase,
                cause: reason.cause(),
                request_sent: false,
                body: None,
            }),
            _ => Ok(()),
        }
    }
}

impl Reason {
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

/// Whoever opens the connection. If it goes before, the next who waits does it.
pub(super) struct Dialing<'a> {
    pool: &'a Pool,
    dial: Rc<Dial>,
}

impl<'a> Dialing<'a> {
    pub(super) fn begin(pool: &'a Pool) -> Self {
        let dial = Rc::new(Dial {
            ended: Notify::new(),
            outcome: RefCell::new(None),
        });
        pool.dial.replace(Some(Rc::clone(&dial)));
        Self { pool, dial }
    }

    /// It is open, or it failed.
    pub(super) fn end(self, failure: Option<&RequestFailure>) {
        if let Some(failure) = failure {
            let reason = Reason::of(&failure.cause);
            let failed = Outcome::Failed(failure.phase, reason);
            self.dial.outcome.replace(Some(failed));
        }
    }
}

impl Drop for Dialing<'_> {
    fn drop(&mut self) {
        self.pool.dial.replace(None);
        self.dial.outcome.borrow_mut().get_or_insert(Outcome::Look);
        self.dial.ended.notify_waiters();
    }
}
