//! A group as one worker uses it: its view of the nodes, its balancer, and its connections.
//!
//! From the lowest to the highest: `group_view` and `choose` know nodes, `request` what all attempts share and `outcome` what
//! becomes of them. An `attempt` is at one node; `acquire` begins one, `send_attempt` sends it, `attached` ends it with the
//! body of its response. `send` retries, and `exchange` is the request as a future.

mod acquire;
mod attached;
mod attempt;
mod choose;
mod exchange;
mod group_view;
mod outcome;
mod request;
mod request_body;
mod retry_token;
mod send;
mod send_attempt;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::balance::{Balancer, FastRng, NodeCandidate};
use crate::counters::{GroupCounters, increment};
use crate::group::UpstreamGroup;
use crate::plan::GroupPlan;

use apus_client::Timeouts;
pub use exchange::UpstreamExchange;
use group_view::GroupView;
pub use group_view::NodeLabel;
pub use outcome::{
    AttemptFailure, AttemptTimes, FailedAttempt, UpstreamError, UpstreamErrorKind, UpstreamResponse,
};
pub use request::RequestContext;

/// A group for the services of one worker. All services of a worker share one for each group.
pub struct WorkerGroup {
    group: Arc<UpstreamGroup>,
    counters: Arc<GroupCounters>,
    view: RefCell<Rc<GroupView>>,
    balancer: RefCell<Balancer>,
    /// The buffer for the candidates of a choice, which the next choice reuses.
    candidates: RefCell<Vec<NodeCandidate>>,
}

impl WorkerGroup {
    /// Returns the group of this thread.
    pub(crate) fn of(group: Arc<UpstreamGroup>) -> Rc<Self> {
        thread_local! {
            static GROUPS: RefCell<HashMap<usize, Weak<WorkerGroup>>> = RefCell::default();
        }
        // A `WorkerGroup` keeps its group alive, so no other group has the same address.
        let key = Arc::as_ptr(&group).addr();
        GROUPS.with_borrow_mut(|groups| {
            if let Some(known) = groups.get(&key).and_then(Weak::upgrade) {
                return known;
            }
            groups.retain(|_, group| group.strong_count() > 0);
            let new = Rc::new(Self::new(group));
            groups.insert(key, Rc::downgrade(&new));
            new
        })
    }

    fn new(group: Arc<UpstreamGroup>) -> Self {
        let view = GroupView::new(&group, None);
        let mut balancer = Balancer::new(FastRng::new());
        balancer.reset(&view.weights());
        Self {
            counters: group.counters.add_worker(),
            view: RefCell::new(Rc::new(view)),
            balancer: RefCell::new(balancer),
            candidates: RefCell::default(),
            group,
        }
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        self.group.name()
    }

    /// Reads the current plan, for example the name of the sticky cookie for a [`RequestContext`].
    pub fn plan<T>(&self, read: impl FnOnce(&GroupPlan) -> T) -> T {
        read(&self.view().set.plan)
    }

    /// Returns the time-outs of the current plan, for requests that have none of their own.
    pub fn timeouts(&self) -> Rc<Timeouts> {
        Rc::clone(&self.view().timeouts)
    }

    /// Counts a mirrored request that was not sent or was aborted because of the limits of the mirror.
    pub fn count_dropped_copy(&self) {
        increment(&self.counters.copies_dropped);
    }

    /// Returns the current view of the nodes.
    fn view(&self) -> Rc<GroupView> {
        let known = Rc::clone(&self.view.borrow());
        // One number is read for a request: the lock of the group is taken only when the nodes have changed.
        if known.generation == self.group.generation() {
            return known;
        }
        let new = Rc::new(GroupView::new(&self.group, Some(&known)));
        self.balancer.borrow_mut().reset(&new.weights());
        self.view.replace(Rc::clone(&new));
        new
    }
}

impl fmt::Debug for WorkerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerGroup")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
