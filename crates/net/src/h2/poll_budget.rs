//! The share of a worker that one poll of an HTTP/2 connection may take.

use super::write::BATCH;

/// The most work that one poll does before other connections are polled.
const MAX_BYTES: usize = 2 * BATCH;
const MAX_REQUESTS: usize = 128;
const MAX_ROUNDS: usize = 16;

/// The work that one poll of a connection has done.
#[derive(Default)]
pub(crate) struct PollBudget {
    pub(crate) rounds: usize,
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

impl PollBudget {
    pub(crate) fn is_full_of_requests(&self) -> bool {
        self.requests >= MAX_REQUESTS
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.is_full_of_requests() || self.bytes >= MAX_BYTES || self.rounds >= MAX_ROUNDS
    }
}
