//! Tunnels: connections after CONNECT or Upgrade (RFC 9110 sections 7.8 and 9.3.6).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A two-way byte stream that a response took over.
pub trait Duplex {
    /// Reads available bytes into `buffer`, and returns their number; 0 at the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes some of `bytes`, and returns their number.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends bytes that `poll_write` buffered.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Closes the stream for writing. Reading stays possible.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// The bytes that were written and are not known to have reached the peer.
    fn undelivered(&self) -> u64 {
        0
    }
}

/// The task that runs on a connection after the response, a 101 or a 2xx to CONNECT, is sent.
///
/// The [`Duplex`] first returns the bytes that the client sent early.
pub type Tunnel = Box<dyn FnOnce(Box<dyn Duplex>) -> Pin<Box<dyn Future<Output = ()>>>>;
