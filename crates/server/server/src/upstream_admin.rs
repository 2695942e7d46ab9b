//! The groups of origins on the control socket: status, and changes of nodes.

use std::fmt;
use std::time::{Duration, Instant};

use apus_control::NodeChange;
use apus_upstream::plan::AdminState;
use apus_upstream::{GroupStatus, NodeAvailability, NodeStatus, OutReason, Upstreams};
use serde_json::{Value, json};

/// Changes the state of a node. `group` is the name of a group, or the part after the name of its
/// site if that is unique. Returns the name of the group.
///
/// # Errors
/// There is no such group or node.
pub(crate) fn set_node(
    upstreams: &Upstreams,
    group: &str,
    node: &str,
    change: NodeChange,
) -> Result<String, NodeChangeError> {
    let groups = upstreams.status();
    let names: Vec<_> = groups.iter().map(|group| group.name.clone()).collect();
    let own_name = |name: &str| name.rsplit_once('/').is_some_and(|(_, own)| own == group);
    let meant: Vec<_> = match names.iter().find(|name| &***name == group) {
        Some(name) => vec![name],
        None => names.iter().filter(|name| own_name(name)).collect(),
    };
    let known = || {
        names
            .iter()
            .map(|name| &**name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let admin = match change {
        NodeChange::Up => AdminState::Up,
        NodeChange::Drain => AdminState::Drain,
        NodeChange::Down => AdminState::Down,
    };
    match meant.as_slice() {
        [] => Err(NodeChangeError::NoGroup {
            group: group.to_owned(),
            known: known(),
        }),
        [name] => match upstreams.set_node(name, node, admin) {
            Ok(()) => Ok(name.to_string()),
            Err(_) => {
                let group = groups.iter().find(|group| group.name == **name);
                let nodes = group.into_iter().flat_map(|group| &group.nodes);
                let nodes: Vec<_> = nodes.map(|node| &*node.name).collect();
                Err(NodeChangeError::NoNode {
                    group: name.to_string(),
                    node: node.to_owned(),
                    known: nodes.join(", "),
                })
            }
        },
        _ => Err(NodeChangeError::SeveralGroups {
            group: group.to_owned(),
            known: known(),
        }),
    }
}

/// Why the state of a node cannot be set, in words for the operator. What is known are names, with commas between.
#[derive(Debug)]
pub(crate) enum NodeChangeError {
    /// There is no group with this name.
    NoGroup { group: String, known: String },
    /// Several sites have a group with this name.
    SeveralGroups { group: String, known: String },
    /// The group has no node with this name.
    NoNode {
        group: String,
        node: String,
        known: String,
    },
}

impl fmt::Display for NodeChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGroup { known, .. } if known.is_empty() => {
                f.write_str("the configuration has no upstream groups")
            }
            Self::NoGroup { group, known } => {
                write!(f, "no group is named `{group}`; expected one of {known}")
            }
            Self::SeveralGroups { group, known } => write!(
                f,
                "several sites have a group `{group}`; add the name of the site: {known}"
            ),
            Self::NoNode { group, node, known } if known.is_empty() => write!(
                f,
                "the group `{group}` has no node `{node}`, and none at all yet"
            ),
            Self::NoNode { group, node, known } => write!(
                f,
                "the group `{group}` has no node `{node}`; expected one of {known}"
            ),
        }
    }
}

/// All groups with their nodes as JSON.
pub(crate) fn status(upstreams: &Upstreams) -> Value {
    let now = Instant::now();
    upstreams
        .status()
        .iter()
        .map(|status| group(status, now))
        .collect()
}

fn group(group: &GroupStatus, now: Instant) -> Value {
    let totals = &group.totals;
    json!({
        "name": &*group.name,
        "waiting": group.waiting,
        "requests": totals.requests,
        "retries": totals.retries,
        "hedges": totals.hedges,
        "queued": totals.queued,
        "queue_full": totals.queue_full,
        "queue_timed_out": totals.queue_timed_out,
        "no_node": totals.no_node,
        "budget_spent": totals.budget_spent,
        "reconnects": totals.reconnects,
        "copies_dropped": totals.copies_dropped,
        "nodes": group.nodes.iter().map(|one| node(one, now)).collect::<Vec<_>>(),
    })
}

fn node(node: &NodeStatus, now: Instant) -> Value {
    let failures: serde_json::Map<String, Value> = node
        .failures
        .iter()
        .map(|(kind, count)| (kind.as_str().to_owned(), (*count).into()))
        .collect();
    let check = node.last_check.as_ref().map(|check| {
        json!({
            "seconds_ago": now.saturating_duration_since(check.at).as_secs_f64(),
            "fault": check.fault,
        })
    });
    let (state, until) = state(node.state);
    let left = until.map(|until| until.saturating_duration_since(now));
    json!({
        "name": &*node.name,
        "address": node.address,
        "backup": node.backup,
        "admin": match node.admin {
            AdminState::Up => "up",
            AdminState::Drain => "drain",
            AdminState::Down => "down",
        },
        "state": state,
        "seconds_left": left.as_ref().map(Duration::as_secs_f64),
        "in_flight": node.in_flight,
        "requests": node.requests,
        "failures": failures,
        "latency_seconds": node.latency.as_ref().map(Duration::as_secs_f64),
        "last_check": check,
    })
}

fn state(state: NodeAvailability) -> (String, Option<Instant>) {
    match state {
        NodeAvailability::In => ("in".to_owned(), None),
        NodeAvailability::Starting(percent) => (format!("starting, {percent}%"), None),
        NodeAvailability::Probing => ("probing".to_owned(), None),
        NodeAvailability::Out(reason, until) => {
            let why = match reason {
                OutReason::Checks => "its checks fail",
                OutReason::Breaker => "its breaker is open",
                OutReason::Ejected => "it is ejected",
                OutReason::Failures => "requests failed",
            };
            (format!("out, {why}"), until)
        }
    }
}

#[cfg(test)]
mod tests {
    use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};

    use super::*;

    fn upstreams(names: &[&str]) -> Upstreams {
        let upstreams = Upstreams::new();
        let address = apus_client::Address::Ip("127.0.0.1:1".parse().unwrap());
        let node = NodePlan::new("node", NodeTarget::Address(address));
        let group = |name: &&str| GroupPlan::new(*name, vec![node.clone()]);
        upstreams.apply(names.iter().map(group).collect());
        upstreams
    }

    fn admins(upstreams: &Upstreams) -> Vec<(String, String)> {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
        let groups = status(upstreams);
        let groups = groups.as_array().unwrap().iter();
        groups
            .map(|group| (text(group, "name"), text(&group["nodes"][0], "admin")))
            .collect()
    }

    #[test]
    fn a_group_is_named_with_its_site_or_without() {
        let upstreams = upstreams(&["one/app", "two/app", "two/api", "http://app"]);
        let set = |group, node, change| set_node(&upstreams, group, node, change);
        set("two/app", "node", NodeChange::Drain).unwrap();
        set("api", "node", NodeChange::Down).unwrap();
        set("http://app", "node", NodeChange::Down).unwrap();
        let is = |name: &str, admin: &str| (name.to_owned(), admin.to_owned());
        assert_eq!(
            admins(&upstreams),
            [
                is("http://app", "down"),
                is("one/app", "up"),
                is("two/api", "down"),
                is("two/app", "drain"),
            ]
        );
        set("api", "node", NodeChange::Up).unwrap();
        assert_eq!(admins(&upstreams)[2], is("two/api", "up"));
    }

    #[test]
    fn reports_unknown_groups_and_nodes_with_the_known_ones() {
        let two = upstreams(&["one/app", "two/app"]);
        let failure = |group, node| {
            let error = set_node(&two, group, node, NodeChange::Up).unwrap_err();
            error.to_string()
        };
        let several = failure("app", "node");
        assert!(several.contains("one/app, two/app"), "{several}");
        let unknown = failure("ap", "node");
        assert!(unknown.contains("no group is named `ap`"), "{unknown}");
        let node = failure("one/app", "other");
        assert_eq!(
            node,
            "the group `one/app` has no node `other`; expected one of node"
        );
        let none = set_node(&Upstreams::new(), "app", "node", NodeChange::Up).unwrap_err();
        assert_eq!(none.to_string(), "the configuration has no upstream groups");
    }
}
