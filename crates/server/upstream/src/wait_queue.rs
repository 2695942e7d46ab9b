//! A queue of requests, in the order of arrival as long as their clients wait for the responses.

use std::collections::VecDeque;
use std::fmt;

use tokio::sync::oneshot;

/// The position of a request in the order of arrival, which it keeps when it enters the queue again.
pub type WaitTicket = u64;

/// A queue of requests that wait for something scarce, such as a process of an application. `T` is what they
/// wait for, and `C` is what the queue knows about each of them.
///
/// It is first in, first out. That is fair, but it fails when more requests arrive than are served and each
/// client gives up after a while: the first request is then always the one whose client gives up next, so that
/// the origin works for clients that are gone, and nobody gets a response. Therefore the queue is told what
/// became of the requests that waited and were served ([`QueueOutcome`]). If most of the last ones were abandoned
/// before their responses, it is *last in, first out*: the newest request has the most time left, and the old
/// ones leave with their clients. It is first in, first out again once it was empty, or once a number of
/// responses came while no client gave up.
///
/// A request whose client gives up while it waits is not a reason to change the order: it costs the origin
/// nothing, and those behind it advance. So a client that opens requests and abandons them changes the order only
/// if it gets most of what is served, and that is worth more than the order. Others then lose their
/// positions: new requests overtake them, and they wait at most for the time limit of the queue.
pub struct WaitQueue<T, C> {
    /// In the order of arrival.
    entries: VecDeque<WaitQueueEntry<T, C>>,
    last_ticket: WaitTicket,
    order: ServiceOrder,
}

struct WaitQueueEntry<T, C> {
    ticket: WaitTicket,
    criteria: C,
    sender: oneshot::Sender<T>,
}

/// What became of a request that waited in a queue and was then served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOutcome {
    /// There was a response for its client.
    Responded,
    /// Its client gave up before.
    Abandoned,
}

/// Which request is served first: the oldest, or the newest.
#[derive(Debug, Default)]
struct ServiceOrder {
    /// The outcomes of the last requests, the last one in the lowest bit; 1 if it was abandoned.
    abandoned: u32,
    is_newest_first: bool,
    /// Responses since a client last gave up.
    responses: u32,
}

/// The newest request is served first if more than this number of the last 32 were abandoned.
const MAX_ABANDONED: u32 = u32::BITS / 2;

/// The number of responses, while no client gives up, after which the oldest request is served first again.
// Twice the outcomes that are looked at, so that the order does not change to and fro at the edge of an overload.
const CALM_RESPONSES: u32 = 64;

impl ServiceOrder {
    fn record(&mut self, outcome: QueueOutcome) {
        match outcome {
            QueueOutcome::Responded => self.responses = self.responses.saturating_add(1),
            QueueOutcome::Abandoned => self.responses = 0,
        }
        self.abandoned = self.abandoned << 1 | u32::from(outcome == QueueOutcome::Abandoned);
        // With first in, first out and more requests than an origin serves, each response came just after its
        // client had gone, so that nobody got one.
        if self.abandoned.count_ones() > MAX_ABANDONED {
            self.is_newest_first = true;
        } else if self.responses >= CALM_RESPONSES {
            self.is_newest_first = false;
        }
    }

    fn give_up(&mut self) {
        self.responses = 0;
    }
}

impl<T, C> Default for WaitQueue<T, C> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            last_ticket: 0,
            order: ServiceOrder::default(),
        }
    }
}

impl<T, C> WaitQueue<T, C> {
    /// Returns the number of requests that wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns what is known about the request that arrived first.
    pub fn oldest(&self) -> Option<&C> {
        self.entries.front().map(|entry| &entry.criteria)
    }

    /// Adds a request, at its old position if it has a ticket. The channel receives what it waits for, or an
    /// error after [`Self::clear`].
    pub fn enter(
        &mut self,
        ticket: Option<WaitTicket>,
        criteria: C,
    ) -> (WaitTicket, oneshot::Receiver<T>) {
        if self.is_empty() && ticket.is_none() {
            // The last overload is over.
            self.order = ServiceOrder::default();
        }
        let ticket = ticket.unwrap_or_else(|| {
            self.last_ticket += 1;
            self.last_ticket
        });
        let (sender, receiver) = oneshot::channel();
        // A request that was sent back by a change of nodes has its place of before: it has already waited.
        let index = self.entries.partition_point(|other| other.ticket < ticket);
        let entry = WaitQueueEntry {
            ticket,
            criteria,
            sender,
        };
        self.entries.insert(index, entry);
        (ticket, receiver)
    }

    /// Removes a request whose time to wait is over, if it is in the queue.
    pub fn leave(&mut self, ticket: WaitTicket) {
        self.remove(ticket);
    }

    /// Removes a request whose client gave up, if it is in the queue.
    pub fn give_up(&mut self, ticket: WaitTicket) {
        if self.remove(ticket) {
            self.order.give_up();
        }
    }

    fn remove(&mut self, ticket: WaitTicket) -> bool {
        let found = self
            .entries
            .binary_search_by_key(&ticket, |entry| entry.ticket);
        if let Ok(index) = found {
            self.entries.remove(index);
        }
        found.is_ok()
    }

    /// Gives an item to the first request that accepts it, in the order of the queue.
    ///
    /// # Errors
    /// No request does; the item is returned.
    pub fn hand(&mut self, accepts: impl Fn(&C) -> bool, item: T) -> Result<(), T> {
        let mut item = item;
        loop {
            let accepts = |entry: &WaitQueueEntry<T, C>| accepts(&entry.criteria);
            let found = if self.order.is_newest_first {
                self.entries.iter().rposition(accepts)
            } else {
                self.entries.iter().position(accepts)
            };
            let Some(entry) = found.and_then(|index| self.entries.remove(index)) else {
                return Err(item);
            };
            match entry.sender.send(item) {
                Ok(()) => return Ok(()),
                // Its client is gone, so the item goes to the next one; a slot that is dropped here would be lost to
                // the queue.
                Err(back) => {
                    self.order.give_up();
                    item = back;
                }
            }
        }
    }

    /// Removes the request that arrived first, if the condition holds for it. Returns where it receives something else
    /// than what it waits for.
    pub fn take_oldest_if(
        &mut self,
        condition: impl FnOnce(&C) -> bool,
    ) -> Option<oneshot::Sender<T>> {
        self.oldest().filter(|oldest| condition(oldest))?;
        self.entries.pop_front().map(|entry| entry.sender)
    }

    /// Records what became of a request that waited in this queue. That matters only while others wait.
    pub fn record(&mut self, outcome: QueueOutcome) {
        if !self.is_empty() {
            self.order.record(outcome);
        }
    }

    /// Removes all requests, which may enter again with their tickets.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<T, C> fmt::Debug for WaitQueue<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue")
            .field("len", &self.len())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::QueueOutcome::{Abandoned, Responded};
    use super::*;

    type Numbers = WaitQueue<u32, ()>;

    /// Adds requests that wait until the end of the test.
    fn enter(queue: &mut Numbers, count: usize) -> Vec<(WaitTicket, oneshot::Receiver<u32>)> {
        (0..count).map(|_| queue.enter(None, ())).collect()
    }

    /// The numbers of the requests in the order in which they are served.
    fn serve(
        queue: &mut Numbers,
        waiting: &mut [(WaitTicket, oneshot::Receiver<u32>)],
        count: usize,
    ) -> Vec<WaitTicket> {
        let mut order = Vec::new();
        for item in 0..count {
            queue.hand(|()| true, item as u32).unwrap();
            let served = waiting
                .iter_mut()
                .find_map(|(ticket, receiver)| receiver.try_recv().is_ok().then_some(*ticket));
            order.push(served.unwrap());
        }
        order
    }

    fn record(queue: &mut Numbers, outcome: QueueOutcome, count: u32) {
        for _ in 0..count {
            queue.record(outcome);
        }
    }

    /// A queue of ten requests that serves the newest one first.
    fn newest_first() -> (Numbers, Vec<(WaitTicket, oneshot::Receiver<u32>)>) {
        let mut queue = Numbers::default();
        let waiting = enter(&mut queue, 10);
        record(&mut queue, Abandoned, MAX_ABANDONED + 1);
        (queue, waiting)
    }

    #[test]
    fn serves_the_newest_request_first_when_most_of_the_last_ones_were_abandoned() {
        let mut queue = Numbers::default();
        let mut waiting = enter(&mut queue, 10);
        for _ in 0..10 {
            // Exactly half.
            record(&mut queue, Abandoned, MAX_ABANDONED);
            record(&mut queue, Responded, MAX_ABANDONED);
        }
        assert_eq!(serve(&mut queue, &mut waiting, 2), [1, 2]);
        record(&mut queue, Abandoned, MAX_ABANDONED + 1);
        assert_eq!(serve(&mut queue, &mut waiting, 2), [10, 9]);
        waiting.extend(enter(&mut queue, 1));
        assert_eq!(serve(&mut queue, &mut waiting, 3), [11, 8, 7]);
    }

    /// It costs a client little to open requests and to give them up.
    #[test]
    fn requests_that_are_given_up_while_they_wait_do_not_change_the_order() {
        let mut queue = Numbers::default();
        let mut waiting = enter(&mut queue, 200);
        for (ticket, _) in waiting.drain(50..150) {
            queue.give_up(ticket);
        }
        let dropped = waiting.split_off(50);
        record(&mut queue, Responded, 1);
        let mut last = enter(&mut queue, 1);
        assert_eq!(
            serve(&mut queue, &mut waiting, 50),
            (1..=50).collect::<Vec<_>>()
        );
        drop(dropped);
        assert_eq!(serve(&mut queue, &mut last, 1), [201]);
    }

    #[test]
    fn serves_the_oldest_request_first_again_when_clients_wait_for_their_responses() {
        let (mut queue, mut waiting) = newest_first();
        record(&mut queue, Responded, CALM_RESPONSES - 1);
        assert_eq!(serve(&mut queue, &mut waiting, 1), [10]);
        let (given_up, _) = waiting.remove(4);
        queue.give_up(given_up);
        record(&mut queue, Responded, CALM_RESPONSES - 1);
        assert_eq!(serve(&mut queue, &mut waiting, 1), [9]);
        record(&mut queue, Abandoned, 1);
        record(&mut queue, Responded, CALM_RESPONSES - 1);
        assert_eq!(serve(&mut queue, &mut waiting, 1), [8]);
        record(&mut queue, Responded, 1);
        assert_eq!(serve(&mut queue, &mut waiting, 2), [1, 2]);
    }

    #[test]
    fn a_request_that_waited_for_too_long_was_not_given_up() {
        let (mut queue, mut waiting) = newest_first();
        record(&mut queue, Responded, CALM_RESPONSES - 1);
        queue.leave(5);
        drop(queue.take_oldest_if(|()| true));
        record(&mut queue, Responded, 1);
        assert_eq!(serve(&mut queue, &mut waiting, 4), [2, 3, 4, 6]);
    }

    #[test]
    fn a_queue_that_was_empty_serves_the_oldest_request_first() {
        let (mut queue, mut waiting) = newest_first();
        serve(&mut queue, &mut waiting, 10);
        // These were served before.
        record(&mut queue, Abandoned, 100);
        let mut waiting = enter(&mut queue, 3);
        assert_eq!(serve(&mut queue, &mut waiting, 3), [11, 12, 13]);
    }

    #[test]
    fn the_order_outlives_a_change_after_which_all_enter_again() {
        let (mut queue, waiting) = newest_first();
        queue.clear();
        let mut again: Vec<_> = waiting
            .iter()
            .map(|(ticket, _)| queue.enter(Some(*ticket), ()))
            .collect();
        assert_eq!(serve(&mut queue, &mut again, 2), [10, 9]);
    }

    #[test]
    fn takes_the_oldest_request_only_under_the_condition() {
        let mut queue = WaitQueue::default();
        let (_, mut first) = queue.enter(None, 1);
        let (_, _second) = queue.enter(None, 2);
        assert!(queue.take_oldest_if(|criteria| *criteria > 1).is_none());
        let sender = queue.take_oldest_if(|criteria| *criteria == 1).unwrap();
        sender.send('x').unwrap();
        assert_eq!(first.try_recv(), Ok('x'));
        assert_eq!((queue.oldest(), queue.len()), (Some(&2), 1));
    }

    /// Clients that send the next request after a response or after they gave up, and processes. Times are in
    /// milliseconds.
    struct Overload {
        clients: u64,
        processes: u64,
        takes: u64,
        patience: u64,
    }

    impl Overload {
        /// Returns how many requests had a response after the first seconds, how many were abandoned while a process
        /// worked for them, and the longest wait of one that had a response.
        fn run(&self, first: u64, milliseconds: u64) -> (u64, u64, u64) {
            let mut queue = Numbers::default();
            let mut waiting = HashMap::new();
            let mut served: Vec<Option<(u64, u64)>> = vec![None; self.processes as usize];
            let (mut responses, mut abandoned, mut longest) = (0, 0, 0);
            // When each client sends its next request.
            let mut arrivals: Vec<u64> = (0..self.clients)
                .map(|client| client * self.patience / self.clients)
                .collect();
            for now in 0..first + milliseconds {
                for _ in arrivals.extract_if(.., |arrival| *arrival <= now) {
                    let (ticket, receiver) = queue.enter(None, ());
                    waiting.insert(ticket, (now, receiver));
                }
                waiting.retain(|ticket, (since, _)| {
                    let stays = now - *since < self.patience;
                    if !stays {
                        queue.give_up(*ticket);
                        arrivals.push(now + 1);
                    }
                    stays
                });
                for process in &mut served {
                    if let Some((since, end)) = *process
                        && end <= now
                    {
                        let is_in_time = now - since < self.patience;
                        queue.record(if is_in_time { Responded } else { Abandoned });
                        if now >= first {
                            *if is_in_time {
                                &mut responses
                            } else {
                                &mut abandoned
                            } += 1;
                        }
                        if is_in_time {
                            longest = longest.max(now - since);
                        }
                        arrivals.push((since + self.patience).min(now + 1));
                        *process = None;
                    }
                    if process.is_none() && queue.hand(|()| true, 0).is_ok() {
                        let (ticket, since) = waiting
                            .iter_mut()
                            .find_map(|(ticket, (since, receiver))| {
                                receiver.try_recv().is_ok().then_some((*ticket, *since))
                            })
                            .unwrap();
                        waiting.remove(&ticket);
                        *process = Some((since, now + self.takes));
                    }
                }
            }
            (responses, abandoned, longest)
        }
    }

    /// The case for which the rule was made: 31 pages per second, and 500 clients who wait for two seconds.
    #[test]
    fn clients_who_give_up_get_as_many_responses_as_there_can_be() {
        for clients in [80, 100, 500] {
            let overload = Overload {
                clients,
                processes: 5,
                takes: 160,
                patience: 2000,
            };
            let (responses, abandoned, _) = overload.run(5000, 20_000);
            assert!(responses > 600, "{clients}: {responses}, {abandoned}");
        }
    }

    #[test]
    fn clients_who_wait_are_served_in_order() {
        let overload = Overload {
            clients: 500,
            processes: 5,
            takes: 160,
            patience: 60_000,
        };
        let (responses, abandoned, longest) = overload.run(60_000, 60_000);
        assert!(
            responses > 1800 && abandoned == 0,
            "{responses} {abandoned}"
        );
        // Each waits for all others.
        let fair = 500 * 160 / 5;
        assert!(longest.abs_diff(fair) < 500, "{longest}");
    }

    proptest! {
        #[test]
        fn serves_in_the_order_of_arrival(leaving in proptest::collection::vec(any::<bool>(), 1..40)) {
            let mut queue = Numbers::default();
            let mut waiting = enter(&mut queue, leaving.len());
            for ((ticket, _), leaves) in waiting.iter().zip(&leaving) {
                if *leaves {
                    queue.give_up(*ticket);
                }
            }
            let stays = leaving.iter().filter(|leaves| !**leaves).count();
            let served = serve(&mut queue, &mut waiting, stays);
            prop_assert!(served.is_sorted());
            prop_assert_eq!(queue.hand(|()| true, 7), Err(7));
        }

        #[test]
        fn each_request_is_served_once_in_any_order(
            steps in proptest::collection::vec((0..6_u8, 0..40_usize), 1..400),
        ) {
            let mut queue = Numbers::default();
            let mut waiting = Vec::new();
            let (mut entered, mut served, mut gone) = (0, 0, 0);
            for (step, index) in steps {
                match step {
                    0 | 1 => {
                        waiting.push(queue.enter(None, ()));
                        entered += 1;
                    }
                    2 => served += usize::from(queue.hand(|()| true, 0).is_ok()),
                    3 => queue.record(Abandoned),
                    4 => queue.record(Responded),
                    _ if !waiting.is_empty() => {
                        let (ticket, mut receiver) = waiting.swap_remove(index % waiting.len());
                        if receiver.try_recv().is_err() {
                            queue.give_up(ticket);
                            gone += 1;
                        } else {
                            served -= 1;
                            gone += 1;
                        }
                    }
                    _ => {}
                }
            }
            let received = waiting
                .iter_mut()
                .filter_map(|(_, receiver)| receiver.try_recv().ok())
                .count();
            prop_assert_eq!(received, served);
            prop_assert_eq!(entered, served + gone + queue.len());
        }
    }
}
