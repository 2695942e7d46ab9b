//! A body that is sent, or read, at a limited bandwidth.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_access::{Bandwidth, Key, LimitState};
use apus_http::{Body, BodyError, BodyStream, FileRange, Frame};
use bytes::Bytes;

use crate::limit::sleep;

/// What limits the bandwidth of a body.
#[derive(Clone)]
pub(crate) struct Pace {
    pub(crate) bandwidth: Bandwidth,
    pub(crate) state: Arc<LimitState>,
    pub(crate) key: Key,
    /// The bytes at the beginning of a body that are not limited.
    pub(crate) free: u64,
}

/// A body in pieces, each of which waits until it is due. Bytes that nobody takes are not counted: the next piece is reserved when the
/// one before was taken.
pub(crate) struct PacedBody {
    inner: Body,
    /// What is left of the frame that was read last.
    current: Option<Frame>,
    pace: Pace,
    reserved: Option<ReservedPiece>,
}

/// A piece of the current frame that waits.
struct ReservedPiece {
    bytes: u64,
    due: Pin<Box<dyn Future<Output = ()>>>,
}

impl Pace {
    /// The body at this bandwidth.
    pub(crate) fn apply(self, inner: Body) -> Body {
        if inner.len().is_some_and(|len| len <= self.free) {
            return inner;
        }
        Body::stream(PacedBody {
            inner,
            current: None,
            pace: self,
            reserved: None,
        })
    }
}

impl PacedBody {
    /// How much of the current frame may be sent now.
    fn poll_piece(&mut self, cx: &mut Context<'_>, len: u64) -> Poll<u64> {
        if self.pace.free > 0 {
            let bytes = self.pace.free.min(len);
            self.pace.free = self.pace.free.saturating_sub(bytes);
            return Poll::Ready(bytes);
        }
        if self.reserved.is_none() {
            let (table, now) = (&self.pace.state.times, apus_clock::monotonic());
            let share = self.pace.bandwidth.reserve(table, self.pace.key, len, now);
            if share.wait.is_zero() {
                return Poll::Ready(share.bytes);
            }
            self.reserved = Some(ReservedPiece {
                bytes: share.bytes,
                due: Box::pin(sleep(share.wait)),
            });
        }
        let Some(piece) = &mut self.reserved else {
            return Poll::Ready(len);
        };
        ready!(piece.due.as_mut().poll(cx));
        let bytes = piece.bytes;
        self.reserved = None;
        Poll::Ready(bytes)
    }
}

impl BodyStream for PacedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.current.is_none() {
            match ready!(self.inner.poll_frame(cx)) {
                Some(Ok(frame)) if frame.len() > 0 => self.current = Some(frame),
                other => return Poll::Ready(other),
            }
        }
        let len = self.current.as_ref().map_or(0, Frame::len);
        let bytes = ready!(self.poll_piece(cx, len));
        let Some(frame) = self.current.take() else {
            return Poll::Ready(None);
        };
        let (piece, rest) = split(frame, bytes);
        self.current = rest;
        Poll::Ready(Some(Ok(piece)))
    }

    fn remaining(&self) -> Option<u64> {
        let current = self.current.as_ref().map_or(0, Frame::len);
        self.inner.len()?.checked_add(current)
    }

    fn waits_for_window(&self) -> bool {
        // What is reserved and cannot be sent would be lost for the others.
        self.current.is_some()
            || match &self.inner {
                Body::Stream(stream) => stream.waits_for_window(),
                Body::Empty => false,
                _ => true,
            }
    }
}

impl Drop for PacedBody {
    fn drop(&mut self) {
        if let Some(piece) = &self.reserved {
            let (table, key) = (&self.pace.state.times, self.pace.key);
            self.pace.bandwidth.give_back(table, key, piece.bytes);
        }
    }
}

/// The first bytes of a frame, and the rest.
fn split(frame: Frame, bytes: u64) -> (Frame, Option<Frame>) {
    if bytes >= frame.len() {
        return (frame, None);
    }
    match frame {
        Frame::Data(mut data) => {
            let at = usize::try_from(bytes).unwrap_or(usize::MAX).min(data.len());
            let rest: Bytes = data.split_off(at);
            (Frame::Data(data), Some(Frame::Data(rest)))
        }
        Frame::File(range) => {
            let rest = FileRange {
                offset: range.offset.saturating_add(bytes),
                len: range.len.saturating_sub(bytes),
                file: Arc::clone(&range.file),
            };
            let piece = FileRange {
                len: bytes,
                ..range
            };
            (Frame::File(piece), Some(Frame::File(rest)))
        }
        trailers @ Frame::Trailers(_) => (trailers, None),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use apus_access::LimitSize;

    use super::*;

    fn pace(state: &Arc<LimitState>, rate: u64, free: u64) -> Pace {
        Pace {
            bandwidth: Bandwidth::new(rate),
            key: state.times.key("a"),
            state: Arc::clone(state),
            free,
        }
    }

    /// The frames of a body that are there now.
    fn take(body: &mut Body) -> (u64, bool) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut taken = 0;
        loop {
            match body.poll_frame(&mut cx) {
                Poll::Pending => return (taken, false),
                Poll::Ready(None) => return (taken, true),
                Poll::Ready(Some(frame)) => taken += frame.unwrap().len(),
            }
        }
    }

    #[test]
    fn a_body_is_sent_evenly_at_its_bandwidth_after_the_free_part() {
        let clock = apus_clock::TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        let state = Arc::new(LimitState::new(LimitSize {
            rates: 10,
            quotas: None,
        }));
        let file = FileRange {
            file: Arc::new(std::fs::File::open("/dev/null").unwrap()),
            offset: 5,
            len: 15_000_000,
        };
        let bodies = [
            Body::from(vec![7; 15_000_000]),
            Body::File(file),
            apus_testkit::ready_frames(
                Some(15_000_000),
                (0..1_000)
                    .map(|_| Ok(Frame::Data(vec![1; 15_000].into())))
                    .collect(),
            ),
        ];
        for (at, body) in bodies.into_iter().enumerate() {
            let pace = Pace {
                key: state.times.key(at),
                ..pace(&state, 1_000_000, 4_000_000)
            };
            let mut body = pace.apply(body);
            assert_eq!(body.len(), Some(15_000_000));
            let (mut sent, is_over) = take(&mut body);
            assert!(
                (4_000_000..=4_065_000).contains(&sent) && !is_over,
                "{sent}"
            );
            for tick in 1..=1000_u64 {
                clock.advance(Duration::from_millis(10));
                let (more, is_over) = take(&mut body);
                sent += more;
                let due = 4_000_000 + tick * 10_000;
                let differs = sent.abs_diff(due);
                assert!(differs <= 65_000 && !is_over, "{tick}: {sent} {due}");
            }
            assert_eq!(body.len(), Some(15_000_000 - sent));
            clock.advance(Duration::from_secs(1));
            // It may catch up by a tenth of a second.
            let (mut more, mut is_over) = take(&mut body);
            while !is_over {
                clock.advance(Duration::from_millis(50));
                let (next, over) = take(&mut body);
                more += next;
                is_over = over;
            }
            assert_eq!(sent + more, 15_000_000);
        }
    }

    #[test]
    fn a_body_that_is_cancelled_leaves_its_reserved_piece_to_others() {
        let clock = apus_clock::TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        let state = Arc::new(LimitState::new(LimitSize {
            rates: 10,
            quotas: None,
        }));
        let pace = pace(&state, 1_000_000, 0);
        let mut cancelled = pace.clone().apply(Body::from(vec![7; 1_000_000]));
        assert_eq!(take(&mut cancelled), (50_000, false));
        let key = pace.key;
        let reserved = state.times.value(key).unwrap();
        drop(cancelled);
        let left = state.times.value(key).unwrap();
        assert!(left < reserved);
        // A part that is free needs no pieces.
        assert!(matches!(
            Pace { free: 7, ..pace }.apply(Body::from("a whole")),
            Body::Bytes(_)
        ));
    }
}
