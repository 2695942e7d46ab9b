//! When the connections of a worker begin requests: at once in a closed loop, by a schedule in an open one.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use apus_transport::PreciseTimer;
use hdrhistogram::Histogram;

use crate::rate::ArrivalTimes;
use crate::recorder::histogram;

/// The requests that a worker has to begin.
pub(crate) struct Arrivals {
    /// When no further request becomes due.
    end: Cell<Option<Instant>>,
    /// How many requests are still to begin; `None` if only the time limits them.
    left: Cell<Option<u64>>,
    /// Whether the user stopped the load.
    is_interrupted: Cell<bool>,
    /// Connections that wait for something else than a request, and have to know when there is none any more.
    pausing: RefCell<HashMap<usize, Waker>>,
    open: Option<RefCell<OpenLoop>>,
}

/// The state of an open loop.
struct OpenLoop {
    times: ArrivalTimes,
    /// Requests that are due, and that no connection has begun.
    due: VecDeque<Instant>,
    /// Idle connections.
    waiting: VecDeque<(usize, Waker)>,
    /// Whether no further request becomes due.
    is_over: bool,
    /// Nanoseconds by which the schedule was missed.
    lag: Histogram<u64>,
}

impl Arrivals {
    /// A closed loop, or an open one if there are times.
    pub(crate) fn new(times: Option<ArrivalTimes>, left: Option<u64>) -> Self {
        Self {
            end: Cell::new(None),
            left: Cell::new(left),
            is_interrupted: Cell::new(false),
            pausing: RefCell::default(),
            open: times.map(|times| {
                RefCell::new(OpenLoop {
                    times,
                    due: VecDeque::new(),
                    waiting: VecDeque::new(),
                    is_over: false,
                    lag: histogram(),
                })
            }),
        }
    }

    /// Sets when no further request becomes due.
    pub(crate) fn set_end(&self, end: Option<Instant>) {
        self.end.set(end);
    }

    /// When no further request becomes due.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.end.get()
    }

    /// Whether no request of a closed loop is left.
    pub(crate) fn is_over(&self) -> bool {
        self.left.get() == Some(0) || self.end.get().is_some_and(|end| Instant::now() >= end)
    }

    /// Wakes the connection `id` when the last request of a closed loop has begun.
    pub(crate) fn wake_at_end(&self, id: usize, waker: &Waker) {
        self.pausing
            .borrow_mut()
            .entry(id)
            .and_modify(|known| known.clone_from(waker))
            .or_insert_with(|| waker.clone());
    }

    /// Ends the load now: nothing that is due is begun any more. Returns how many requests that leaves, and when
    /// they were due.
    pub(crate) fn stop(&self) -> Vec<Instant> {
        self.end.set(Some(Instant::now()));
        self.left.set(Some(0));
        let Some(open) = &self.open else {
            return Vec::new();
        };
        let mut open = open.borrow_mut();
        open.is_over = true;
        for (_, waker) in open.waiting.drain(..) {
            waker.wake();
        }
        open.due.drain(..).collect()
    }

    /// Ends the load because the user stopped it: what is not complete is no failure.
    pub(crate) fn interrupt(&self) {
        self.is_interrupted.set(true);
        self.stop();
    }

    /// Whether the user stopped the load.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }

    /// The time at which the next request of the connection `id` is due: it begins now. `None` if there is none any
    /// more.
    pub(crate) fn poll_next(&self, id: usize, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        let Some(open) = &self.open else {
            return Poll::Ready(self.next_of_closed_loop(Instant::now()));
        };
        let mut open = open.borrow_mut();
        if let Some(due) = open.due.pop_front() {
            return Poll::Ready(Some(due));
        }
        if open.is_over {
            return Poll::Ready(None);
        }
        match open.waiting.iter_mut().find(|(known, _)| *known == id) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => open.waiting.push_back((id, cx.waker().clone())),
        }
        Poll::Pending
    }

    /// In a closed loop, whether a request may begin at this time.
    pub(crate) fn next_of_closed_loop(&self, now: Instant) -> Option<Instant> {
        if self.end.get().is_some_and(|end| now >= end) {
            return None;
        }
        match self.left.get() {
            Some(0) => None,
            Some(left) => {
                self.left.set(Some(left - 1));
                if left == 1 {
                    for (_, waker) in self.pausing.take() {
                        waker.wake();
                    }
                }
                Some(now)
            }
            None => Some(now),
        }
    }

    /// Whether this is a closed loop.
    pub(crate) fn is_closed_loop(&self) -> bool {
        self.open.is_none()
    }

    /// Takes an idle connection out, because it is busy with something else than a request.
    pub(crate) fn leave(&self, id: usize) {
        if let Some(open) = &self.open {
            let mut open = open.borrow_mut();
            open.waiting.retain(|(known, _)| *known != id);
            // This connection may have been woken for a request that it does not take.
            if !open.due.is_empty()
                && let Some((_, waker)) = open.waiting.pop_front()
            {
                waker.wake();
            }
        }
    }

    /// Makes requests due by the schedule of an open loop, until the end.
    pub(crate) async fn run_schedule(&self, begin: Instant) -> io::Result<()> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let timer = PreciseTimer::new()?;
        loop {
            let next = open.borrow_mut().times.next().map(|time| begin + time);
            let is_left = self.left.get() != Some(0);
            let due = next.filter(|next| is_left && self.end.get().is_none_or(|end| *next < end));
            let Some(due) = due else {
                let mut open = open.borrow_mut();
                open.is_over = true;
                for (_, waker) in open.waiting.drain(..) {
                    waker.wake();
                }
                return Ok(());
            };
            let mut now = Instant::now();
            while now < due {
                timer.sleep(due - now).await?;
                now = Instant::now();
                if self.end.get().is_some_and(|end| now >= end) {
                    break;
                }
            }
            if open.borrow().is_over {
                return Ok(());
            }
            self.left
                .set(self.left.get().map(|left| left.saturating_sub(1)));
            // A connection has to run between requests that are due one after another.
            if self.make_due(due, now).is_multiple_of(64) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Makes a request due in an open loop; returns how many are.
    fn make_due(&self, due: Instant, now: Instant) -> usize {
        let Some(open) = &self.open else {
            return 0;
        };
        let mut open = open.borrow_mut();
        let lag = now.saturating_duration_since(due).as_nanos();
        open.lag
            .saturating_record(u64::try_from(lag).unwrap_or(u64::MAX));
        open.due.push_back(due);
        if let Some((_, waker)) = open.waiting.pop_front() {
            waker.wake();
        }
        open.due.len()
    }

    /// Nanoseconds by which the schedule was missed.
    pub(crate) fn take_lag(&self) -> Option<Histogram<u64>> {
        self.open.as_ref().map(|open| open.borrow().lag.clone())
    }
}
