//! All groups, by name: what outlives a configuration.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use crate::group::Group;
use crate::plan::{Admin, GroupPlan};
use crate::status::GroupStatus;
use crate::worker::WorkerGroup;

/// All groups of origins. Cheap to clone; all clones are of the same groups.
///
/// A new configuration is put in force with [`Self::apply`]; nodes that stay keep what is known of
/// them. Each worker asks for its [`WorkerGroup`]s. One thread runs [`Self::run_checks`] and
/// [`Self::run_dns`] beside them.
#[derive(Clone, Debug)]
pub struct Upstreams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    groups: Mutex<HashMap<Arc<str>, Arc<Group>>>,
    /// How often groups or nodes changed.
    changes: watch::Sender<u64>,
}

impl Default for Upstreams {
    fn default() -> Self {
        Self::new()
    }
}

impl Upstreams {
    /// No groups.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            groups: Mutex::default(),
            changes: watch::Sender::new(0),
        }))
    }

    /// Puts groups in force, in place of all that there were. Services that have a group which is gone
    /// may use it until they are gone, too.
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
                None => Arc::new(Group::new(plan, now)),
            };
            groups.insert(Arc::clone(group.name()), group);
        }
        drop(groups);
        self.changed();
    }

    /// The group for the worker that calls, which always gets the same one as long as it has it.
    pub fn group(&self, name: &str) -> Option<Rc<WorkerGroup>> {
        let group = self.lock().get(name).cloned()?;
        Some(WorkerGroup::of(group))
    }

    /// Has a node asked, drained, or not asked, whatever its plan says, until it is told something
    /// else. A node with several addresses is meant with all of them.
    ///
    /// # Errors
    /// There is no such group, or no such node.
    pub fn set_node(&self, group: &str, node: &str, admin: Admin) -> Result<(), UnknownNode> {
        let unknown = || UnknownNode {
            group: group.into(),
            node: node.into(),
        };
        let group = self.lock().get(group).cloned().ok_or_else(unknown)?;
        if !group.set_admin(node, admin, Instant::now()) {
            return Err(unknown());
        }
        self.changed();
        Ok(())
    }

    /// What all groups are doing, by name.
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

    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.lock().values().cloned().collect()
    }

    /// Tells those who wait for it that groups or nodes changed.
    pub(crate) fn changed(&self) {
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    /// Tells when groups or nodes change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Group>>> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no such node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNode {
    /// The group that was asked for.
    pub group: Box<str>,
    /// The node that was asked for.
    pub node: Box<str>,
}

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no group `{}` has a node `{}`", self.group, self.node)
    }
}

impl std::error::Error for UnknownNode {}
