//! A tunnel after a 101 response (RFC 9110 section 7.8), whose attempt stays open for as long as it does.

use std::io;
use std::task::{Context, Poll};

use apus_http::Duplex;

use super::attempt::RequestAttempt;

/// A tunnel, with the attempt that opened it.
pub(super) struct AttemptTunnel {
    inner: Box<dyn Duplex>,
    _attempt: RequestAttempt,
}

impl AttemptTunnel {
    pub(super) fn new(inner: Box<dyn Duplex>, attempt: RequestAttempt) -> Self {
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
