//! What requests that wait for a slot of a node accept.

use smallvec::SmallVec;

use crate::wait_queue::WaitQueue;

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
    /// Whether the request accepts this slot.
    pub(crate) fn accept(&self, offer: SlotOffer) -> bool {
        let is_accepted = match self.only {
            Some(only) => only == offer.node,
            None => !offer.draining && (self.backup || !offer.backup),
        };
        is_accepted && !self.tried.contains(&offer.node)
    }
}

/// The queue of one group, over all workers. `S` is a slot of a node.
pub(crate) type RequestQueue<S> = WaitQueue<S, NodeRequirements>;

#[cfg(test)]
mod tests {
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

    fn hand<S>(queue: &mut RequestQueue<S>, offer: SlotOffer, slot: S) -> Result<(), S> {
        queue.hand(|requirements| requirements.accept(offer), slot)
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
        assert_eq!(hand(&mut queue, offer(1, false), 'a'), Ok(()));
        assert_eq!(hand(&mut queue, offer(1, false), 'b'), Ok(()));
        assert_eq!(hand(&mut queue, offer(1, false), 'c'), Err('c'));
        assert_eq!((first.try_recv(), second.try_recv()), (Ok('a'), Ok('b')));
        assert_eq!(other.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(hand(&mut queue, offer(2, false), 'd'), Ok(()));
        assert_eq!(hand(&mut queue, offer(2, false), 'e'), Ok(()));
        assert_eq!((other.try_recv(), tried.try_recv()), (Ok('d'), Ok('e')));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn gives_backups_only_to_requests_that_accept_them() {
        let mut queue = RequestQueue::default();
        let (_, _waiting) = queue.enter(None, NodeRequirements::default());
        assert_eq!(hand(&mut queue, offer(1, true), ()), Err(()));
        let requirements = NodeRequirements {
            backup: true,
            ..NodeRequirements::default()
        };
        let (_, mut with_backup) = queue.enter(None, requirements);
        assert_eq!(hand(&mut queue, offer(1, true), ()), Ok(()));
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
        assert_eq!(hand(&mut queue, draining, 'a'), Ok(()));
        assert_eq!(hand(&mut queue, draining, 'b'), Err('b'));
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
        assert_eq!(hand(&mut queue, offer(1, false), ()), Ok(()));
        assert_eq!(third.try_recv(), Ok(()));
        queue.leave(left);
    }

    #[test]
    fn keeps_the_order_when_all_choose_again() {
        let mut queue = RequestQueue::default();
        let (first, mut receiver) = queue.enter(None, NodeRequirements::default());
        let (second, _) = queue.enter(None, NodeRequirements::default());
        queue.clear();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        let (_, _newcomer) = queue.enter(None, NodeRequirements::default());
        let (_, _second) = queue.enter(Some(second), NodeRequirements::default());
        let (_, mut receiver) = queue.enter(Some(first), NodeRequirements::default());
        assert_eq!(hand(&mut queue, offer(1, false), ()), Ok(()));
        assert_eq!(receiver.try_recv(), Ok(()));
    }
}
