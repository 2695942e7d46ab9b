//! The queue of requests that wait for a worker.
//!
//! It is first in, first out, on whichever thread a worker becomes free.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The place of a request in the line.
pub(crate) type Ticket = u64;

/// The line. `T` is what a request waits for.
#[derive(Debug)]
pub(crate) struct Line<T> {
    waiting: VecDeque<Waiting<T>>,
    next: Ticket,
}

#[derive(Debug)]
struct Waiting<T> {
    ticket: Ticket,
    since: Instant,
    turn: oneshot::Sender<T>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            next: 0,
        }
    }
}

impl<T> Line<T> {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes in a request that comes `now`.
    pub(crate) fn enter(&mut self, now: Instant) -> (Ticket, oneshot::Receiver<T>) {
        self.next += 1;
        let (turn, receiver) = oneshot::channel();
        self.waiting.push_back(Waiting {
            ticket: self.next,
            since: now,
            turn,
        });
        (self.next, receiver)
    }

    /// Since when the first waits.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.since)
    }

    /// Gives those that wait for `limit` or longer what `item` makes. Tells how many they are.
    pub(crate) fn expire(&mut self, now: Instant, limit: Duration, item: impl Fn() -> T) -> u64 {
        let mut expired = 0;
        while let Some(first) = self.waiting.front()
            && now.saturating_duration_since(first.since) >= limit
            && let Some(first) = self.waiting.pop_front()
        {
            if first.turn.send(item()).is_ok() {
                expired += 1;
            }
        }
        expired
    }

    /// Takes a request out that waits no longer.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if let Ok(place) = self
            .waiting
            .binary_search_by_key(&ticket, |waiting| waiting.ticket)
        {
            self.waiting.remove(place);
        }
    }

    /// Gives `item` to the first who still waits.
    ///
    /// # Errors
    /// Nobody does; it is given back.
    pub(crate) fn hand(&mut self, item: T) -> Result<(), T> {
        let mut item = item;
        while let Some(first) = self.waiting.pop_front() {
            match first.turn.send(item) {
                Ok(()) => return Ok(()),
                Err(back) => item = back,
            }
        }
        Err(item)
    }

    /// Gives each what `item` makes.
    pub(crate) fn dismiss(&mut self, mut item: impl FnMut() -> T) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.turn.send(item());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_in_the_order_of_arrival_and_passes_over_who_went() {
        let mut line = Line::default();
        let now = Instant::now();
        let (left, _one) = line.enter(now);
        let (_, dropped) = line.enter(now);
        let (_, mut third) = line.enter(now);
        let (_, mut fourth) = line.enter(now);
        line.leave(left);
        drop(dropped);
        assert_eq!(line.len(), 3);
        assert_eq!(line.hand('a'), Ok(()));
        assert_eq!(line.hand('b'), Ok(()));
        assert_eq!((third.try_recv(), fourth.try_recv()), (Ok('a'), Ok('b')));
        assert_eq!(line.hand('c'), Err('c'));
        line.leave(left);
    }

    #[test]
    fn dismisses_all() {
        let mut line = Line::default();
        let now = Instant::now();
        let (_, mut one) = line.enter(now);
        let (_, mut two) = line.enter(now);
        line.dismiss(|| 'x');
        assert_eq!((one.try_recv(), two.try_recv()), (Ok('x'), Ok('x')));
        assert_eq!(line.len(), 0);
    }

    #[test]
    fn those_that_wait_too_long_are_told_and_no_others() {
        let mut line = Line::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let (_, mut first) = line.enter(now);
        let (_, gone) = line.enter(now);
        let (_, mut third) = line.enter(later);
        drop(gone);
        let limit = Duration::from_secs(5);
        assert_eq!(line.expire(later, limit, || 'x'), 0);
        assert_eq!(line.expire(now + limit, limit, || 'x'), 1);
        assert_eq!(first.try_recv(), Ok('x'));
        assert!(third.try_recv().is_err());
        assert_eq!((line.len(), line.since()), (1, Some(later)));
    }
}
