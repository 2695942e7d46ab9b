//! A body with two readers: the second is as far behind as memory allows.
//!
//! The first never waits for the second.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_http::{Body, BodyError, BodyStream, Frame};

use super::frames::Frames;

/// Content twice. What is there already is shared as it is. A stream is read by whoever has the first
/// body; the second gets what he got, breaks off where he did, and is cut off if more than `most` bytes
/// in memory wait for its reader.
pub(super) fn split(body: Body, most: usize) -> (Body, Body, Option<Watch>) {
    let inner = match body {
        Body::Stream(inner) => inner,
        whole => return (whole.share().unwrap_or_default(), whole, None),
    };
    let shared = Rc::new(RefCell::new(Shared {
        frames: Frames::new(inner.remaining()),
        ..Shared::default()
    }));
    let first = First {
        inner,
        most,
        shared: Rc::clone(&shared),
    };
    let second = Second(Rc::clone(&shared));
    let watch = Watch(shared);
    (Body::stream(first), Body::stream(second), Some(watch))
}

/// Tells what became of the second reader.
pub(super) struct Watch(Rc<RefCell<Shared>>);

impl Watch {
    /// Whether it was too far behind.
    pub(super) fn was_cut(&self) -> bool {
        self.0.borrow().was_cut
    }
}

/// What is between the two.
#[derive(Default)]
struct Shared {
    frames: Frames,
    end: Option<End>,
    was_cut: bool,
    reader: Option<Waker>,
    /// Whether the second has gone.
    is_abandoned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    BrokenOff,
    TooFarBehind,
}

impl Shared {
    /// Takes what the first got.
    fn take(&mut self, frame: &Frame, most: usize) {
        if self.is_abandoned || self.end.is_some() {
            return;
        }
        self.frames.push(match frame {
            Frame::Data(bytes) => Frame::Data(bytes.clone()),
            Frame::File(range) => Frame::File(range.clone()),
            Frame::Trailers(lines) => Frame::Trailers(lines.clone()),
        });
        if self.frames.held() > most {
            self.was_cut = true;
            self.frames.clear();
            self.end = Some(End::TooFarBehind);
        } else if matches!(frame, Frame::Trailers(_)) {
            // Nothing follows them, and not everybody asks.
            self.end = Some(End::Whole);
        }
        self.wake();
    }

    fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The content for whoever sets the pace.
struct First {
    inner: Box<dyn BodyStream>,
    most: usize,
    shared: Rc<RefCell<Shared>>,
}

impl BodyStream for First {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let polled = self.inner.poll_frame(cx);
        let mut shared = self.shared.borrow_mut();
        match &polled {
            Poll::Ready(Some(Ok(frame))) => shared.take(frame, self.most),
            Poll::Ready(Some(Err(_))) => shared.end(End::BrokenOff),
            Poll::Ready(None) => shared.end(End::Whole),
            Poll::Pending => {}
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let is_whole = self.inner.remaining() == Some(0);
        // Whoever knows the length does not ask for the end.
        self.shared.borrow_mut().end(match is_whole {
            true => End::Whole,
            false => End::BrokenOff,
        });
    }
}

/// The content for the other.
struct Second(Rc<RefCell<Shared>>);

impl BodyStream for Second {
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
            End::Whole => None,
            End::BrokenOff => Some(Err(BodyError::Disconnected)),
            End::TooFarBehind => {
                let why = "it came faster than it was taken";
                Some(Err(BodyError::Source(why.into())))
            }
        })
    }

    fn remaining(&self) -> Option<u64> {
        self.0.borrow().frames.remaining()
    }
}

impl Drop for Second {
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

    /// Pieces of known length, and an error in the place of one that is empty.
    struct Pieces(VecDeque<&'static str>);

    impl BodyStream for Pieces {
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
        Body::stream(Pieces(pieces.iter().copied().collect()))
    }

    /// The next piece; `Err` if the content breaks off.
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
    fn the_second_gets_what_the_first_got() {
        let (mut first, mut second, watch) = split(pieces(&["one", "two"]), 100);
        assert_eq!((first.len(), second.len()), (Some(6), Some(6)));
        assert_eq!(next(&mut second), Poll::Pending);
        assert_eq!(next(&mut first), data("one"));
        assert_eq!(next(&mut second), data("one"));
        assert_eq!(next(&mut second), Poll::Pending);
        assert_eq!(next(&mut first), data("two"));
        assert_eq!(second.len(), Some(3));
        // Whoever has it all by its length asks no more.
        drop(first);
        assert_eq!(next(&mut second), data("two"));
        assert_eq!(next(&mut second), Poll::Ready(None));
        assert!(!watch.unwrap().was_cut());
    }

    #[test]
    fn a_second_that_is_too_far_behind_is_cut_off_and_the_first_does_not_wait() {
        let (mut first, mut second, watch) = split(pieces(&["one", "two", "six"]), 5);
        for piece in ["one", "two", "six"] {
            assert_eq!(next(&mut first), data(piece));
        }
        assert_eq!(next(&mut first), Poll::Ready(None));
        assert_eq!(next(&mut second), Poll::Ready(Some(Err(()))));
        assert!(watch.unwrap().was_cut());
    }

    #[test]
    fn content_that_breaks_off_does_so_for_both() {
        let (mut first, mut second, watch) = split(pieces(&["one", ""]), 100);
        assert_eq!(next(&mut first), data("one"));
        assert_eq!(next(&mut first), Poll::Ready(Some(Err(()))));
        assert_eq!(next(&mut second), data("one"));
        assert_eq!(next(&mut second), Poll::Ready(Some(Err(()))));
        assert!(!watch.unwrap().was_cut());
        // Nor is what nobody read any more taken for the whole.
        let (mut first, mut second, _) = split(pieces(&["one", "two"]), 100);
        assert_eq!(next(&mut first), data("one"));
        drop(first);
        assert_eq!(next(&mut second), data("one"));
        assert_eq!(next(&mut second), Poll::Ready(Some(Err(()))));
    }
}
