//! The deadlines of the streams of a connection.

use std::time::Instant;

use apus_codec::stream_table::StreamKey;
use apus_http::BodyError;
use apus_transport::TICK;

use super::{ClientProtocol, OriginStreams};
use crate::FailureCause;
use crate::deadline::earliest;

impl<P: ClientProtocol> OriginStreams<P> {
    /// Schedules a check of the streams.
    pub(super) fn examine_by(&mut self, at: Instant) {
        self.examine_at = earliest(self.examine_at, Some(at));
    }

    /// Checks the streams, if that is due.
    pub(crate) fn examine_if_due(&mut self, now: Instant) {
        if self.examine_at.is_some_and(|at| at <= now) {
            self.examine_at = None;
            for key in self.table.keys() {
                if let Some(at) = self.examine(key, now) {
                    self.examine_by(at);
                }
            }
        }
    }

    /// Ends a stream whose deadline has passed; returns when to check it again.
    fn examine(&mut self, key: StreamKey<P::Id>, now: Instant) -> Option<Instant> {
        let is_stalled = self.protocol.is_stalled(key);
        let stream = self.table.get(key)?;
        let request_body = &stream.request_body;
        if request_body.held_until.is_some_and(|until| until <= now) {
            self.begin_sending(key);
            return Some(now);
        }
        // A stream that is not stalled waits for its source, or for its turn, which is not the origin's fault.
        let write_by = match (request_body.ended, is_stalled) {
            (true, _) => None,
            (false, true) => Some(request_body.moved_at + stream.timeouts.write + TICK),
            (false, false) => Some(now + stream.timeouts.write),
        };
        let deadlines = [request_body.held_until, stream.receive_by, write_by];
        let next = deadlines.into_iter().flatten().min();
        if next.is_none_or(|next| next > now) {
            return next;
        }
        if let Some(stream) = self.cancel(key) {
            self.fail(*stream, FailureCause::TimedOut, BodyError::TimedOut);
        }
        None
    }
}
