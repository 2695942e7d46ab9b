//! The body of a response, or the tunnel after a 101 response (RFC 9110 section 7.8), whose attempt lasts as long as it does.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_client::ClientResponse;
use apus_http::{Body, BodyError, BodyStream, Duplex, Frame};
use apus_transport::coarse_now;
use tokio::time::{Sleep, sleep_until};

use super::attempt::RequestAttempt;
use crate::counters::is_of_script;

impl RequestAttempt {
    /// Ties the attempt to the body or the tunnel of its response: it ends when that ends. It ends at once
    /// if the whole body is there already.
    pub(super) fn attach_to(
        self,
        mut response: ClientResponse,
        deadline: Option<Instant>,
    ) -> ClientResponse {
        if let Some(tunnel) = response.tunnel.take() {
            response.tunnel = Some(Box::new(AttemptTunnel::new(tunnel, self)));
            return response;
        }
        response.body = match response.body {
            Body::Stream(inner) => Body::stream(AttemptBody {
                inner,
                attempt: Some(self),
                deadline: deadline.map(BodyDeadline::new),
            }),
            whole => whole,
        };
        response
    }
}

/// The body of a response, with the attempt that it belongs to.
struct AttemptBody {
    inner: Box<dyn BodyStream>,
    /// `None` once the body has ended.
    attempt: Option<RequestAttempt>,
    deadline: Option<BodyDeadline>,
}

impl BodyStream for AttemptBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let polled = self.inner.poll_frame(cx);
        if let Some(deadline) = &mut self.deadline
            // A body that has ended is whole, however late it is.
            && !matches!(polled, Poll::Ready(None | Some(Err(_))))
            && deadline.has_passed(polled.is_pending(), cx)
        {
            // No failure of the node: the client may be the slow one.
            self.attempt = None;
            return Poll::Ready(Some(Err(BodyError::TimedOut)));
        }
        match &polled {
            Poll::Ready(Some(Err(error))) => {
                let is_of_node = match error {
                    BodyError::TooLarge => false,
                    BodyError::Source(error) => !is_of_script(&**error),
                    _ => true,
                };
                if let Some(mut attempt) = self.attempt.take()
                    && is_of_node
                {
                    attempt.record_body_failure(error);
                }
            }
            Poll::Ready(None) => self.attempt = None,
            _ => {}
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }
}

/// The time at which the whole body has to be there. The timer is created when the body is first pending.
struct BodyDeadline {
    at: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl BodyDeadline {
    fn new(at: Instant) -> Self {
        Self { at, sleep: None }
    }

    fn has_passed(&mut self, is_pending: bool, cx: &mut Context<'_>) -> bool {
        if !is_pending {
            return coarse_now() >= self.at;
        }
        let at = self.at;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(at.into())));
        sleep.as_mut().poll(cx).is_ready()
    }
}

/// A tunnel, with the attempt that opened it.
struct AttemptTunnel {
    inner: Box<dyn Duplex>,
    _attempt: RequestAttempt,
}

impl AttemptTunnel {
    fn new(inner: Box<dyn Duplex>, attempt: RequestAttempt) -> Self {
        Self {
            inner,
            _attempt: attempt,
        }
    }
}

impl Duplex for AttemptTunnel {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.inner.poll_read(cx, buffer)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_shutdown(cx)
    }
}
