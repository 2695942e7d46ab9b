//! Interim responses (RFC 9110 section 15.2).
//!
//! They are sent while the service still works, or before the head of its response.

use apus_http::{Interim, StatusCode};

use super::{RequestStreams, SlotKey, StreamProtocol};

impl<P: StreamProtocol> RequestStreams<'_, P> {
    /// The sender of interim responses for a stream's request.
    pub(super) fn interim(&self, key: P::Key) -> Interim {
        let slot = u64::try_from(key.slot()).unwrap_or(u64::MAX);
        self.interims.sender((slot << 32) | u64::from(key.number()))
    }

    /// Encodes the queued interim responses of streams that have no response yet; returns whether there were
    /// any. A client that does not take them gets no more of them.
    pub(crate) fn send_interims(&mut self) -> bool {
        let mut any = false;
        while self.protocol.has_room()
            && let Some((request, status, headers)) = self.interims.next()
        {
            any = true;
            let slot = usize::try_from(request >> 32).unwrap_or(usize::MAX);
            let key = self.streams.key(slot);
            let Some(key) = key.filter(|key| u64::from(key.number()) == request & 0xffff_ffff)
            else {
                continue;
            };
            // An origin may send a 100 as well as this server: the client gets one, and only if it waits for it (RFC
            // 9110 section 10.1.1).
            if status == StatusCode::CONTINUE && !self.take_expectation(key) {
                continue;
            }
            self.protocol.send_informational(key, status, &headers);
        }
        any
    }
}
