//! The timers of an endpoint's connections: a heap of deadlines, and one timer of the kernel for the earliest.
//!
//! The timers of tokio have a resolution of a millisecond. Pacing (RFC 9002 section 7.7) on a path with a round trip
//! of 50 µs waits a few microseconds between bursts; a millisecond would cost most of the throughput. So the earliest
//! deadline is set in a timerfd(2), which is exact.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::descriptor::register;

/// A heap of deadlines, each with the index of its connection. A deadline that moved stays in the heap, and is
/// compared with the connection's deadline when it is due.
#[derive(Default)]
pub(crate) struct DeadlineHeap(BinaryHeap<Reverse<(Instant, usize)>>);

impl DeadlineHeap {
    pub(crate) fn push(&mut self, at: Instant, index: usize) {
        self.0.push(Reverse((at, index)));
    }

    /// Removes an entry that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, usize)> {
        if self.earliest()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }
}

/// A timer of the kernel.
pub(crate) struct KernelTimer {
    descriptor: AsyncFd<OwnedFd>,
    set_to: Option<Instant>,
}

impl KernelTimer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self {
            descriptor: register(descriptor)?,
            set_to: None,
        })
    }

    /// Wakes the task at this time. One that is set for an earlier time stays: waking up once too often is cheaper
    /// than setting it after every packet.
    pub(crate) fn set(&mut self, at: Option<Instant>, now: Instant) -> io::Result<()> {
        let Some(at) = at else {
            return Ok(());
        };
        if self.set_to.is_some_and(|set_to| set_to <= at) {
            return Ok(());
        }
        // Zero would disarm it.
        let after = at
            .saturating_duration_since(now)
            .max(Duration::from_nanos(1));
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(after).map_err(io::Error::other)?,
        };
        timerfd_settime(
            self.descriptor.get_ref(),
            TimerfdTimerFlags::empty(),
            &value,
        )?;
        self.set_to = Some(at);
        Ok(())
    }

    /// Ready when the timer has fired, once.
    pub(crate) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.descriptor.poll_read_ready(cx))?;
            let mut expirations = [0; 8];
            let read =
                guard.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut expirations)?));
            match read {
                Ok(Ok(_)) => {
                    self.set_to = None;
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn deadlines_are_due_in_their_order_and_not_before() {
        let start = Instant::now();
        let at = |nanos| start + Duration::from_nanos(nanos);
        let mut heap = DeadlineHeap::default();
        for (nanos, index) in [(30, 0), (10, 1), (20, 2)] {
            heap.push(at(nanos), index);
        }
        assert_eq!(heap.earliest(), Some(at(10)));
        assert_eq!(heap.pop_due(at(9)), None);
        assert_eq!(heap.pop_due(at(20)), Some((at(10), 1)));
        assert_eq!(heap.pop_due(at(20)), Some((at(20), 2)));
        assert_eq!(heap.pop_due(at(29)), None);
        assert_eq!(heap.pop_due(at(31)), Some((at(30), 0)));
        assert_eq!(heap.pop_due(at(1_000)), None);
    }

    #[test]
    fn the_timer_fires_at_the_earlier_of_two_times() {
        apus_testkit::block_on(async {
            let mut timer = KernelTimer::new().unwrap();
            let start = Instant::now();
            let wanted = start + Duration::from_micros(300);
            timer
                .set(Some(start + Duration::from_secs(3_600)), start)
                .unwrap();
            timer.set(Some(wanted), start).unwrap();
            timer
                .set(Some(start + Duration::from_secs(60)), start)
                .unwrap();
            poll_fn(|cx| timer.poll_fired(cx)).await.unwrap();
            assert!(Instant::now() >= wanted);
            // It can be set again, also to a time that has passed.
            timer.set(Some(start), Instant::now()).unwrap();
            poll_fn(|cx| timer.poll_fired(cx)).await.unwrap();
        });
    }
}
