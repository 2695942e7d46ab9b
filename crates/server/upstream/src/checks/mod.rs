//! Active health checks, which run at intervals whether there are requests or not.

mod check;
mod grpc;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::Upstreams;
use crate::balance::FastRng;
use crate::group::UpstreamGroup;
use crate::health::jittered;
use crate::node::{HealthCheckResult, Node};
use crate::plan::CheckPlan;
use crate::queue::NodeId;

impl Upstreams {
    /// Checks the nodes whose plans say so, for as long as it is polled. One thread runs it for all workers,
    /// on a tokio runtime with I/O and time.
    pub async fn run_checks(&self) {
        LocalSet::new().run_until(self.check_all()).await;
    }

    async fn check_all(&self) {
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
                            check_node(&group, id).await;
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

/// Checks a node at intervals until it is gone or its plan has no checks.
async fn check_node(group: &Weak<UpstreamGroup>, id: NodeId) {
    let rng = FastRng::new();
    let mut is_first = true;
    loop {
        let Some((_, node, plan)) = current(group, id) else {
            return;
        };
        let pause = jittered(plan.interval, plan.jitter, rng.fraction());
        // The first check comes soon, but not at the same time for all nodes.
        let wait = if std::mem::take(&mut is_first) {
            jittered(plan.interval, plan.jitter, 0.5).abs_diff(pause)
        } else {
            pause
        };
        // A node that a reload removes must not stay for the time of the pause.
        drop(node);
        sleep(wait).await;
        // Looked up again: the plan may have changed, or the node be gone, during the pause.
        let Some((strong, node, plan)) = current(group, id) else {
            return;
        };
        // The time-outs of the connection limit each step: together, connect, handshake and response could take
        // several times as long.
        let fault = match timeout(plan.timeout, check::check(&node, &plan)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some("no response in time".into()),
        };
        let at = Instant::now();
        record(&strong, &node, &plan, HealthCheckResult { at, fault });
    }
}

/// Returns the node with its current plan, if it is to be checked.
fn current(
    group: &Weak<UpstreamGroup>,
    id: NodeId,
) -> Option<(Arc<UpstreamGroup>, Arc<Node>, CheckPlan)> {
    let group = group.upgrade()?;
    let set = group.set();
    let node = set.nodes.iter().find(|node| node.state.id() == id)?;
    let plan = node.plan.active.clone()?;
    let node = Arc::clone(node);
    Some((group, node, plan))
}

fn record(
    group: &Arc<UpstreamGroup>,
    node: &Arc<Node>,
    plan: &CheckPlan,
    result: HealthCheckResult,
) {
    let fault = result.fault.clone();
    if group.record_check(node, plan, result) {
        let (name, address) = (&node.name, &node.origin.address);
        match fault {
            Some(fault) => {
                tracing::warn!(group = %group.name(), node = %name, %address, %fault, "health checks fail");
            }
            None => {
                tracing::info!(group = %group.name(), node = %name, %address, "health checks succeed")
            }
        }
    }
}
