//! A connection after HTTP: what CONNECT and Upgrade hand over (RFC 9110 sections 7.8 and 9.3.6).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A two-way byte stream that an answer took over.
pub trait Duplex {
    /// Reads what is there into `buffer`; 0 at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes some of `bytes`.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends what `poll_write` may have kept back.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends this side's stream; reading goes on.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// What runs on a connection once its answer, a 101 or a 2xx to CONNECT, was sent.
///
/// Bytes that the client sent early are read first from the [`Duplex`].
pub type Tunnel = Box<dyn FnOnce(Box<dyn Duplex>) -> Pin<Box<dyn Future<Output = ()>>>>;
