//! A tunnel over an HTTP/2 stream (RFC 9113 section 8.5, RFC 8441).
//!
//! Its input is the body of the request; its output waits in a pipe until the stream is scheduled.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use apus_http::{BodyError, BodyStream, Duplex, Frame};
use bytes::{Buf, Bytes};

use crate::body::BodyReceiver;

/// The most bytes of output that wait in the pipe; past it the tunnel waits.
const PIPE: usize = 64 * 1024;

/// The tunnel's side of the stream.
struct TunnelStream {
    input: Option<BodyReceiver>,
    /// Data that was taken from `input` and not read yet.
    unread: Bytes,
    pipe: Rc<RefCell<TunnelPipe>>,
}

/// The connection's end of the pipe.
struct TunnelBody(Rc<RefCell<TunnelPipe>>);

#[derive(Default)]
struct TunnelPipe {
    bytes: Vec<u8>,
    /// Whether the tunnel has ended its output.
    ended: bool,
    /// Whether the connection has dropped its end.
    broken: bool,
    writer: Option<Waker>,
    reader: Option<Waker>,
}

/// The stream of a tunnel, which reads `input`, and the body that sends what the tunnel writes.
pub fn over_stream(input: Option<BodyReceiver>) -> (Box<dyn Duplex>, Box<dyn BodyStream>) {
    let pipe = Rc::new(RefCell::new(TunnelPipe::default()));
    let stream = TunnelStream {
        input,
        unread: Bytes::new(),
        pipe: Rc::clone(&pipe),
    };
    (Box::new(stream), Box::new(TunnelBody(pipe)))
}

impl Duplex for TunnelStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.unread.is_empty() {
            let Some(input) = &mut self.input else {
                return Poll::Ready(Ok(0));
            };
            match ready!(input.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) => self.unread = bytes,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.input = None;
                    let kind = match error {
                        BodyError::Disconnected => io::ErrorKind::ConnectionReset,
                        _ => io::ErrorKind::InvalidData,
                    };
                    return Poll::Ready(Err(io::Error::new(kind, error)));
                }
                None => self.input = None,
            }
        }
        let len = self.unread.len().min(buffer.len());
        if let Some(buffer) = buffer.get_mut(..len) {
            self.unread.copy_to_slice(buffer);
        }
        Poll::Ready(Ok(len))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.pipe.borrow_mut();
        if pipe.broken || pipe.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // The stream may be stalled by its window, so that a fast origin would fill the memory.
        let room = PIPE.saturating_sub(pipe.bytes.len());
        if room == 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let part = bytes.get(..room).unwrap_or(bytes);
        pipe.bytes.extend_from_slice(part);
        pipe.wake_reader();
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.pipe.borrow_mut();
        if pipe.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if pipe.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.pipe.borrow_mut();
        pipe.ended = true;
        pipe.wake_reader();
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        let mut pipe = self.pipe.borrow_mut();
        // A tunnel that is dropped ends its stream: the peer would otherwise wait for more.
        pipe.ended = true;
        pipe.wake_reader();
    }
}

impl BodyStream for TunnelBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut pipe = self.0.borrow_mut();
        if pipe.bytes.is_empty() {
            if pipe.ended {
                return Poll::Ready(None);
            }
            match &pipe.reader {
                Some(known) if known.will_wake(cx.waker()) => {}
                _ => pipe.reader = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let bytes = std::mem::take(&mut pipe.bytes);
        pipe.wake_writer();
        Poll::Ready(Some(Ok(Frame::Data(bytes.into()))))
    }
}

impl Drop for TunnelBody {
    fn drop(&mut self) {
        let mut pipe = self.0.borrow_mut();
        pipe.broken = true;
        pipe.wake_writer();
    }
}

impl TunnelPipe {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}
