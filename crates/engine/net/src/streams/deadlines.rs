//! The time limits of streams.

use apus_transport::{SendRate, TICK, deadline_from};

use super::request_body::shortest;
use super::table::SendProgress;
use super::{RequestStreams, ResetReason, Stall, StreamProtocol};
use crate::connection_table::NEVER;

impl<P: StreamProtocol> RequestStreams<'_, P> {
    /// The tick at which the streams have to be examined, if any are `open`.
    pub(crate) fn examination(&mut self, open: bool, now: u32) -> u32 {
        self.examine_at = if open {
            self.examine_at
                .min(deadline_from(now, shortest(&self.limits)))
        } else {
            NEVER
        };
        self.examine_at
    }

    /// Checks the deadlines of all streams, if it is time.
    pub(crate) fn examine(&mut self, now: u32) {
        if self.examine_at > now {
            return;
        }
        // All streams at once, and rarely: a timer for each would be set and dropped with each request.
        let keys: Vec<P::Key> = self.streams.keys().collect();
        let mut next = deadline_from(now, shortest(&self.limits)).min(self.examine_abandoned(now));
        for key in keys {
            next = next
                .min(self.examine_body(key, now))
                .min(self.examine_sending(key, now));
        }
        self.examine_at = next;
    }

    /// Resets a stream of which the client takes too little; returns the deadline otherwise.
    fn examine_sending(&mut self, key: P::Key, now: u32) -> u32 {
        let stall = self.protocol.stall(key);
        let Some(stream) = self.streams.get(key) else {
            return NEVER;
        };
        let Some(stall) = stall else {
            stream.waiting = None;
            return NEVER;
        };
        let progress = SendProgress {
            at: now,
            taken: stream.sent.saturating_sub(self.protocol.unsent(key)),
            of_connection: self.sent,
        };
        let before = *stream.waiting.get_or_insert(SendProgress {
            at: match stall {
                Stall::Stream | Stall::Connection => stream.moved_at,
                // Some of it was taken since then.
                Stall::Unknown => now,
            },
            ..progress
        });
        let deadline = deadline_from(before.at, self.limits.send_timeout);
        if deadline > now {
            return deadline;
        }
        if self.takes_enough(stall, before, progress) {
            if let Some(stream) = self.streams.get(key) {
                stream.waiting = Some(progress);
            }
            return deadline_from(now, self.limits.send_timeout);
        }
        tracing::debug!(peer = %self.info.peer, "a client took too little of a stream");
        self.worker.counters.stalled_streams.add(1);
        self.protocol.reset(key, ResetReason::Stalled);
        self.drop_stream(key);
        NEVER
    }

    /// Whether a client that is waited for takes enough of a stream, and at least one byte. The rate applies to a
    /// connection, and each open stream has to get its part of it. A stream that waits for the window of the
    /// connection may get nothing while others are more urgent.
    fn takes_enough(&self, stall: Stall, before: SendProgress, now: SendProgress) -> bool {
        let time = TICK.saturating_mul(now.at.saturating_sub(before.at));
        let least = SendRate::least(self.limits.send_rate, time);
        let streams = self.streams.keys().count().max(1) as u64;
        let taken = now.taken.saturating_sub(before.taken);
        let of_connection = now.of_connection.saturating_sub(before.of_connection);
        taken >= (least / streams).max(1)
            || match stall {
                Stall::Stream => false,
                Stall::Connection => of_connection >= least.max(1),
                // The streams of a client that is slow as a whole compete, too; but one that takes much of some
                // streams must not hold the others.
                Stall::Unknown => of_connection >= least.saturating_mul(streams).max(streams),
            }
    }
}
