//! The queue of requests that wait for a node with free capacity.
//!
//! It is first in, first out, on whichever worker a node becomes free.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tokio::sync::oneshot;

/// A number that no other node of this process has.
pub(crate) type NodeId = u64;

/// The nodes that a request was sent to.
pub(crate) type Tried = SmallVec<[NodeId; 4]>;

/// Which nodes a request takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// The node that a cookie keeps it with.
    pub(crate) only: Option<NodeId>,
    /// The nodes that it was sent to already.
    pub(crate) tried: Tried,
    /// Whether it takes backups: none of the others can be asked.
    pub(crate) backup: bool,
}

/// A node that has a free place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) node: NodeId,
    pub(crate) backup: bool,
    /// Whether it takes only those that a cookie keeps with it.
    pub(crate) draining: bool,
}

impl Wants {
    fn takes(&self, offer: Offer) -> bool {
        let is_theirs = match self.only {
            Some(only) => only == offer.node,
            None => !offer.draining && (self.backup || !offer.backup),
        };
        is_theirs && !self.tried.contains(&offer.node)
    }
}

/// The line of one group. `P` is a place at a node.
#[derive(Debug)]
pub(crate) struct Line<P> {
    waiting: VecDeque<Waiting<P>>,
    next: Ticket,
}

/// The turn of a request. It keeps it when it has to wait again.
pub(crate) type Ticket = u64;

#[derive(Debug)]
struct Waiting<P> {
    ticket: Ticket,
    wants: Wants,
    turn: oneshot::Sender<P>,
}

impl<P> Default for Line<P> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            next: 0,
        }
    }
}

impl<P> Line<P> {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Puts a request in the line, at its old place if it had one. The place at a node comes over the
    /// channel; an error there means that the request is to choose anew.
    pub(crate) fn enter(
        &mut self,
        ticket: Option<Ticket>,
        wants: Wants,
    ) -> (Ticket, oneshot::Receiver<P>) {
        let ticket = ticket.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        let (turn, receiver) = oneshot::channel();
        let place = self.waiting.partition_point(|other| other.ticket < ticket);
        let waiting = Waiting {
            ticket,
            wants,
            turn,
        };
        self.waiting.insert(place, waiting);
        (ticket, receiver)
    }

    /// Takes a request out of the line, if it is in it.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if let Ok(place) = self
            .waiting
            .binary_search_by_key(&ticket, |waiting| waiting.ticket)
        {
            self.waiting.remove(place);
        }
    }

    /// Gives a place at a node to the first request that takes it.
    ///
    /// # Errors
    /// None does; the place is given back.
    pub(crate) fn hand(&mut self, offer: Offer, place: P) -> Result<(), P> {
        let mut place = place;
        while let Some(first) = self
            .waiting
            .iter()
            .position(|waiting| waiting.wants.takes(offer))
        {
            let Some(waiting) = self.waiting.remove(first) else {
                break;
            };
            match waiting.turn.send(place) {
                Ok(()) => return Ok(()),
                Err(back) => place = back,
            }
        }
        Err(place)
    }

    /// Has every request choose anew, because nodes went.
    pub(crate) fn reconsider(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn offer(node: NodeId, backup: bool) -> Offer {
        Offer {
            node,
            backup,
            draining: false,
        }
    }

    fn only(node: NodeId) -> Wants {
        Wants {
            only: Some(node),
            ..Wants::default()
        }
    }

    #[test]
    fn serves_the_first_that_takes_the_node() {
        let mut line = Line::default();
        let (_, mut other) = line.enter(None, only(2));
        let tried = Wants {
            tried: [1].into_iter().collect(),
            ..Wants::default()
        };
        let (_, mut tried) = line.enter(None, tried);
        let (_, mut first) = line.enter(None, Wants::default());
        let (_, mut second) = line.enter(None, Wants::default());
        assert_eq!(line.hand(offer(1, false), 'a'), Ok(()));
        assert_eq!(line.hand(offer(1, false), 'b'), Ok(()));
        assert_eq!(line.hand(offer(1, false), 'c'), Err('c'));
        assert_eq!((first.try_recv(), second.try_recv()), (Ok('a'), Ok('b')));
        assert_eq!(other.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(line.hand(offer(2, false), 'd'), Ok(()));
        assert_eq!(line.hand(offer(2, false), 'e'), Ok(()));
        assert_eq!((other.try_recv(), tried.try_recv()), (Ok('d'), Ok('e')));
        assert_eq!(line.len(), 0);
    }

    #[test]
    fn keeps_backups_for_those_who_need_them() {
        let mut line = Line::default();
        let (_, _waiting) = line.enter(None, Wants::default());
        assert_eq!(line.hand(offer(1, true), ()), Err(()));
        let wants = Wants {
            backup: true,
            ..Wants::default()
        };
        let (_, mut needy) = line.enter(None, wants);
        assert_eq!(line.hand(offer(1, true), ()), Ok(()));
        assert_eq!(needy.try_recv(), Ok(()));
    }

    #[test]
    fn lets_a_draining_node_serve_those_that_are_kept_with_it() {
        let mut line = Line::default();
        let (_, _waiting) = line.enter(None, Wants::default());
        let (_, mut kept) = line.enter(None, only(1));
        let draining = Offer {
            draining: true,
            ..offer(1, true)
        };
        assert_eq!(line.hand(draining, 'a'), Ok(()));
        assert_eq!(line.hand(draining, 'b'), Err('b'));
        assert_eq!(kept.try_recv(), Ok('a'));
    }

    #[test]
    fn passes_over_those_that_went() {
        let mut line = Line::default();
        let (left, _first) = line.enter(None, Wants::default());
        let (_, dropped) = line.enter(None, Wants::default());
        let (_, mut third) = line.enter(None, Wants::default());
        line.leave(left);
        drop(dropped);
        assert_eq!(line.hand(offer(1, false), ()), Ok(()));
        assert_eq!(third.try_recv(), Ok(()));
        line.leave(left);
    }

    #[test]
    fn keeps_the_order_when_all_choose_anew() {
        let mut line = Line::default();
        let (first, mut receiver) = line.enter(None, Wants::default());
        let (second, _) = line.enter(None, Wants::default());
        line.reconsider();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        let (_, _newcomer) = line.enter(None, Wants::default());
        let (_, _second) = line.enter(Some(second), Wants::default());
        let (_, mut receiver) = line.enter(Some(first), Wants::default());
        assert_eq!(line.hand(offer(1, false), ()), Ok(()));
        assert_eq!(receiver.try_recv(), Ok(()));
    }

    proptest! {
        #[test]
        fn serves_in_the_order_of_arrival(leaving in proptest::collection::vec(any::<bool>(), 1..40)) {
            let mut line = Line::default();
            let mut receivers = Vec::new();
            for _ in &leaving {
                receivers.push(line.enter(None, Wants::default()));
            }
            for ((ticket, _), leaves) in receivers.iter().zip(&leaving) {
                if *leaves {
                    line.leave(*ticket);
                }
            }
            let mut place = 0;
            while line.hand(offer(1, false), place).is_ok() {
                place += 1;
            }
            let served: Vec<i32> = receivers
                .iter_mut()
                .filter_map(|(_, receiver)| receiver.try_recv().ok())
                .collect();
            prop_assert_eq!(served, (0..place).collect::<Vec<_>>());
            prop_assert_eq!(place as usize, leaving.iter().filter(|leaves| !**leaves).count());
        }
    }
}
