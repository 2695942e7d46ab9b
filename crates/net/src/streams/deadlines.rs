//! The time limits of streams.

use apus_transport::deadline_from;

use super::request_body::shortest;
use super::{RequestStreams, ResetReason, StreamProtocol};
use crate::connection_table::NEVER;

impl<P: StreamProtocol> RequestStreams<'_, P> {
    /// The tick at which the streams have to be examined, if any are `open`.
    pub(crate) fn examination(&mut self, open: bool, now: u32) -> u32 {
        self.examine_at = match open {
            true => self
                .examine_at
                .min(deadline_from(now, shortest(&self.limits))),
            false => NEVER,
        };
        self.examine_at
    }

    /// Checks the deadlines of all streams, if it is time.
    pub(crate) fn examine(&mut self, now: u32) {
        if self.examine_at > now {
            return;
        }
        let keys: Vec<P::Key> = self.streams.keys().collect();
        let mut next = deadline_from(now, shortest(&self.limits)).min(self.examine_abandoned(now));
        for key in keys {
            next = next
                .min(self.examine_body(key, now))
                .min(self.examine_sending(key, now));
        }
        self.examine_at = next;
    }

    /// Resets a stream whose window stays closed; returns the deadline otherwise.
    fn examine_sending(&mut self, key: P::Key, now: u32) -> u32 {
        let is_stalled = self.protocol.is_stalled(key);
        let Some(stream) = self.streams.get(key) else {
            return NEVER;
        };
        if stream.next.is_empty() || !is_stalled {
            return NEVER;
        }
        let deadline = deadline_from(stream.moved_at, self.limits.send_timeout);
        if deadline > now {
            return deadline;
        }
        tracing::debug!(peer = %self.info.peer, "a stream's window stayed shut");
        self.worker.counters.stalled_streams.add(1);
        self.protocol.reset(key, ResetReason::Stalled);
        self.drop_stream(key);
        NEVER
    }
}
