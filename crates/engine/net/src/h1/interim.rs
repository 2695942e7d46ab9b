//! Interim responses over HTTP/1.1 (RFC 9110 section 15.2).
//!
//! They are sent while the service still works, or before the head of its response.

use std::io;
use std::task::{Context, Poll, ready};

use super::Http1Connection;
use super::request_body::Http1RequestBody;

impl Http1Connection<'_> {
    /// Encodes the queued interim responses of the current request, and drops the responses of earlier requests.
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

    /// Sends the queued interim responses.
    pub(super) fn poll_interims(
        &mut self,
        cx: &mut Context<'_>,
        request_body: &mut Option<Http1RequestBody>,
    ) -> Poll<io::Result<()>> {
        loop {
            // A client that does not take them gets no more of them.
            if self.is_flushed() {
                self.encode_interims();
            }
            if self.is_flushed() {
                return Poll::Ready(Ok(()));
            }
            if let Some(request_body) = request_body {
                // The connection has one deadline, which the write needs now.
                self.stop_waiting(request_body);
            }
            ready!(self.poll_flush_out(cx))?;
        }
    }
}
