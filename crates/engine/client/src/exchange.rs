//! The exchange of a request and its response over a connection that carries one request at a time.
//!
//! The body of the request is sent while the response is received, within the time limits.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use apus_transport::buffers::BufferPool;
use apus_transport::{InputBuffer, Transport, coarse_now};

use crate::deadline::ExchangeDeadlines;
use crate::upload::{RequestUpload, UploadError, UploadFraming};
use crate::{FailureCause, RequestPhase, Timeouts};

/// A connection that carries one request at a time.
pub(crate) struct SerialConnection<C> {
    pub(crate) transport: Transport,
    pub(crate) codec: C,
    pub(crate) buffers: Rc<BufferPool>,
    pub(crate) input: InputBuffer,
    pub(crate) upload: RequestUpload,
    /// Why sending failed, while the origin may still have sent a response.
    pub(crate) send_error: Option<io::Error>,
    pub(crate) limits: ExchangeDeadlines,
    pub(crate) requests: u64,
    pub(crate) opened_at: Instant,
}

impl<C: UploadFraming> SerialConnection<C> {
    /// A new connection.
    pub(crate) fn new(transport: Transport, codec: C) -> Self {
        Self {
            transport,
            codec,
            buffers: BufferPool::of_thread(),
            input: InputBuffer::default(),
            upload: RequestUpload::default(),
            send_error: None,
            limits: ExchangeDeadlines::default(),
            requests: 0,
            opened_at: coarse_now(),
        }
    }

    /// Begins an exchange with this request.
    pub(crate) fn begin(&mut self, upload: RequestUpload, timeouts: Rc<Timeouts>) {
        self.upload = upload;
        self.requests += 1;
        self.limits.begin(timeouts);
    }

    /// Releases the buffers of the exchange that ended.
    pub(crate) fn end(&mut self) {
        // A connection that waits in a pool holds no buffer.
        self.input.release(&self.buffers);
        self.upload = RequestUpload::default();
        self.limits.end();
    }

    /// Sends what can be sent before the head of the response arrives.
    ///
    /// # Errors
    /// The source of the body failed.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<(), (RequestPhase, FailureCause)> {
        if self.upload.is_over() || self.send_error.is_some() {
            return Ok(());
        }
        match self.poll_send(cx) {
            Poll::Pending | Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(UploadError::Source(error))) => {
                return Err((RequestPhase::Send, FailureCause::Source(error)));
            }
            // The origin may have sent a response before it closed. That response can still be read, even if
            // it has not arrived yet; if there is none, reading fails.
            Poll::Ready(Err(UploadError::Origin(error))) => {
                self.send_error = Some(error);
                self.limits.write_until = None;
            }
        }
        Ok(())
    }

    /// Sends what can be sent while the body of the response arrives.
    fn send_on(&mut self, cx: &mut Context<'_>) {
        if self.send_error.is_none()
            && !self.upload.is_over()
            && let Poll::Ready(Err(_)) = self.poll_send(cx)
        {
            // The response may still be complete.
            self.stop_sending();
        }
    }

    /// Sends what can be sent, and limits how long the origin takes none of it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        let before = self.upload.sent();
        let polled = self
            .upload
            .poll(cx, &mut self.transport, &mut self.codec, &self.buffers);
        let limits = &mut self.limits;
        // A wait for the source of the body, or for our disk, is not the origin's fault.
        if polled.is_ready() || !self.upload.is_blocked() {
            limits.write_until = None;
        } else if limits.write_until.is_none() || self.upload.sent() > before {
            // Any progress begins the time anew: `write` limits the time between two writes.
            limits.write_until = limits.within(|timeouts| timeouts.write);
        }
        polled
    }

    fn stop_sending(&mut self) {
        self.upload.stop(&self.buffers);
        self.limits.write_until = None;
    }
}

/// A request and its response.
pub(crate) trait ClientExchange {
    /// The codec that frames the body of the request.
    type Codec: UploadFraming;
    /// A part of the response.
    type Part;

    /// The connection of the exchange.
    fn serial(&mut self) -> &mut SerialConnection<Self::Codec>;

    /// The next part of the response that is in the input.
    fn parse_part(&mut self) -> Result<Option<Self::Part>, FailureCause>;

    /// Handles the end of the connection.
    fn handle_eof(&mut self) -> Result<Self::Part, FailureCause>;

    /// Waits for the next part of the response.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Part, FailureCause>> {
        loop {
            // What is in the input comes first: the origin may have nothing more to send, so that a read would wait
            // in vain.
            if let Some(received) = self.parse_part()? {
                return Poll::Ready(Ok(received));
            }
            let serial = self.serial();
            // Before there is a buffer: each request that waits for a slow origin would hold 64 KiB.
            if serial.transport.poll_readable(cx).is_pending() {
                serial.input.release(&serial.buffers);
                return Poll::Pending;
            }
            let room = serial.input.room(&serial.buffers);
            let polled = serial.transport.poll_read(cx, room);
            // Under TLS only the read finds out that there is nothing.
            if polled.is_pending() {
                serial.input.release(&serial.buffers);
            }
            if ready!(polled).map_err(FailureCause::Io)? == 0 {
                return Poll::Ready(self.handle_eof());
            }
        }
    }

    /// Waits for the next part of the response's body, and meanwhile sends the rest of the request's: PHP
    /// reads what a script left of it before it ends the response.
    fn poll_body_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Part, FailureCause>> {
        loop {
            self.serial().send_on(cx);
            let received = self.poll_part(cx);
            let serial = self.serial();
            if received.is_ready() {
                // The next wait begins anew, so that the time that a reader takes does not count against the origin.
                serial.limits.read_until = None;
                return received;
            }
            serial.limits.expect(|timeouts| timeouts.read);
            let passed = ready!(serial.limits.poll(cx));
            if serial.limits.write_until.take() != Some(passed) {
                return Poll::Ready(Err(FailureCause::TimedOut));
            }
            // The origin still responds but reads no more.
            serial.stop_sending();
        }
    }
}
