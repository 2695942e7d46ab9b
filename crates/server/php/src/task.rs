//! Tasks of an application, which workers run without a request.

use std::time::Instant;

use bytes::Bytes;

/// A task or a call of a timer.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) name: Bytes,
    pub(crate) payload: Bytes,
    pub(crate) due: Instant,
    pub(crate) kind: TaskKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    Task { id: u64 },
    Timer,
}

/// A task after an attempt to run it.
#[derive(Debug)]
pub(crate) struct TaskResult {
    pub(crate) task: Task,
    /// Whether no worker began it, so that it has to be tried again.
    pub(crate) is_unprocessed: bool,
}
