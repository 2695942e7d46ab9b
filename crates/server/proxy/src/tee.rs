//! A body with two readers, of which the first never waits for the second.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_http::{Body, BodyError, BodyStream, Frame};

use super::frame_queue::FrameQueue;

/// Splits a body into a primary body and a copy. A body that is not a stream is shared as it is. A stream is read
/// by the reader of the primary body; the copy gets the same frames and breaks off where the primary does. It
/// is cut off if more than `max_memory` bytes wait for its reader.
pub(super) fn split(body: Body, max_memory: usize) -> (Body, Body, Option<CopyStatus>) {
    let inner = match body {
        Body::Stream(inner) => inner,
        whole => return (whole.share().unwrap_or_default(), whole, None),
    };
    let shared = Rc::new(RefCell::new(TeeBuffer {
        frames: FrameQueue::new(inner.remaining()),
        ..TeeBuffer::default()
    }));
    let primary = PrimaryBody {
        inner,
        max_memory,
        shared: Rc::clone(&shared),
    };
    let copy = CopyBody(Rc::clone(&shared));
    let status = CopyStatus(shared);
    (Body::stream(primary), Body::stream(copy), Some(status))
}

/// The status of a copy.
pub(super) struct CopyStatus(Rc<RefCell<TeeBuffer>>);

impl CopyStatus {
    /// Whether the copy was cut off because its reader was too far behind.
    pub(super) fn is_cut_off(&self) -> bool {
        self.0.borrow().is_cut_off
    }
}

/// The frames between the two readers.
#[derive(Default)]
struct TeeBuffer {
    frames: FrameQueue,
    end: Option<CopyEnd>,
    is_cut_off: bool,
    reader: Option<Waker>,
    /// Whether the copy was dropped.
    is_abandoned: bool,
}

/// How a copy ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyEnd {
    Complete,
    BrokenOff,
    TooFarBehind,
}

impl TeeBuffer {
    /// Adds a frame of the primary body.
    fn push(&mut self, frame: &Frame, max_memory: usize) {
        if self.is_abandoned || self.end.is_some() {
            return;
        }
        self.frames.push(match frame {
            Frame::Data(bytes) => Frame::Data(bytes.clone()),
            Frame::File(range) => Frame::File(range.clone()),
            Frame::Trailers(lines) => Frame::Trailers(lines.clone()),
        });
        if self.frames.in_memory() > max_memory {
            self.is_cut_off = true;
            self.frames.clear();
            self.end = Some(CopyEnd::TooFarBehind);
        } else if matches!(frame, Frame::Trailers(_)) {
            // Trailers are last; the reader may not poll for the end.
            self.end = Some(CopyEnd::Complete);
        }
        self.wake();
    }

    fn end(&mut self, end: CopyEnd) {
        self.end.get_or_insert(end);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The body that reads the source when it is polled.
struct PrimaryBody {
    inner: Box<dyn BodyStream>,
    max_memory: usize,
    shared: Rc<RefCell<TeeBuffer>>,
}

impl BodyStream for PrimaryBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let polled = self.inner.poll_frame(cx);
        let mut shared = self.shared.borrow_mut();
        match &polled {
            Poll::Ready(Some(Ok(frame))) => shared.push(frame, self.max_memory),
            Poll::Ready(Some(Err(_))) => shared.end(CopyEnd::BrokenOff),
            Poll::Ready(None) => shared.end(CopyEnd::Complete),
            Poll::Pending => {}
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }
}

impl Drop for PrimaryBody {
    fn drop(&mut self) {
        let is_whole = self.inner.remaining() == Some(0);
        // A reader that knows the length may not poll for the end.
        self.shared.borrow_mut().end(if is_whole {
            CopyEnd::Complete
        } else {
            CopyEnd::BrokenOff
        });
    }
}

/// The body that gets a copy of the frames.
struct CopyBody(Rc<RefCell<TeeBuffer>>);

impl BodyStream for CopyBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut shared = self.0.borrow_mut();
        if let Some(frame) = shared.frames.pop() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(end) = shared.end else {
            shared.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        Poll::Ready(match end {
            CopyEnd::Complete => None,
            CopyEnd::BrokenOff => Some(Err(BodyError::Disconnected)),
            CopyEnd::TooFarBehind => {
                let reason = "the copy was read too slowly";
                Some(Err(BodyError::Source(reason.into())))
            }
        })
    }

    fn remaining(&self) -> Option<u64> {
        self.0.borrow().frames.remaining()
    }
}

impl Drop for CopyBody {
    fn drop(&mut self) {
        let mut shared = self.0.borrow_mut();
        shared.is_abandoned = true;
        shared.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;

    use super::*;

    /// Pieces of known length, with an error in place of an empty one.
    struct SizedChunks(VecDeque<&'static str>);

    impl BodyStream for SizedChunks {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            Poll::Ready(self.0.pop_front().map(|piece| match piece {
                "" => Err(BodyError::TimedOut),
                piece => Ok(Frame::Data(Bytes::from_static(piece.as_bytes()))),
            }))
        }

        fn remaining(&self) -> Option<u64> {
            Some(self.0.iter().map(|piece| piece.len() as u64).sum())
        }
    }

    fn pieces(pieces: &[&'static str]) -> Body {
        Body::stream(SizedChunks(pieces.iter().copied().collect()))
    }

    /// Returns the next piece; `Err` if the body breaks off.
    fn next(body: &mut Body) -> Poll<Option<Result<Bytes, ()>>> {
        let cx = &mut Context::from_waker(Waker::noop());
        body.poll_frame(cx).map(|frame| {
            frame.map(|frame| match frame {
                Ok(Frame::Data(bytes)) => Ok(bytes),
                Ok(other) => panic!("{other:?}"),
                Err(_) => Err(()),
            })
        })
    }

    fn data(text: &'static str) -> Poll<Option<Result<Bytes, ()>>> {
        Poll::Ready(Some(Ok(Bytes::from_static(text.as_bytes()))))
    }

    #[test]
    fn a_copy_gets_the_frames_of_the_primary_body() {
        let (mut primary, mut copy, status) = split(pieces(&["one", "two"]), 100);
        assert_eq!((primary.len(), copy.len()), (Some(6), Some(6)));
        assert_eq!(next(&mut copy), Poll::Pending);
        assert_eq!(next(&mut primary), data("one"));
        assert_eq!(next(&mut copy), data("one"));
        assert_eq!(next(&mut copy), Poll::Pending);
        assert_eq!(next(&mut primary), data("two"));
        assert_eq!(copy.len(), Some(3));
        // A reader that knows the length does not poll for the end.
        drop(primary);
        assert_eq!(next(&mut copy), data("two"));
        assert_eq!(next(&mut copy), Poll::Ready(None));
        assert!(!status.unwrap().is_cut_off());
    }

    #[test]
    fn a_copy_that_is_too_far_behind_is_cut_off_and_the_primary_body_does_not_wait() {
        let (mut primary, mut copy, status) = split(pieces(&["one", "two", "six"]), 5);
        for piece in ["one", "two", "six"] {
            assert_eq!(next(&mut primary), data(piece));
        }
        assert_eq!(next(&mut primary), Poll::Ready(None));
        assert_eq!(next(&mut copy), Poll::Ready(Some(Err(()))));
        assert!(status.unwrap().is_cut_off());
    }

    #[test]
    fn a_body_that_breaks_off_does_so_for_both_readers() {
        let (mut primary, mut copy, status) = split(pieces(&["one", ""]), 100);
        assert_eq!(next(&mut primary), data("one"));
        assert_eq!(next(&mut primary), Poll::Ready(Some(Err(()))));
        assert_eq!(next(&mut copy), data("one"));
        assert_eq!(next(&mut copy), Poll::Ready(Some(Err(()))));
        assert!(!status.unwrap().is_cut_off());
        // A primary body that is dropped early does not make the copy complete.
        let (mut primary, mut copy, _) = split(pieces(&["one", "two"]), 100);
        assert_eq!(next(&mut primary), data("one"));
        drop(primary);
        assert_eq!(next(&mut copy), data("one"));
        assert_eq!(next(&mut copy), Poll::Ready(Some(Err(()))));
    }
}
