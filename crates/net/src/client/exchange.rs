//! What exchanges over connections that carry one request at a time have in common: content goes out while
//! the answer comes in, within the limits of time.

use std::task::{Context, Poll, ready};

use super::Cause;
use super::deadline::Limits;
use super::upload::{Broken, Framing, Upload};
use crate::buffers::Buffers;
use crate::transport::Transport;

/// A request and its answer.
pub(super) trait Exchange {
    /// What frames the request's content.
    type Codec: Framing;
    /// A part of the answer.
    type Received;

    /// What a request is sent with.
    fn sending(&mut self) -> Sending<'_, Self::Codec>;

    /// Waits for what comes next of the answer.
    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Received, Cause>>;

    /// Waits for content, and goes on sending the request's meanwhile: PHP reads what a script left of it
    /// before it ends the answer.
    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Received, Cause>> {
        loop {
            let mut sending = self.sending();
            if !sending.is_lost
                && !sending.upload.is_over()
                && let Poll::Ready(Err(_)) = sending.poll(cx)
            {
                // The answer may be whole for all that.
                sending.stop();
            }
            let received = self.poll_received(cx);
            let mut sending = self.sending();
            if received.is_ready() {
                sending.limits.read_until = None;
                return received;
            }
            sending.limits.expect(|timeouts| timeouts.read);
            let passed = ready!(sending.limits.poll(cx));
            if sending.limits.write_until.take() != Some(passed) {
                return Poll::Ready(Err(Cause::TimedOut));
            }
            // The origin goes on answering and reads no more.
            sending.stop();
        }
    }
}

/// What a request is sent with.
pub(super) struct Sending<'a, C> {
    pub(super) upload: &'a mut Upload,
    pub(super) limits: &'a mut Limits,
    pub(super) transport: &'a mut Transport,
    pub(super) codec: &'a mut C,
    pub(super) buffers: &'a Buffers,
    /// Whether no more can be sent.
    pub(super) is_lost: bool,
}

impl<C: Framing> Sending<'_, C> {
    /// Sends what can be sent, and watches over the time that the origin takes to take it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let before = self.upload.sent();
        let polled = self
            .upload
            .poll(cx, self.transport, self.codec, self.buffers);
        let limits = &mut self.limits;
        if polled.is_ready() || !self.upload.is_blocked() {
            limits.write_until = None;
        } else if limits.write_until.is_none() || self.upload.sent() > before {
            limits.write_until = limits.within(|timeouts| timeouts.write);
        }
        polled
    }

    fn stop(&mut self) {
        self.upload.stop(self.buffers);
        self.limits.write_until = None;
    }
}
