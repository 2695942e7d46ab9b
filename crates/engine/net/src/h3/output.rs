//! The output of an HTTP/3 connection: the data of all streams, in the order of their priorities.

use apus_h3_quic::CHUNK;

use super::Http3Connection;

impl Http3Connection<'_> {
    /// Passes data of the scheduled streams to QUIC, until its windows or the share of this poll are full; returns
    /// whether there was any.
    pub(super) fn fill(&mut self) -> bool {
        let mut any = false;
        while !self.streams.budget.is_spent()
            && let Some(stream) = self.streams.protocol.transport.codec.next_send()
        {
            any = true;
            self.streams.send_some(stream, CHUNK);
            self.note_written();
        }
        self.streams.protocol.flush();
        self.note_written();
        any
    }

    fn note_written(&mut self) {
        let written = self.streams.protocol.transport.take_written();
        self.worker.counters.bytes_out.add(written as u64);
        self.streams.budget.bytes += written;
    }
}
