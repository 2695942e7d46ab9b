//! A group as one worker sees it: a view of its nodes, whose turn it is, and connections.

mod choose;
mod content;
mod flight;
mod fly;
mod send;
mod tunnel;
mod view;
mod wait;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use apus_net::client::Timeouts;

use crate::balance::{Balancer, Candidate, Chance};
use crate::counts::{GroupCounts, count};
use crate::group::Group;
use crate::plan::GroupPlan;

pub use send::{Attempt, AttemptOutcome, Context, Delivered, Failed, FailedKind};
pub use view::NodeLabel;
use view::View;

/// A group for the services of one worker. All that ask for the same group share one.
pub struct WorkerGroup {
    group: Arc<Group>,
    counts: Arc<GroupCounts>,
    view: RefCell<Rc<View>>,
    balancer: RefCell<Balancer>,
    /// Room for the candidates of a choice, kept for the next.
    candidates: RefCell<Vec<Candidate>>,
}

impl WorkerGroup {
    /// The group on this thread.
    pub(crate) fn of(group: Arc<Group>) -> Rc<Self> {
        thread_local! {
            static OPEN: RefCell<HashMap<usize, Weak<WorkerGroup>>> = RefCell::default();
        }
        // A group that has a worker's group does not go, and so its place in memory is its own.
        let key = Arc::as_ptr(&group).addr();
        OPEN.with_borrow_mut(|open| {
            if let Some(known) = open.get(&key).and_then(Weak::upgrade) {
                return known;
            }
            open.retain(|_, group| group.strong_count() > 0);
            let new = Rc::new(Self::new(group));
            open.insert(key, Rc::downgrade(&new));
            new
        })
    }

    fn new(group: Arc<Group>) -> Self {
        let view = View::new(&group, None);
        let mut balancer = Balancer::new(Chance::new());
        balancer.reset(&view.weights());
        Self {
            counts: group.counts.enter(),
            view: RefCell::new(Rc::new(view)),
            balancer: RefCell::new(balancer),
            candidates: RefCell::default(),
            group,
        }
    }

    /// The name of the group.
    pub fn name(&self) -> &str {
        self.group.name()
    }

    /// Reads the plan in force, as for the cookie and the key that a [`Context`] is to hold.
    pub fn plan<T>(&self, read: impl FnOnce(&GroupPlan) -> T) -> T {
        read(&self.view().set.plan)
    }

    /// The time-outs of the plan in force, for requests that have none of their own.
    pub fn timeouts(&self) -> Rc<Timeouts> {
        Rc::clone(&self.view().timeouts)
    }

    /// Counts a copy of a request to another group that was left out or broken off, so as not to cost
    /// too much.
    pub fn count_dropped_copy(&self) {
        count(&self.counts.copies_dropped);
    }

    /// The nodes now.
    fn view(&self) -> Rc<View> {
        let known = Rc::clone(&self.view.borrow());
        if known.generation == self.group.generation() {
            return known;
        }
        let new = Rc::new(View::new(&self.group, Some(&known)));
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
