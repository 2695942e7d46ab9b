//! What exchanges over connections with one request at a time have in common.
//!
//! The body of the request goes out while the response comes in, within the time limits.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::deadline::ExchangeDeadlines;
use super::upload::{RequestUpload, UploadError, UploadFraming};
use super::{FailureCause, RequestPhase, Timeouts};
use crate::buffers::BufferPool;
use crate::clock::coarse_now;
use crate::input::InputBuffer;
use crate::transport::Transport;

/// A connection that carries one request at a time.
pub(super) struct SerialConnection<C> {
    pub(super) transport: Transport,
    pub(super) codec: C,
    pub(super) buffers: Rc<BufferPool>,
    pub(super) input: InputBuffer,
    pub(super) upload: RequestUpload,
    /// Why no more can be sent, until the origin has said what it has to say.
    pub(super) lost: Option<io::Error>,
    pub(super) limits: ExchangeDeadlines,
    pub(super) requests: u64,
    pub(super) opened_at: Instant,
}

impl<C: UploadFraming> SerialConnection<C> {
    /// A fresh connection.
    pub(super) fn new(transport: Transport, codec: C) -> Self {
        Self {
            transport,
            codec,
            buffers: BufferPool::of_thread(),
            input: InputBuffer::default(),
            upload: RequestUpload::default(),
            lost: None,
            limits: ExchangeDeadlines::default(),
            requests: 0,
            opened_at: coarse_now(),
        }
    }

    /// Begins an exchange with this request.
    pub(super) fn begin(&mut self, upload: RequestUpload, timeouts: Rc<Timeouts>) {
        self.upload = upload;
        self.requests += 1;
        self.limits.begin(timeouts);
    }

    /// Holds nothing more of the exchange that ended.
    pub(super) fn end(&mut self) {
        self.input.rest(&self.buffers);
        self.upload = RequestUpload::default();
        self.limits.end();
    }

    /// Sends what can be sent before there is an answer.
    ///
    /// # Errors
    /// The content's source failed.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<(), (RequestPhase, FailureCause)> {
        if self.upload.is_over() || self.lost.is_some() {
            return Ok(());
        }
        match self.poll_send(cx) {
            Poll::Pending | Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(UploadError::Source(error))) => {
                return Err((RequestPhase::Send, FailureCause::Source(error)));
            }
            // It may have said why before it went away. What it said can be read, even if it is not
            // there yet for who asks; and if there is nothing, that is told, too.
            Poll::Ready(Err(UploadError::Origin(error))) => {
                self.lost = Some(error);
                self.limits.write_until = None;
            }
        }
        Ok(())
    }

    /// Sends what can be sent while the answer's content comes.
    fn send_on(&mut self, cx: &mut Context<'_>) {
        if self.lost.is_none()
            && !self.upload.is_over()
            && let Poll::Ready(Err(_)) = self.poll_send(cx)
        {
            // The answer may be whole for all that.
            self.stop_sending();
        }
    }

    /// Sends what can be sent, and watches over the time that the origin takes to take it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        let before = self.upload.sent();
        let polled = self
            .upload
            .poll(cx, &mut self.transport, &mut self.codec, &self.buffers);
        let limits = &mut self.limits;
        if polled.is_ready() || !self.upload.is_blocked() {
            limits.write_until = None;
        } else if limits.write_until.is_none() || self.upload.sent() > before {
            limits.write_until = limits.within(|timeouts| timeouts.write);
        }
        polled
    }

    fn stop_sending(&mut self) {
        self.upload.stop(&self.buffers);
        self.limits.write_until = None;
    }
}

/// A request and its answer.
pub(super) trait ClientExchange {
    /// What frames the request's content.
    type Codec: UploadFraming;
    /// A part of the answer.
    type Part;

    /// What it goes over.
    fn wire(&mut self) -> &mut SerialConnection<Self::Codec>;

    /// What the origin sent, as far as it was read.
    fn parse_part(&mut self) -> Result<Option<Self::Part>, FailureCause>;

    /// What the end of the connection means.
    fn handle_eof(&mut self) -> Result<Self::Part, FailureCause>;

    /// Waits for what comes next of the answer.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Part, FailureCause>> {
        loop {
            if let Some(received) = self.parse_part()? {
                return Poll::Ready(Ok(received));
            }
            let wire = self.wire();
            let room = wire.input.room(&wire.buffers);
            let polled = wire.transport.poll_read(cx, room);
            if polled.is_pending() {
                wire.input.rest(&wire.buffers);
            }
            if ready!(polled).map_err(FailureCause::Io)? == 0 {
                return Poll::Ready(self.handle_eof());
            }
        }
    }

    /// Waits for content, and goes on sending the request's meanwhile: PHP reads what a script left of it
    /// before it ends the answer.
    fn poll_body_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Part, FailureCause>> {
        loop {
            self.wire().send_on(cx);
            let received = self.poll_part(cx);
            let wire = self.wire();
            if received.is_ready() {
                wire.limits.read_until = None;
                return received;
            }
            wire.limits.expect(|timeouts| timeouts.read);
            let passed = ready!(wire.limits.poll(cx));
            if wire.limits.write_until.take() != Some(passed) {
                return Poll::Ready(Err(FailureCause::TimedOut));
            }
            // The origin goes on answering and reads no more.
            wire.stop_sending();
        }
    }
}
