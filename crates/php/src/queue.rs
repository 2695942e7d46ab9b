//! The first-in, first-out queue of requests that wait for a worker, shared by all threads.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The number of a request in the queue.
pub(crate) type QueueTicket = u64;

/// The queue. `T` is what a request waits for.
#[derive(Debug)]
pub(crate) struct WorkerQueue<T> {
    requests: VecDeque<WorkerQueueEntry<T>>,
    last_ticket: QueueTicket,
}

#[derive(Debug)]
struct WorkerQueueEntry<T> {
    ticket: QueueTicket,
    since: Instant,
    sender: oneshot::Sender<T>,
}

impl<T> Default for WorkerQueue<T> {
    fn default() -> Self {
        Self {
            requests: VecDeque::new(),
            last_ticket: 0,
        }
    }
}

impl<T> WorkerQueue<T> {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request that arrives `now`.
    pub(crate) fn push(&mut self, now: Instant) -> (QueueTicket, oneshot::Receiver<T>) {
        self.last_ticket += 1;
        let (sender, receiver) = oneshot::channel();
        self.requests.push_back(WorkerQueueEntry {
            ticket: self.last_ticket,
            since: now,
            sender,
        });
        (self.last_ticket, receiver)
    }

    /// When the first request of the queue arrived.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.requests.front().map(|first| first.since)
    }

    /// Removes requests that have waited for `limit` or longer, and sends each the result of `item`. Returns
    /// their number.
    pub(crate) fn expire(&mut self, now: Instant, limit: Duration, item: impl Fn() -> T) -> u64 {
        let mut expired = 0;
        while let Some(first) = self.requests.front()
            && now.saturating_duration_since(first.since) >= limit
            && let Some(first) = self.requests.pop_front()
        {
            if first.sender.send(item()).is_ok() {
                expired += 1;
            }
        }
        expired
    }

    /// Removes a request that no longer waits.
    pub(crate) fn remove(&mut self, ticket: QueueTicket) {
        if let Ok(index) = self
            .requests
            .binary_search_by_key(&ticket, |request| request.ticket)
        {
            self.requests.remove(index);
        }
    }

    /// Sends `item` to the first request that still waits.
    ///
    /// # Errors
    /// No request waits; `item` is returned.
    pub(crate) fn serve_next(&mut self, item: T) -> Result<(), T> {
        let mut item = item;
        while let Some(first) = self.requests.pop_front() {
            match first.sender.send(item) {
                Ok(()) => return Ok(()),
                Err(unsent) => item = unsent,
            }
        }
        Err(item)
    }

    /// Removes all requests, and sends each the result of `item`.
    pub(crate) fn clear_with(&mut self, mut item: impl FnMut() -> T) {
        for request in self.requests.drain(..) {
            let _ = request.sender.send(item());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_requests_in_order_and_skips_those_that_no_longer_wait() {
        let mut queue = WorkerQueue::default();
        let now = Instant::now();
        let (removed, _one) = queue.push(now);
        let (_, dropped) = queue.push(now);
        let (_, mut third) = queue.push(now);
        let (_, mut fourth) = queue.push(now);
        queue.remove(removed);
        drop(dropped);
        assert_eq!(queue.len(), 3);
        assert_eq!(queue.serve_next('a'), Ok(()));
        assert_eq!(queue.serve_next('b'), Ok(()));
        assert_eq!((third.try_recv(), fourth.try_recv()), (Ok('a'), Ok('b')));
        assert_eq!(queue.serve_next('c'), Err('c'));
        queue.remove(removed);
    }

    #[test]
    fn clears_the_queue() {
        let mut queue = WorkerQueue::default();
        let now = Instant::now();
        let (_, mut one) = queue.push(now);
        let (_, mut two) = queue.push(now);
        queue.clear_with(|| 'x');
        assert_eq!((one.try_recv(), two.try_recv()), (Ok('x'), Ok('x')));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn expires_only_requests_that_wait_for_too_long() {
        let mut queue = WorkerQueue::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let (_, mut first) = queue.push(now);
        let (_, gone) = queue.push(now);
        let (_, mut third) = queue.push(later);
        drop(gone);
        let limit = Duration::from_secs(5);
        assert_eq!(queue.expire(later, limit, || 'x'), 0);
        assert_eq!(queue.expire(now + limit, limit, || 'x'), 1);
        assert_eq!(first.try_recv(), Ok('x'));
        assert!(third.try_recv().is_err());
        assert_eq!((queue.len(), queue.oldest()), (1, Some(later)));
    }
}
