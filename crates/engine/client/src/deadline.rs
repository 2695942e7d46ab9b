//! Time limits of a connection to an origin, without a timer for each request.
//!
//! Each connection has one timer, which is armed for the earliest time that was ever needed. It is not moved
//! when a step ends in time, as nearly all do; if it fires early, it is armed for the current need. A busy
//! connection therefore touches its timer once per time limit, not once per request.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use apus_transport::{TICK, coarse_now};
use tokio::time::Sleep;

use crate::Timeouts;

/// Limits below this are kept with the exact time.
// From there on, the error of a tick is an eighth of the limit at most.
const EXACT: Duration = Duration::from_secs(2);

/// The first time at which `after` has certainly passed from now.
pub(crate) fn after(after: Duration) -> Instant {
    let (now, late) = if after < EXACT {
        (Instant::now(), Duration::ZERO)
    } else {
        // The time may be a tick old. A tick more, and the limit is never kept too early, as `Timeouts` says.
        (coarse_now(), TICK)
    };
    let end = now.checked_add(after.saturating_add(late));
    // A limit that is too long for the clock is no limit.
    end.unwrap_or_else(|| now + Duration::from_secs(86_400 * 365))
}

/// The earlier of two times, if any is set.
pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The deadlines of an exchange over a connection.
#[derive(Default)]
pub(crate) struct ExchangeDeadlines {
    /// The time limits of the current request.
    timeouts: Option<Rc<Timeouts>>,
    timer: DeadlineTimer,
    /// When the origin has to have taken some of the request.
    pub(crate) write_until: Option<Instant>,
    /// When the origin has to have sent some of the response.
    pub(crate) read_until: Option<Instant>,
}

impl ExchangeDeadlines {
    /// Begins an exchange.
    pub(crate) fn begin(&mut self, timeouts: Rc<Timeouts>) {
        self.timeouts = Some(timeouts);
        self.write_until = None;
        // The timer stays armed for an earlier request: see the module.
        self.read_until = None;
    }

    /// Ends an exchange.
    pub(crate) fn end(&mut self) {
        self.timeouts = None;
    }

    /// The first time at which a limit has certainly passed from now.
    pub(crate) fn within(&self, limit: impl FnOnce(&Timeouts) -> Duration) -> Option<Instant> {
        self.timeouts.as_deref().map(limit).map(after)
    }

    /// Sets the deadline of the next read, unless one is set.
    pub(crate) fn expect(&mut self, limit: impl FnOnce(&Timeouts) -> Duration) {
        // Polls for other reasons, such as the progress of an upload, must not move it: an origin that takes the body
        // byte by byte would never be late with its response.
        if self.read_until.is_none() {
            self.read_until = self.within(limit);
        }
    }

    /// Waits for the earlier of the two times to pass, and returns it.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        let Some(until) = earliest(self.write_until, self.read_until) else {
            return Poll::Pending;
        };
        self.timer.poll(cx, until).map(|()| until)
    }
}

/// The timer of a connection.
#[derive(Default)]
pub(crate) struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl DeadlineTimer {
    /// Ready when `at` has passed; until then `cx` is woken in time.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let due = tokio::time::Instant::from_std(at);
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        // A later time needs no change here. When the timer fires too early, the loop arms it again.
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= due {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_kept_although_the_timer_was_armed_for_an_earlier_one() {
        let start = tokio::time::Instant::now();
        let mut deadline = DeadlineTimer::default();
        let at = |seconds| (start + Duration::from_secs(seconds)).into_std();
        for seconds in [10, 60, 30] {
            let polled = poll_fn(|cx| Poll::Ready(deadline.poll(cx, at(seconds)))).await;
            assert!(polled.is_pending());
        }
        poll_fn(|cx| deadline.poll(cx, at(30))).await;
        assert_eq!(start.elapsed().as_secs(), 30);
        poll_fn(|cx| deadline.poll(cx, at(45))).await;
        assert_eq!(start.elapsed().as_secs(), 45);
    }
}
