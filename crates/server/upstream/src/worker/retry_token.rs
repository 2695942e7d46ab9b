//! A token of the retry budget, which goes back unless an attempt is sent for it.

use std::rc::Rc;
use std::time::Instant;

use super::WorkerGroup;
use crate::counters::increment;

/// A token that a request took from the retry budget of its group. Dropping it gives it back: a retry that finds no other node,
/// or whose client leaves while it waits for one, adds no load.
pub(super) struct RetryToken(Option<Rc<WorkerGroup>>);

impl RetryToken {
    /// Takes a token; `None` if the budget has none.
    pub(super) fn take(group: &Rc<WorkerGroup>, now: Instant) -> Option<Self> {
        let granted = group.plan(|plan| group.group.take_retry_token(plan, now));
        if !granted {
            increment(&group.counters.budget_spent);
            return None;
        }
        Some(Self(Some(Rc::clone(group))))
    }

    /// An attempt is sent for it.
    pub(super) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for RetryToken {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            group.group.return_retry_token();
        }
    }
}
