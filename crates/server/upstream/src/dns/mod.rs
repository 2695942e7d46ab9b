//! The resolution of nodes' names, which is repeated when the TTL of a name is over.

mod lookup;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep_until;

use crate::Upstreams;
use crate::group::UpstreamGroup;
use crate::plan::{DnsPlan, NodeTarget};

/// The pause after the first failed lookup; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// A node's name that is kept resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NodeName {
    /// The address of the group in memory, which is unique as long as the name is resolved.
    group: usize,
    node: Arc<str>,
    target: NodeTarget,
}

impl Upstreams {
    /// Looks up the names of nodes that have no addresses yet, once. A server may wait for it before it
    /// accepts requests.
    pub async fn resolve(&self) {
        let local = LocalSet::new();
        let mut tasks = JoinSet::new();
        for (name, group) in self.names() {
            if group.resolved_until(&name.node).is_none() {
                let lookup = async move { resolve(&Arc::downgrade(&group), &name, 0).await };
                tasks.spawn_local_on(lookup, &local);
            }
        }
        local
            .run_until(async { while tasks.join_next().await.is_some() {} })
            .await;
    }

    /// Keeps the addresses of names up to date, for as long as it is polled. One thread runs it for all
    /// workers, on a tokio runtime with I/O and time. If a lookup fails, the addresses stay as they are.
    pub async fn run_dns(&self) {
        LocalSet::new().run_until(self.keep_resolving()).await;
    }

    async fn keep_resolving(&self) {
        let mut changes = self.changes();
        let mut known: HashSet<NodeName> = HashSet::new();
        let mut tasks = JoinSet::new();
        loop {
            for (name, group) in self.names() {
                if known.insert(name.clone()) {
                    let group = Arc::downgrade(&group);
                    let upstreams = self.clone();
                    tasks.spawn_local(async move {
                        keep_resolved(&upstreams, &group, &name).await;
                        name
                    });
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                Some(ended) = tasks.join_next() => {
                    if let Ok(name) = ended {
                        known.remove(&name);
                    }
                }
            }
        }
    }

    fn names(&self) -> Vec<(NodeName, Arc<UpstreamGroup>)> {
        let mut names = Vec::new();
        for group in self.groups() {
            for node in &group.set().plan.nodes {
                if !matches!(node.target, NodeTarget::Address(_)) {
                    let name = NodeName {
                        group: Arc::as_ptr(&group).addr(),
                        node: Arc::clone(&node.name),
                        target: node.target.clone(),
                    };
                    names.push((name, Arc::clone(&group)));
                }
            }
        }
        names
    }
}

/// Looks up a name whenever its TTL is over, until its node is gone.
async fn keep_resolved(upstreams: &Upstreams, group: &Weak<UpstreamGroup>, name: &NodeName) {
    let mut failures = 0;
    let known = group.upgrade();
    let mut next = known
        .and_then(|group| group.resolved_until(&name.node))
        .unwrap_or_else(Instant::now);
    loop {
        sleep_until(next.into()).await;
        let Some(resolved) = resolve(group, name, failures).await else {
            return;
        };
        next = resolved.until;
        failures = if resolved.failed {
            failures.saturating_add(1)
        } else {
            0
        };
        if resolved.changed {
            upstreams.notify_changed();
        }
    }
}

/// The result of a lookup for a node.
struct Resolution {
    /// The time of the next lookup.
    until: Instant,
    failed: bool,
    /// Whether the addresses changed.
    changed: bool,
}

/// Looks up a name once; `None` if its node is gone.
async fn resolve(
    group: &Weak<UpstreamGroup>,
    name: &NodeName,
    failures: u32,
) -> Option<Resolution> {
    let plan = dns_plan(&*group.upgrade()?, name)?;
    // The group is held weakly meanwhile: a reload that removes it must not wait for a DNS server that does not
    // respond.
    let found = lookup::lookup(&name.target, &plan).await;
    let group = group.upgrade()?;
    // Asked again: the lookup took seconds, in which a reload may have removed the node.
    dns_plan(&group, name)?;
    let now = Instant::now();
    match found {
        Ok(found) => {
            let ttl = found
                .ttl
                .clamp(plan.min_ttl, plan.max_ttl.max(plan.min_ttl));
            let until = now + ttl;
            let changed = group.set_addresses(&name.node, &name.target, found.addresses, until);
            if changed {
                tracing::info!(group = %group.name(), node = %name.node, ?ttl,
                    "a node has new addresses");
            }
            Some(Resolution {
                until,
                failed: false,
                changed,
            })
        }
        Err(error) => {
            let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(16));
            tracing::warn!(group = %group.name(), node = %name.node, %error,
                "a node's name cannot be resolved; its addresses stay");
            Some(Resolution {
                // Not more often than a name that resolves is asked for.
                until: now + pause.clamp(plan.min_ttl, plan.max_ttl.max(plan.min_ttl)),
                failed: true,
                changed: false,
            })
        }
    }
}

/// Returns the DNS settings of a name; `None` if its node is gone.
fn dns_plan(group: &UpstreamGroup, name: &NodeName) -> Option<DnsPlan> {
    let set = group.set();
    let has = set
        .plan
        .nodes
        .iter()
        .any(|node| node.name == name.node && node.target == name.target);
    has.then(|| set.plan.dns.clone())
}
