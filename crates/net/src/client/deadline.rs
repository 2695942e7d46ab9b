//! Time limits of a connection to an origin, without a timer that is set for each request.
//!
//! One timer per connection is armed at the earliest time that was ever needed. It is not moved when
//! a step ends in time, as nearly all do; when it goes off early, it is armed for what is needed
//! then. A busy connection so touches its timer once per time limit, not once per request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::clock::{TICK, coarse_now};

/// Limits below this are kept by the exact time.
const EXACT: Duration = Duration::from_secs(2);

/// The first time at which `after` has surely passed from now.
pub(super) fn after(after: Duration) -> Instant {
    let (now, late) = match after < EXACT {
        true => (Instant::now(), Duration::ZERO),
        false => (coarse_now(), TICK),
    };
    let end = now.checked_add(after.saturating_add(late));
    // A limit that no clock can tell is none.
    end.unwrap_or_else(|| now + Duration::from_secs(86_400 * 365))
}

/// The earlier of two times, if any is set.
pub(super) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The timer of a connection.
#[derive(Default)]
pub(super) struct Deadline {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Ready when `at` has passed; until then `cx` is woken in time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let due = tokio::time::Instant::from_std(at);
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
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
        let mut deadline = Deadline::default();
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
