//! The packets of an endpoint that the socket has not taken yet.

use std::io;
use std::task::{Poll, ready};

use apus_quic_protocol::Transmit;

/// The buffer in which packets are made. While the socket is full, it keeps what waits, and no more are made.
#[derive(Default)]
pub(crate) struct SendBuffer {
    contents: Vec<u8>,
    waiting: Option<Transmit>,
}

impl SendBuffer {
    /// Sends what waits.
    pub(crate) fn poll_flush(
        &mut self,
        mut send: impl FnMut(&Transmit, &[u8]) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        let Some(waiting) = &self.waiting else {
            return Poll::Ready(Ok(()));
        };
        let sent = ready!(send(waiting, &self.contents));
        self.waiting = None;
        Poll::Ready(sent)
    }

    /// Makes packets and sends them; `None` if there are none. While it is pending, they wait for
    /// [`SendBuffer::poll_flush`], which must be ready before this is called.
    pub(crate) fn poll_send(
        &mut self,
        make: impl FnOnce(&mut Vec<u8>) -> Option<Transmit>,
        send: impl FnMut(&Transmit, &[u8]) -> Poll<io::Result<()>>,
    ) -> Poll<Option<io::Result<()>>> {
        self.contents.clear();
        self.waiting = make(&mut self.contents);
        if self.waiting.is_none() {
            return Poll::Ready(None);
        }
        self.poll_flush(send).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(size: usize) -> Transmit {
        Transmit {
            destination: ([127, 0, 0, 1], 1).into(),
            ecn: None,
            size,
            segment_size: None,
            src_ip: None,
        }
    }

    #[test]
    fn packets_wait_while_the_socket_is_full_and_are_sent_once() {
        let mut buffer = SendBuffer::default();
        let make = |bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(b"packet");
            Some(transmit(6))
        };
        assert!(buffer.poll_send(make, |_, _| Poll::Pending).is_pending());
        assert!(buffer.poll_flush(|_, _| Poll::Pending).is_pending());
        let mut sent = Vec::new();
        for _ in 0..2 {
            let flushed = buffer.poll_flush(|transmit, contents| {
                assert_eq!(transmit.size, contents.len());
                sent.push(contents.to_vec());
                Poll::Ready(Ok(()))
            });
            assert!(matches!(flushed, Poll::Ready(Ok(()))));
        }
        assert_eq!(sent, [b"packet"]);
    }

    #[test]
    fn packets_that_the_kernel_rejects_do_not_wait() {
        let mut buffer = SendBuffer::default();
        let reject = |_: &Transmit, _: &[u8]| Poll::Ready(Err(io::Error::other("rejected")));
        let sent = buffer.poll_send(|_| Some(transmit(0)), reject);
        assert!(matches!(sent, Poll::Ready(Some(Err(_)))));
        let flushed = buffer.poll_flush(|_, _| panic!("nothing waits"));
        assert!(matches!(flushed, Poll::Ready(Ok(()))));
    }

    #[test]
    fn nothing_is_sent_when_nothing_was_made() {
        let sent = SendBuffer::default().poll_send(|_| None, |_, _| panic!("nothing was made"));
        assert!(matches!(sent, Poll::Ready(None)));
    }
}
