//! The body of an HTTP/1.1 request, which is passed to its reader, limited in time, and discarded if unread.

use std::io;
use std::task::{Context, Poll};

use apus_codec::h1::Http1ServerEvent;
use apus_http::{Body, BodyError};
use apus_transport::{BodySender, TICK};

use super::Http1Connection;

/// The body of the current request, from the driver's side.
pub(super) struct Http1RequestBody {
    pub(super) sender: BodySender,
    pub(super) expects_continue: bool,
    /// Bytes still to come, if the request has a length.
    pub(super) left: Option<u64>,
    received: u64,
    /// The tick since which the server waits for the client, and the ticks that it waited before.
    waiting_since: Option<u32>,
    waited: u32,
    pub(super) failed: bool,
}

impl Http1Connection<'_> {
    /// Passes one chunk of the body, or its end, to its reader.
    pub(super) fn poll_request_body(
        &mut self,
        cx: &mut Context<'_>,
        request_body: &mut Http1RequestBody,
    ) -> io::Result<Poll<()>> {
        // Only when the handler reads: a client that gets its 413 without 100 need not send the body (RFC 9110 section
        // 10.1.1).
        if std::mem::take(&mut request_body.expects_continue) {
            self.codec.send_continue(&mut self.out);
        }
        if !self.is_flushed() && self.poll_flush_out(cx)?.is_pending() {
            return Ok(Poll::Pending);
        }
        loop {
            match self.codec.handle_input(self.input.unread()) {
                Ok((consumed, Http1ServerEvent::Data(part))) => {
                    let bytes = self.input.take(part, consumed);
                    request_body.count(bytes.len());
                    request_body.sender.push(bytes, cx);
                    self.stop_waiting(request_body);
                    return Ok(Poll::Ready(()));
                }
                Ok((consumed, Http1ServerEvent::End(trailers))) => {
                    self.input.consume(consumed);
                    request_body.sender.end(Ok(trailers), cx);
                    self.stop_waiting(request_body);
                    return Ok(Poll::Ready(()));
                }
                Ok((consumed, Http1ServerEvent::Incomplete | Http1ServerEvent::Request(_))) => {
                    self.input.consume(consumed);
                }
                Err(error) => {
                    self.worker.count_bad_request(&self.info.peer);
                    tracing::debug!(peer = %self.info.peer, %error, "refused the body of a request");
                    self.fail(request_body, BodyError::Malformed, cx);
                    return Ok(Poll::Ready(()));
                }
            }
            if self.slot.is_expired() && self.slot.is_evicted() {
                // A response would need the descriptor that others need.
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if self.slot.is_expired() || self.is_too_slow(request_body) {
                self.worker.counters.timeouts.add(1);
                tracing::debug!(peer = %self.info.peer, "the body of a request came too slowly");
                self.slot.renew();
                self.fail(request_body, BodyError::TimedOut, cx);
                return Ok(Poll::Ready(()));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.fail(request_body, BodyError::Disconnected, cx);
                    return Ok(Poll::Ready(()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    if request_body.waiting_since.is_none() {
                        request_body.waiting_since = Some(self.worker.clock.ticks());
                        self.input.release(&self.worker.buffers);
                        self.slot
                            .set_reading_body(&self.worker.clock, self.limits.body_timeout);
                    }
                    return Ok(Poll::Pending);
                }
            }
        }
    }

    pub(super) fn stop_waiting(&self, request_body: &mut Http1RequestBody) {
        if let Some(since) = request_body.waiting_since.take() {
            let waited = self.worker.clock.ticks().saturating_sub(since);
            request_body.waited = request_body.waited.saturating_add(waited);
            self.slot.clear_deadline();
        }
    }

    /// Whether the body arrived too slowly, over all the time that the server waited for it.
    fn is_too_slow(&self, request_body: &Http1RequestBody) -> bool {
        let waited = TICK.saturating_mul(request_body.waited);
        waited > self.limits.body_timeout
            // Only the time counts in which the server waited: a handler that reads slowly must not make its client
            // look slow.
            && request_body.received / waited.as_secs().max(1) < self.limits.body_rate
    }

    fn fail(&mut self, request_body: &mut Http1RequestBody, error: BodyError, cx: &Context<'_>) {
        request_body.failed = true;
        request_body.sender.end(Err(error), cx);
        self.stop_waiting(request_body);
        self.codec.close();
    }

    /// Reads and discards the rest of the body, if it is small, so that the connection can be used again.
    pub(super) async fn drain(
        &mut self,
        request_body: &mut Option<Http1RequestBody>,
    ) -> io::Result<()> {
        if let Some(request_body) = request_body
            && std::mem::take(&mut request_body.expects_continue)
        {
            self.codec.send_continue(&mut self.out);
        }
        self.flush().await?;
        let mut left = self.limits.drain_bytes;
        self.slot
            .set_reading_body(&self.worker.clock, self.limits.body_timeout);
        loop {
            match self.codec.handle_input(self.input.unread()) {
                Ok((consumed, event)) => {
                    self.input.consume(consumed);
                    left = match left.checked_sub(consumed as u64) {
                        Some(left) => left,
                        None => {
                            self.codec.close();
                            break;
                        }
                    };
                    if matches!(event, Http1ServerEvent::End(_)) || self.codec.request_body_done() {
                        break;
                    }
                    if matches!(event, Http1ServerEvent::Incomplete)
                        && self.read_more(false).await? == 0
                    {
                        self.codec.close();
                        break;
                    }
                }
                Err(_) => {
                    self.worker.count_bad_request(&self.info.peer);
                    self.codec.close();
                    break;
                }
            }
        }
        *request_body = None;
        Ok(())
    }
}

impl Http1RequestBody {
    pub(super) fn new(length: Option<u64>, expects_continue: bool) -> (Self, Body) {
        let (sender, receiver) = BodySender::new(length);
        let request_body = Self {
            sender,
            expects_continue,
            left: length,
            received: 0,
            waiting_since: None,
            waited: 0,
            failed: false,
        };
        (request_body, Body::stream(receiver))
    }

    fn count(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
        }
    }
}
