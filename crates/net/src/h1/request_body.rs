//! The body of a request, passed to its reader, limited in time, and discarded if unread.

use std::io;
use std::task::{Context, Poll};

use apus_codec::h1::Http1ServerEvent;
use apus_http::{Body, BodyError};

use super::Http1Connection;
use crate::body::BodySender;
use crate::clock::TICK;

/// The content of the current request, as the driver sees it.
pub(super) struct Http1RequestBody {
    pub(super) content: BodySender,
    pub(super) expects_continue: bool,
    /// Bytes still to come, where the request tells how many there are.
    pub(super) left: Option<u64>,
    received: u64,
    /// The tick since which the client is waited for, and the ticks that this took before.
    waiting_since: Option<u32>,
    waited: u32,
    pub(super) failed: bool,
}

impl Http1Connection<'_> {
    /// Moves one piece of content, or its end, to its reader.
    pub(super) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Http1RequestBody,
    ) -> io::Result<Poll<()>> {
        if std::mem::take(&mut incoming.expects_continue) {
            self.codec.send_continue(&mut self.out);
        }
        if !self.is_flushed() && self.poll_flush_out(cx, &mut false)?.is_pending() {
            return Ok(Poll::Pending);
        }
        loop {
            match self.codec.handle_input(self.input.unread()) {
                Ok((consumed, Http1ServerEvent::Data(part))) => {
                    let bytes = self.input.take(part, consumed);
                    incoming.count(bytes.len());
                    incoming.content.push(bytes, cx);
                    self.stop_waiting(incoming);
                    return Ok(Poll::Ready(()));
                }
                Ok((consumed, Http1ServerEvent::End(trailers))) => {
                    self.input.consume(consumed);
                    incoming.content.end(Ok(trailers), cx);
                    self.stop_waiting(incoming);
                    return Ok(Poll::Ready(()));
                }
                Ok((consumed, Http1ServerEvent::Incomplete | Http1ServerEvent::Request(_))) => {
                    self.input.consume(consumed);
                }
                Err(error) => {
                    self.worker.counters.bad_requests.add(1);
                    tracing::debug!(peer = %self.info.peer, %error, "refused a request's content");
                    self.fail(incoming, BodyError::Malformed, cx);
                    return Ok(Poll::Ready(()));
                }
            }
            if self.slot.is_expired() && self.slot.is_evicted() {
                // A response would keep the descriptor that others need.
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if self.slot.is_expired() || self.is_too_slow(incoming) {
                self.worker.counters.timeouts.add(1);
                tracing::debug!(peer = %self.info.peer, "a request's content came too slowly");
                self.slot.renew();
                self.fail(incoming, BodyError::TimedOut, cx);
                return Ok(Poll::Ready(()));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.fail(incoming, BodyError::Disconnected, cx);
                    return Ok(Poll::Ready(()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    if incoming.waiting_since.is_none() {
                        incoming.waiting_since = Some(self.worker.clock.ticks());
                        self.input.rest(&self.worker.buffers);
                        self.slot
                            .set_reading_body(&self.worker.clock, self.limits.body_timeout);
                    }
                    return Ok(Poll::Pending);
                }
            }
        }
    }

    pub(super) fn stop_waiting(&self, incoming: &mut Http1RequestBody) {
        if let Some(since) = incoming.waiting_since.take() {
            let waited = self.worker.clock.ticks().saturating_sub(since);
            incoming.waited = incoming.waited.saturating_add(waited);
            self.slot.clear_deadline();
        }
    }

    /// Whether the content came slower than allowed, over all the time that it was waited for.
    fn is_too_slow(&self, incoming: &Http1RequestBody) -> bool {
        let waited = TICK.saturating_mul(incoming.waited);
        waited > self.limits.body_timeout
            && incoming.received / waited.as_secs().max(1) < self.limits.body_rate
    }

    fn fail(&mut self, incoming: &mut Http1RequestBody, error: BodyError, cx: &Context<'_>) {
        incoming.failed = true;
        incoming.content.end(Err(error), cx);
        self.stop_waiting(incoming);
        self.codec.close();
    }

    /// Reads and throws away the rest of the content, if it is little, so that the connection can
    /// go on.
    pub(super) async fn drain(
        &mut self,
        incoming: &mut Option<Http1RequestBody>,
    ) -> io::Result<()> {
        if let Some(incoming) = incoming
            && std::mem::take(&mut incoming.expects_continue)
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
                    self.worker.counters.bad_requests.add(1);
                    self.codec.close();
                    break;
                }
            }
        }
        *incoming = None;
        Ok(())
    }
}

impl Http1RequestBody {
    pub(super) fn new(length: Option<u64>, expects_continue: bool) -> (Self, Body) {
        let (content, stream) = BodySender::new(length);
        let incoming = Self {
            content,
            expects_continue,
            left: length,
            received: 0,
            waiting_since: None,
            waited: 0,
            failed: false,
        };
        (incoming, Body::stream(stream))
    }

    fn count(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
        }
    }
}
