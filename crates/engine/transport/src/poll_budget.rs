//! The share of a worker that one poll of an HTTP/2 connection may take.

use crate::write_batch::BATCH;

/// The most work that one poll does before other connections are polled.
const MAX_BYTES: usize = 2 * BATCH;
const MAX_REQUESTS: usize = 128;
const MAX_ROUNDS: usize = 16;

/// The work that one poll of a connection has done.
#[derive(Default)]
pub struct PollBudget {
    /// Rounds of reading, polling the streams and writing.
    pub rounds: usize,
    /// Requests that began.
    pub requests: usize,
    /// Bytes that were written.
    pub bytes: usize,
}

impl PollBudget {
    /// Whether no further request may begin.
    pub fn is_full_of_requests(&self) -> bool {
        self.requests >= MAX_REQUESTS
    }

    /// Whether the poll has to end.
    pub fn is_spent(&self) -> bool {
        self.is_full_of_requests() || self.bytes >= MAX_BYTES || self.rounds >= MAX_ROUNDS
    }
}
