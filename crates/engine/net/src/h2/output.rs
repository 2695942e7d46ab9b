//! The output of an HTTP/2 connection: the data of all streams, in the order of their priorities.

use std::io;
use std::task::{Context, Poll, ready};

use apus_transport::write_batch::{BATCH, FRAME_HEADER, LARGE_WRITE, MIN_SPACE};

use super::{Http2Connection, MIN_BATCH};

impl Http2Connection<'_> {
    /// Writes the pending frames together with as much data as fits; returns whether any bytes left.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        match self.poll_written(cx) {
            Poll::Ready(result) => result?,
            Poll::Pending => {
                self.wait_for_client();
                return Ok(false);
            }
        }
        // Bytes that could not be written go first, so that the order of the next batch reflects the
        // priorities at its time.
        if self.end.is_none() && !self.streams.protocol.out.is_partial() {
            self.fill();
        }
        if self.streams.protocol.out.is_empty() {
            self.timers.unblocked(self.worker.clock.ticks());
            return Ok(false);
        }
        let buffers = &self.worker.buffers;
        let out = &mut self.streams.protocol.out;
        match out.poll_write(cx, &mut self.transport, buffers) {
            Poll::Ready(Ok(written)) => {
                self.worker.counters.bytes_out.add(written as u64);
                self.streams.budget.bytes += written;
                self.sent = self.sent.saturating_add(written as u64);
                self.wrote_much = written >= LARGE_WRITE;
                self.timers.unblocked(self.worker.clock.ticks());
                let flushed = self.transport.poll_flush(cx);
                // Up to four megabytes of a large download stood in the socket once before a small response of the
                // same connection. A client that takes everything gets large batches; one that does not gets small
                // ones, so that the next batch follows the priorities of its time.
                self.batch = if flushed.is_ready() && !self.streams.protocol.out.is_partial() {
                    (2 * self.batch).min(BATCH)
                } else {
                    (self.batch / 2).max(MIN_BATCH)
                };
                match flushed {
                    Poll::Ready(result) => {
                        result?;
                        self.streams.protocol.complete_written();
                    }
                    Poll::Pending => self.wait_for_client(),
                }
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => {
                self.wait_for_client();
                Ok(false)
            }
        }
    }

    /// Begins the time in which the client has to take some of the output.
    fn wait_for_client(&mut self) {
        let (sent, transport) = (self.sent, &self.transport);
        let taken = || sent.saturating_sub(transport.undelivered());
        self.timers.blocked(self.worker.clock.ticks(), taken);
    }

    /// Waits until the written bytes have left, and until the socket has space if there is more to send.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.transport.poll_flush(cx))?;
        self.streams.protocol.complete_written();
        if self.wrote_much && self.streams.protocol.codec.is_send_due() {
            ready!(self.transport.poll_writable(cx))?;
            self.wrote_much = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Gathers data up to the size of a batch.
    fn fill(&mut self) {
        loop {
            let protocol = &mut self.streams.protocol;
            if let Some(error) = protocol.failure.take() {
                return self.fail(error);
            }
            let room = self.batch.checked_sub(protocol.out.len() + FRAME_HEADER);
            let Some(room) = room.filter(|room| *room >= MIN_SPACE) else {
                return;
            };
            let Some((key, most)) = protocol.codec.next_send() else {
                return;
            };
            self.streams.send_some(key, most.min(room));
        }
    }
}
