//! Interim responses over HTTP/1.1 (RFC 9110 section 15.2).
//!
//! They leave while the service still works, or before the head of its response.

use std::io;
use std::task::{Context, Poll, ready};

use super::Http1Connection;
use super::request_body::Http1RequestBody;

impl Http1Connection<'_> {
    /// Encodes what was queued for the current request, and forgets what is left of earlier ones.
    pub(super) fn encode_interims(&mut self) {
        while let Some((request, status, headers)) = self.interims.next() {
            if request == self.requests {
                if self.out.capacity() == 0 {
                    self.out = self.worker.buffers.take();
                }
                self.codec
                    .send_informational(status, &headers, &mut self.out);
            }
        }
    }

    /// Sends what was queued. `timed` tells from one call to the next whether the client keeps it
    /// waiting.
    pub(super) fn poll_interims(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Option<Http1RequestBody>,
        timed: &mut bool,
    ) -> Poll<io::Result<()>> {
        loop {
            // A client that does not take them gets no more of them.
            if self.is_flushed() {
                self.encode_interims();
            }
            if self.is_flushed() {
                return Poll::Ready(Ok(()));
            }
            if let Some(incoming) = incoming {
                // The connection has one deadline, which is that of the write now.
                self.stop_waiting(incoming);
            }
            ready!(self.poll_flush_out(cx, timed))?;
        }
    }
}
