//! All groups of origins by name, which stay across reloads.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use crate::group::UpstreamGroup;
use crate::plan::{AdminState, GroupPlan};
use crate::status::GroupStatus;
use crate::worker::WorkerGroup;

/// All groups of origins. It is cheap to clone; all clones share the same groups.
///
/// [`Self::apply`] applies a new configuration; nodes that stay keep their state. Each worker gets its
/// [`WorkerGroup`]s by [`Self::group`]. One other thread runs [`Self::run_checks`] and [`Self::run_dns`].
#[derive(Clone, Debug)]
pub struct Upstreams(Arc<UpstreamsState>);

#[derive(Debug)]
struct UpstreamsState {
    groups: Mutex<HashMap<Arc<str>, Arc<UpstreamGroup>>>,
    /// The number of changes of groups or nodes.
    changes: watch::Sender<u64>,
}

impl Default for Upstreams {
    fn default() -> Self {
        Self::new()
    }
}

impl Upstreams {
    /// Creates a set without groups.
    pub fn new() -> Self {
        Self(Arc::new(UpstreamsState {
            groups: Mutex::default(),
            changes: watch::Sender::new(0),
        }))
    }

    /// Replaces all groups. Services that have a group which is gone may still use it.
    pub fn apply(&self, plans: Vec<GroupPlan>) {
        let now = Instant::now();
        let mut groups = self.lock();
        let mut before = std::mem::take(&mut *groups);
        for plan in plans {
            let group = match before.remove(&plan.name) {
                Some(group) => {
                    group.apply(plan, now);
                    group
                }
                None => Arc::new(UpstreamGroup::new(plan, now)),
            };
            groups.insert(Arc::clone(group.name()), group);
        }
        // Whoever is notified reads the groups, under this lock.
        drop(groups);
        self.notify_changed();
    }

    /// Returns the group for the calling worker, which gets the same one as long as it has it.
    pub fn group(&self, name: &str) -> Option<Rc<WorkerGroup>> {
        let group = self.lock().get(name).cloned()?;
        Some(WorkerGroup::of(group))
    }

    /// Overrides the admin state of a node's plan until the next call. It applies to all addresses of the node.
    ///
    /// # Errors
    /// There is no such group, or no such node.
    pub fn set_node(&self, group: &str, node: &str, admin: AdminState) -> Result<(), UnknownNode> {
        let unknown = || UnknownNode {
            group: group.into(),
            node: node.into(),
        };
        let group = self.lock().get(group).cloned().ok_or_else(unknown)?;
        if !group.set_admin(node, admin, Instant::now()) {
            return Err(unknown());
        }
        self.notify_changed();
        Ok(())
    }

    /// Returns the status of all groups, in the order of their names.
    pub fn status(&self) -> Vec<GroupStatus> {
        let now = Instant::now();
        let mut status: Vec<GroupStatus> = self
            .groups()
            .iter()
            .map(|group| group.status(now))
            .collect();
        status.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        status
    }

    pub(crate) fn groups(&self) -> Vec<Arc<UpstreamGroup>> {
        self.lock().values().cloned().collect()
    }

    /// Notifies the subscribers of [`Self::changes`].
    pub(crate) fn notify_changed(&self) {
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    /// Subscribes to changes of groups and nodes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<UpstreamGroup>>> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no such node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNode {
    /// The name of the group.
    pub group: Box<str>,
    /// The name of the node.
    pub node: Box<str>,
}

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no group `{}` has a node `{}`", self.group, self.node)
    }
}

impl std::error::Error for UnknownNode {}
