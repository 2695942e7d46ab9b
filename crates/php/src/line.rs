//! The line of requests that wait for a worker: first come, first served, on whichever thread one
//! becomes free.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// The place of a request in the line.
pub(crate) type Ticket = u64;

/// The line. `T` is what a request waits for.
#[derive(Debug)]
pub(crate) struct Line<T> {
    waiting: VecDeque<(Ticket, oneshot::Sender<T>)>,
    next: Ticket,
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

    pub(crate) fn enter(&mut self) -> (Ticket, oneshot::Receiver<T>) {
        self.next += 1;
        let (turn, receiver) = oneshot::channel();
        self.waiting.push_back((self.next, turn));
        (self.next, receiver)
    }

    /// Takes a request out that waits no longer.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if let Ok(place) = self
            .waiting
            .binary_search_by_key(&ticket, |(ticket, _)| *ticket)
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
        while let Some((_, turn)) = self.waiting.pop_front() {
            match turn.send(item) {
                Ok(()) => return Ok(()),
                Err(back) => item = back,
            }
        }
        Err(item)
    }

    /// Gives each what `item` makes.
    pub(crate) fn dismiss(&mut self, mut item: impl FnMut() -> T) {
        for (_, turn) in self.waiting.drain(..) {
            let _ = turn.send(item());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_in_the_order_of_arrival_and_passes_over_who_went() {
        let mut line = Line::default();
        let (left, _one) = line.enter();
        let (_, dropped) = line.enter();
        let (_, mut third) = line.enter();
        let (_, mut fourth) = line.enter();
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
        let (_, mut one) = line.enter();
        let (_, mut two) = line.enter();
        line.dismiss(|| 'x');
        assert_eq!((one.try_recv(), two.try_recv()), (Ok('x'), Ok('x')));
        assert_eq!(line.len(), 0);
    }
}
