//! A task of an application, which a worker does without a request.

use std::time::Instant;

use bytes::Bytes;

/// Something to be done by a worker.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) name: Bytes,
    pub(crate) payload: Bytes,
    pub(crate) due: Instant,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Task { id: u64 },
    Timer,
}

/// A task that a worker was asked to do.
#[derive(Debug)]
pub(crate) struct TaskDone {
    pub(crate) task: Task,
    /// Whether no worker was there for it, so that it has to wait on.
    pub(crate) is_untouched: bool,
}
