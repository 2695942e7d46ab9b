//! The memory budget of a server for data that came over QUIC and nobody has read.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of which an endpoint tells the others at once, so that packets rarely touch what they share.
const STEP: u64 = 64 * 1024;

/// A budget of bytes for data that came over the connections of all endpoints and that nobody has read: data behind a gap,
/// bodies, and handshakes.
///
/// Flow control bounds what one connection holds, and not what many do. When the budget is used up, endpoints close those
/// connections that hold most, beginning with the address that holds most of all. An endpoint closes none while it holds
/// less than its equal share, so that a flood at one worker does not reach the clients of another.
#[derive(Debug)]
pub(crate) struct ReceiveMemory {
    limit: AtomicU64,
    used: AtomicU64,
    endpoints: AtomicU64,
}

/// What one endpoint uses of the budget.
pub(crate) struct EndpointMemory {
    budget: Arc<ReceiveMemory>,
    held: Cell<u64>,
    /// What the budget knows of.
    known: Cell<u64>,
}

impl Default for ReceiveMemory {
    /// A budget without a limit.
    fn default() -> Self {
        Self {
            limit: AtomicU64::new(u64::MAX),
            used: AtomicU64::new(0),
            endpoints: AtomicU64::new(0),
        }
    }
}

impl ReceiveMemory {
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn share(&self) -> u64 {
        self.limit() / self.endpoints.load(Ordering::Relaxed).max(1)
    }
}

impl EndpointMemory {
    pub(crate) fn new(budget: Arc<ReceiveMemory>) -> Self {
        budget.endpoints.fetch_add(1, Ordering::Relaxed);
        Self {
            budget,
            held: Cell::new(0),
            known: Cell::new(0),
        }
    }

    /// Notes that a connection holds `after` bytes in place of `before`.
    #[inline]
    pub(crate) fn change(&self, before: usize, after: usize) {
        if before == after {
            return;
        }
        let held = (self.held.get() + after as u64).saturating_sub(before as u64);
        self.held.set(held);
        if held.abs_diff(self.known.get()) >= STEP {
            self.publish(held);
        }
    }

    fn publish(&self, held: u64) {
        let known = self.known.replace(held);
        match held.checked_sub(known) {
            Some(more) => self.budget.used.fetch_add(more, Ordering::Relaxed),
            None => self.budget.used.fetch_sub(known - held, Ordering::Relaxed),
        };
    }

    /// How many bytes this endpoint has to give back: at least an eighth of the budget or of its share, so that it is
    /// rarely asked.
    pub(crate) fn excess(&self) -> u64 {
        let (limit, used, held) = (self.budget.limit(), self.budget.used(), self.held.get());
        // Of this endpoint, the budget may not know the last bytes.
        let used = (used + held).saturating_sub(self.known.get());
        let share = self.budget.share();
        if used <= limit || held <= share {
            return 0;
        }
        let over_share = (held - share).max(share / 8);
        over_share.min(used - limit / 8 * 7)
    }
}

impl Drop for EndpointMemory {
    fn drop(&mut self) {
        self.publish(0);
        self.budget.endpoints.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: u64) -> Arc<ReceiveMemory> {
        let budget = Arc::new(ReceiveMemory::default());
        budget.set_limit(limit);
        budget
    }

    #[test]
    fn one_endpoint_may_use_the_whole_budget_and_no_more() {
        let budget = budget(800_000);
        let endpoint = EndpointMemory::new(Arc::clone(&budget));
        for (held, excess) in [(0, 0), (799_999, 0), (800_000, 0), (800_001, 100_000)] {
            endpoint.change(endpoint.held.get() as usize, held);
            assert_eq!(endpoint.excess(), excess, "{held}");
        }
        endpoint.change(800_001, 1_000_000);
        assert_eq!(endpoint.excess(), 200_000);
        drop(endpoint);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_endpoint_below_its_share_gives_nothing_back() {
        let budget = budget(800_000);
        let [quiet, flooded] = [(); 2].map(|()| EndpointMemory::new(Arc::clone(&budget)));
        flooded.change(0, 800_000);
        assert_eq!((quiet.excess(), flooded.excess()), (0, 0));
        quiet.change(0, 400_000);
        assert_eq!((quiet.excess(), flooded.excess()), (0, 400_000));
        flooded.change(800_000, 400_000);
        assert_eq!((quiet.excess(), flooded.excess()), (0, 0));
        // Above its share, but the budget is not used up.
        flooded.change(400_000, 100_000);
        quiet.change(400_000, 700_000);
        assert_eq!(quiet.excess(), 0);
        quiet.change(700_000, 700_001);
        assert_eq!(quiet.excess(), 100_001);
    }

    #[test]
    fn small_changes_are_not_shared() {
        let budget = budget(u64::MAX);
        let endpoint = EndpointMemory::new(Arc::clone(&budget));
        endpoint.change(0, STEP as usize - 1);
        assert_eq!(budget.used(), 0);
        endpoint.change(STEP as usize - 1, STEP as usize);
        assert_eq!(budget.used(), STEP);
        endpoint.change(STEP as usize, 1);
        assert_eq!(budget.used(), STEP);
        endpoint.change(1, 0);
        assert_eq!(budget.used(), 0);
    }
}
