//! Active health checks: nodes are asked in turns of their own, whether requests come or not.

mod ask;
mod grpc;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::Upstreams;
use crate::balance::Chance;
use crate::group::Group;
use crate::health::jittered;
use crate::node::{CheckResult, Node};
use crate::plan::CheckPlan;
use crate::queue::NodeId;

impl Upstreams {
    /// Checks the nodes whose plans say so, for as long as it is polled. One thread does it for all
    /// workers; it needs a tokio runtime with I/O and time.
    pub async fn run_checks(&self) {
        LocalSet::new().run_until(self.keep_checking()).await;
    }

    async fn keep_checking(&self) {
        let mut changes = self.changes();
        let mut checking: HashSet<NodeId> = HashSet::new();
        let mut tasks = JoinSet::new();
        loop {
            for group in self.groups() {
                let set = group.set();
                for node in set.nodes.iter().filter(|node| node.plan.active.is_some()) {
                    let id = node.state.id();
                    if checking.insert(id) {
                        let group = Arc::downgrade(&group);
                        tasks.spawn_local(async move {
                            check(&group, id).await;
                            id
                        });
                    }
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                Some(ended) = tasks.join_next() => {
                    if let Ok(id) = ended {
                        checking.remove(&id);
                    }
                }
            }
        }
    }
}

/// Checks a node until it is gone, or is not to be checked.
async fn check(group: &Weak<Group>, id: NodeId) {
    let chance = Chance::new();
    let mut is_first = true;
    loop {
        let Some((_, node, plan)) = current(group, id) else {
            return;
        };
        let pause = jittered(plan.interval, plan.jitter, chance.fraction());
        // The first check comes soon, and yet not all of them at once.
        let wait = match std::mem::take(&mut is_first) {
            true => jittered(plan.interval, plan.jitter, 0.5).abs_diff(pause),
            false => pause,
        };
        drop(node);
        sleep(wait).await;
        let Some((strong, node, plan)) = current(group, id) else {
            return;
        };
        let fault = match timeout(plan.timeout, ask::ask(&node, &plan)).await {
            Ok(Ok(())) => None,
            Ok(Err(fault)) => Some(fault),
            Err(_) => Some("no answer in time".into()),
        };
        let at = Instant::now();
        conclude(&strong, &node, &plan, CheckResult { at, fault });
    }
}

/// The node as it is now.
fn current(group: &Weak<Group>, id: NodeId) -> Option<(Arc<Group>, Arc<Node>, CheckPlan)> {
    let group = group.upgrade()?;
    let set = group.set();
    let node = set.nodes.iter().find(|node| node.state.id() == id)?;
    let plan = node.plan.active.clone()?;
    let node = Arc::clone(node);
    Some((group, node, plan))
}

fn conclude(group: &Arc<Group>, node: &Arc<Node>, plan: &CheckPlan, result: CheckResult) {
    let fault = result.fault.clone();
    if group.node_checked(node, plan, result) {
        let (name, address) = (&node.name, &node.origin.address);
        match fault {
            Some(fault) => {
                tracing::warn!(group = %group.name(), node = %name, %address, %fault, "checks fail");
            }
            None => {
                tracing::info!(group = %group.name(), node = %name, %address, "checks are good")
            }
        }
    }
}
