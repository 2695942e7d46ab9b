//! The queue of requests that wait for a slot of a node, first in, first out over all workers.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tokio::sync::oneshot;

/// A number of a node that is unique in the process.
pub(crate) type NodeId = u64;

/// The nodes that a request was sent to already.
pub(crate) type TriedNodes = SmallVec<[NodeId; 4]>;

/// The nodes that a request in the queue accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeRequirements {
    /// The only node, if a sticky cookie names it.
    pub(crate) only: Option<NodeId>,
    /// The nodes that the request was sent to already.
    pub(crate) tried: TriedNodes,
    /// Whether it accepts backups, because no other node is available.
    pub(crate) backup: bool,
}

/// A free slot of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotOffer {
    pub(crate) node: NodeId,
    pub(crate) backup: bool,
    /// Whether the node accepts only requests whose sticky cookie names it.
    pub(crate) draining: bool,
}

impl NodeRequirements {
    fn accept(&self, offer: SlotOffer) -> bool {
        let is_accepted = match self.only {
            Some(only) => only == offer.node,
            None => !offer.draining && (self.backup || !offer.backup),
        };
        is_accepted && !self.tried.contains(&offer.node)
    }
}

/// The queue of one group. `S` is a slot of a node.
#[derive(Debug)]
pub(crate) struct RequestQueue<S> {
    entries: VecDeque<QueueEntry<S>>,
    next: Ticket,
}

/// The position of a request in the order of arrival, which it keeps when it enters the queue again.
pub(crate) type Ticket = u64;

#[derive(Debug)]
struct QueueEntry<S> {
    ticket: Ticket,
    requirements: NodeRequirements,
    sender: oneshot::Sender<S>,
}

impl<S> Default for RequestQueue<S> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            next: 0,
        }
    }
}

impl<S> RequestQueue<S> {
    /// Returns the number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a request, at its old position if it has a ticket. The channel receives its slot, or an error
    /// when the request has to choose again.
    pub(crate) fn enter(
        &mut self,
        ticket: Option<Ticket>,
        requirements: NodeRequirements,
    ) -> (Ticket, oneshot::Receiver<S>) {
        let ticket = ticket.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        let (sender, receiver) = oneshot::channel();
        let index = self.entries.partition_point(|other| other.ticket < ticket);
        let entry = QueueEntry {
            ticket,
            requirements,
            sender,
        };
        self.entries.insert(index, entry);
        (ticket, receiver)
    }

    /// Removes a request, if it is in the queue.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if let Ok(index) = self
            .entries
            .binary_search_by_key(&ticket, |entry| entry.ticket)
        {
            self.entries.remove(index);
        }
    }

    /// Gives a slot to the first request that accepts it.
    ///
    /// # Errors
    /// No request does; the slot is returned.
    pub(crate) fn hand(&mut self, offer: SlotOffer, slot: S) -> Result<(), S> {
        let mut slot = slot;
        while let Some(first) = self
            .entries
            .iter()
            .position(|entry| entry.requirements.accept(offer))
        {
            let Some(entry) = self.entries.remove(first) else {
                break;
            };
            match entry.sender.send(slot) {
                Ok(()) => return Ok(()),
                Err(back) => slot = back,
            }
        }
        Err(slot)
    }

    /// Makes every request choose again, after the nodes changed.
    pub(crate) fn wake_all(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn offer(node: NodeId, backup: bool) -> SlotOffer {
        SlotOffer {
            node,
            backup,
            draining: false,
        }
    }

    fn only(node: NodeId) -> NodeRequirements {
        NodeRequirements {
            only: Some(node),
            ..NodeRequirements::default()
        }
    }

    #[test]
    fn gives_a_slot_to_the_first_request_that_accepts_the_node() {
        let mut queue = RequestQueue::default();
        let (_, mut other) = queue.enter(None, only(2));
        let tried = NodeRequirements {
            tried: [1].into_iter().collect(),
            ..NodeRequirements::default()
        };
        let (_, mut tried) = queue.enter(None, tried);
        let (_, mut first) = queue.enter(None, NodeRequirements::default());
        let (_, mut second) = queue.enter(None, NodeRequirements::default());
        assert_eq!(queue.hand(offer(1, false), 'a'), Ok(()));
        assert_eq!(queue.hand(offer(1, false), 'b'), Ok(()));
        assert_eq!(queue.hand(offer(1, false), 'c'), Err('c'));
        assert_eq!((first.try_recv(), second.try_recv()), (Ok('a'), Ok('b')));
        assert_eq!(other.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(queue.hand(offer(2, false), 'd'), Ok(()));
        assert_eq!(queue.hand(offer(2, false), 'e'), Ok(()));
        assert_eq!((other.try_recv(), tried.try_recv()), (Ok('d'), Ok('e')));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn gives_backups_only_to_requests_that_accept_them() {
        let mut queue = RequestQueue::default();
        let (_, _waiting) = queue.enter(None, NodeRequirements::default());
        assert_eq!(queue.hand(offer(1, true), ()), Err(()));
        let requirements = NodeRequirements {
            backup: true,
            ..NodeRequirements::default()
        };
        let (_, mut with_backup) = queue.enter(None, requirements);
        assert_eq!(queue.hand(offer(1, true), ()), Ok(()));
        assert_eq!(with_backup.try_recv(), Ok(()));
    }

    #[test]
    fn gives_a_draining_node_only_requests_with_its_cookie() {
        let mut queue = RequestQueue::default();
        let (_, _waiting) = queue.enter(None, NodeRequirements::default());
        let (_, mut kept) = queue.enter(None, only(1));
        let draining = SlotOffer {
            draining: true,
            ..offer(1, true)
        };
        assert_eq!(queue.hand(draining, 'a'), Ok(()));
        assert_eq!(queue.hand(draining, 'b'), Err('b'));
        assert_eq!(kept.try_recv(), Ok('a'));
    }

    #[test]
    fn skips_requests_that_left() {
        let mut queue = RequestQueue::default();
        let (left, _first) = queue.enter(None, NodeRequirements::default());
        let (_, dropped) = queue.enter(None, NodeRequirements::default());
        let (_, mut third) = queue.enter(None, NodeRequirements::default());
        queue.leave(left);
        drop(dropped);
        assert_eq!(queue.hand(offer(1, false), ()), Ok(()));
        assert_eq!(third.try_recv(), Ok(()));
        queue.leave(left);
    }

    #[test]
    fn keeps_the_order_when_all_choose_again() {
        let mut queue = RequestQueue::default();
        let (first, mut receiver) = queue.enter(None, NodeRequirements::default());
        let (second, _) = queue.enter(None, NodeRequirements::default());
        queue.wake_all();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        let (_, _newcomer) = queue.enter(None, NodeRequirements::default());
        let (_, _second) = queue.enter(Some(second), NodeRequirements::default());
        let (_, mut receiver) = queue.enter(Some(first), NodeRequirements::default());
        assert_eq!(queue.hand(offer(1, false), ()), Ok(()));
        assert_eq!(receiver.try_recv(), Ok(()));
    }

    proptest! {
        #[test]
        fn serves_in_the_order_of_arrival(leaving in proptest::collection::vec(any::<bool>(), 1..40)) {
            let mut queue = RequestQueue::default();
            let mut receivers = Vec::new();
            for _ in &leaving {
                receivers.push(queue.enter(None, NodeRequirements::default()));
            }
            for ((ticket, _), leaves) in receivers.iter().zip(&leaving) {
                if *leaves {
                    queue.leave(*ticket);
                }
            }
            let mut slot = 0;
            while queue.hand(offer(1, false), slot).is_ok() {
                slot += 1;
            }
            let served: Vec<i32> = receivers
                .iter_mut()
                .filter_map(|(_, receiver)| receiver.try_recv().ok())
                .collect();
            prop_assert_eq!(served, (0..slot).collect::<Vec<_>>());
            prop_assert_eq!(slot as usize, leaving.iter().filter(|leaves| !**leaves).count());
        }
    }
}
