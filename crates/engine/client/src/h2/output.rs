//! The output of an HTTP/2 connection to an origin: the data of all streams, in one write.

use std::io;
use std::task::{Context, Poll, ready};

use apus_codec::h2::ConnectionError;
use apus_transport::write_batch::{BATCH, FRAME_HEADER, LARGE_WRITE, MIN_SPACE};

use super::driver::Http2ClientDriver;
use crate::streams::CloseReason;

impl Http2ClientDriver {
    /// Writes the pending frames together with as much data as fits; returns whether any bytes left.
    pub(super) fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<bool, CloseReason<ConnectionError>> {
        match self.poll_written(cx) {
            Poll::Ready(result) => result?,
            Poll::Pending => {
                self.timers.blocked();
                return Ok(false);
            }
        }
        // A batch of which a part has left is sent to its end first. Filled up each time, it would grow as long as
        // the origin is slow.
        if self.streams.protocol.end.is_none() && !self.streams.protocol.out.is_partial() {
            self.fill();
        }
        let protocol = &mut self.streams.protocol;
        if protocol.out.is_empty() {
            self.timers.unblocked();
            return Ok(false);
        }
        let (out, buffers) = (&mut protocol.out, &protocol.buffers);
        match out.poll_write(cx, &mut self.transport, buffers) {
            Poll::Ready(written) => {
                let written = written?;
                self.budget.bytes += written;
                self.wrote_much = written >= LARGE_WRITE;
                self.timers.unblocked();
                match self.transport.poll_flush(cx) {
                    Poll::Ready(result) => result?,
                    Poll::Pending => self.timers.blocked(),
                }
                Ok(true)
            }
            Poll::Pending => {
                self.timers.blocked();
                Ok(false)
            }
        }
    }

    /// Waits until the written bytes have left, and until the socket has space if there is more to send.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.transport.poll_flush(cx))?;
        // Only after a large write, as a small one hardly fills the socket and this takes a system call.
        if self.wrote_much && self.streams.protocol.codec.is_send_due() {
            ready!(self.transport.poll_writable(cx))?;
            self.wrote_much = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Gathers data up to the size of a batch.
    fn fill(&mut self) {
        while let Some(room) = BATCH.checked_sub(self.streams.protocol.out.len() + FRAME_HEADER)
            && room >= MIN_SPACE
        {
            let Some((key, most)) = self.streams.protocol.codec.next_send() else {
                return;
            };
            self.streams.send_some(key, most.min(room));
        }
    }
}
