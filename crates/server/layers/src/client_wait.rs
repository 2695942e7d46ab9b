//! The time in which the reader of a request's body waits for its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use apus_http::{Body, BodyError, BodyStream, Frame};

/// How long the reader of a body has waited for the next frame: from a poll that finds none until a frame arrives,
/// whether it is read then or not.
#[derive(Debug)]
pub(crate) struct ClientWait {
    began: Instant,
    /// When the wait began that has not ended, in microseconds; [`NOT_WAITING`] if there is none.
    since: AtomicU64,
    /// The waits that have ended, in microseconds.
    waited: AtomicU64,
}

const NOT_WAITING: u64 = u64::MAX;

impl ClientWait {
    /// Measures the waits for this body. `None` if it is there as a whole.
    pub(crate) fn measure(body: &mut Body) -> Option<Arc<Self>> {
        let inner = match std::mem::take(body) {
            Body::Stream(inner) => inner,
            whole => {
                *body = whole;
                return None;
            }
        };
        let wait = Arc::new(Self {
            began: Instant::now(),
            since: AtomicU64::new(NOT_WAITING),
            waited: AtomicU64::new(0),
        });
        *body = Body::stream(MeasuredBody {
            inner,
            wait: Arc::clone(&wait),
            arrival: None,
        });
        Some(wait)
    }

    /// Whether the reader waits now.
    pub(crate) fn is_waiting(&self) -> bool {
        self.since.load(Ordering::Relaxed) != NOT_WAITING
    }

    /// The length of all waits.
    pub(crate) fn total(&self) -> Duration {
        let now = self.now();
        let current = match self.since.load(Ordering::Relaxed) {
            NOT_WAITING => 0,
            since => now.saturating_sub(since),
        };
        let ended = self.waited.load(Ordering::Relaxed);
        Duration::from_micros(ended.saturating_add(current))
    }

    fn begin(&self) {
        if !self.is_waiting() {
            self.since.store(self.now(), Ordering::Relaxed);
        }
    }

    fn end(&self) {
        let since = self.since.swap(NOT_WAITING, Ordering::Relaxed);
        if since != NOT_WAITING {
            let waited = self.now().saturating_sub(since);
            self.waited.fetch_add(waited, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(NOT_WAITING - 1)
    }
}

/// A body whose waits are measured.
struct MeasuredBody {
    inner: Box<dyn BodyStream>,
    wait: Arc<ClientWait>,
    arrival: Option<Arc<Arrival>>,
}

/// A waker that ends the wait: a reader that does something else meanwhile may not poll the body again.
struct Arrival {
    reader: Waker,
    wait: Arc<ClientWait>,
}

impl Wake for Arrival {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wait.end();
        self.reader.wake_by_ref();
    }
}

impl MeasuredBody {
    /// The waker for this poll. A reader mostly polls with the same one.
    fn arrival(&mut self, cx: &Context<'_>) -> Waker {
        let known = self.arrival.take();
        let known = known.filter(|known| known.reader.will_wake(cx.waker()));
        let arrival = known.unwrap_or_else(|| {
            Arc::new(Arrival {
                reader: cx.waker().clone(),
                wait: Arc::clone(&self.wait),
            })
        });
        self.arrival = Some(Arc::clone(&arrival));
        arrival.into()
    }
}

impl BodyStream for MeasuredBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let waker = self.arrival(cx);
        // Before the poll, so that an arrival on another thread ends this wait.
        self.wait.begin();
        let polled = self.inner.poll_frame(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            self.wait.end();
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }

    fn waits_for_window(&self) -> bool {
        self.inner.waits_for_window()
    }
}

impl Drop for MeasuredBody {
    fn drop(&mut self) {
        self.wait.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that keeps the waker of its reader, and has no frame.
    #[derive(Clone, Default)]
    struct Silent(std::rc::Rc<std::cell::RefCell<Option<Waker>>>);

    impl BodyStream for Silent {
        fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            *self.0.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        }
    }

    #[test]
    fn a_wait_ends_when_something_arrives_although_the_reader_does_not_look() {
        let silent = Silent::default();
        let mut body = Body::stream(silent.clone());
        let wait = ClientWait::measure(&mut body).unwrap();
        assert!(!wait.is_waiting());
        for _ in 0..2 {
            let polled = body.poll_frame(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending() && wait.is_waiting());
            silent.0.borrow_mut().take().unwrap().wake();
            assert!(!wait.is_waiting());
        }
        let _ = body.poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(wait.is_waiting());
        drop(body);
        assert!(!wait.is_waiting());
        assert!(ClientWait::measure(&mut Body::from("whole")).is_none());
    }
}
