//! A connection after 101 (RFC 9110 section 7.8).
//!
//! The request that opened it counts as open for as long as the connection is.

use std::io;
use std::task::{Context, Poll};

use apus_http::Duplex;

use super::flight::Flight;

/// A tunnel, with its request.
pub(super) struct Accompanied {
    inner: Box<dyn Duplex>,
    _flight: Flight,
}

impl Accompanied {
    pub(super) fn new(inner: Box<dyn Duplex>, flight: Flight) -> Self {
        Self {
            inner,
            _flight: flight,
        }
    }
}

impl Duplex for Accompanied {
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
