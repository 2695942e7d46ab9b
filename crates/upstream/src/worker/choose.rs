//! The choice of a node for a request, and a slot at that node or a position in the queue.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::WorkerGroup;
use super::view::{LocalNode, View};
use crate::balance::Candidate;
use crate::group::PlaceAt;
use crate::health::{FULL_SHARE, Reason, Verdict};
use crate::plan::{Admin, Strategy};
use crate::queue::{Ticket, Tried, Wants};

/// What a request asks of the choice.
pub(super) struct Ask<'a> {
    /// The key of consistent hashing.
    pub(super) key: Option<u64>,
    /// The value of the sticky cookie.
    pub(super) sticky: Option<&'a str>,
    /// Nodes that it was sent to.
    pub(super) tried: &'a Tried,
    /// `None` if it does not wait; else its turn, if it waited before.
    pub(super) turn: Option<Option<Ticket>>,
}

/// What was chosen.
pub(super) enum Choice {
    /// This node.
    Node(Chosen),
    /// To wait in the line.
    Wait(Ticket, oneshot::Receiver<PlaceAt>),
    /// Nothing: too many wait.
    Full,
    /// Nothing: no node is asked now; perhaps one is, after this time.
    None(Option<Duration>),
}

/// A chosen node.
pub(super) struct Chosen {
    pub(super) index: usize,
    pub(super) place: Option<PlaceAt>,
    /// Whether this request tries the node for its breaker.
    pub(super) probe: bool,
}

/// What was found among the nodes.
enum Found {
    Node(usize),
    /// All that would do have as many requests as they take.
    Busy(Wants),
    None,
}

/// Nodes by preference.
#[derive(Clone, Copy)]
enum Tier {
    Primary,
    Backup,
    /// Those that failed too much lately: better than none.
    LastResort,
}

impl WorkerGroup {
    /// Chooses a node and takes a place at it, or in the line.
    pub(super) fn choose(&self, view: &View, ask: &Ask<'_>, now: Instant) -> Choice {
        let mut line = view.set.limited.then(|| self.group.line());
        if let Some(line) = &mut line {
            self.group.pass_places_on(line, &view.set, now);
        }
        loop {
            let wants = match self.find(view, ask, now) {
                Found::Node(index) => match admit(view, index, now) {
                    Some(probe) => {
                        let node = view.nodes.get(index).map(|local| &local.node);
                        let node = node.filter(|node| node.max_requests > 0);
                        return Choice::Node(Chosen {
                            index,
                            place: node.map(|node| self.group.take_place(node)),
                            probe,
                        });
                    }
                    // Another worker's request was quicker to try the node.
                    None => continue,
                },
                Found::Busy(wants) => wants,
                Found::None => return Choice::None(soonest(view, now)),
            };
            let queue = &view.set.plan.queue;
            return match (&mut line, ask.turn) {
                (Some(line), Some(ticket))
                    if ticket.is_some() || line.len() < queue.max_waiting =>
                {
                    let (ticket, receiver) = line.enter(ticket, wants);
                    Choice::Wait(ticket, receiver)
                }
                _ => Choice::Full,
            };
        }
    }

    fn find(&self, view: &View, ask: &Ask<'_>, now: Instant) -> Found {
        if let Some(route) = ask.sticky
            && view.set.plan.sticky.is_some()
            && let Some((index, local)) = kept_with(view, route)
            && !ask.tried.contains(&local.node.state.id())
            && local.node.state.admin() != Admin::Down
            && local.node.admission(now).is_some()
        {
            if local.node.has_room() {
                return Found::Node(index);
            }
            if view.set.plan.queue.max_waiting > 0 {
                return Found::Busy(Wants {
                    only: Some(local.node.state.id()),
                    ..Wants::default()
                });
            }
        }
        for tier in [Tier::Primary, Tier::Backup, Tier::LastResort] {
            match self.find_in(tier, view, ask, now) {
                Found::None => {}
                found => return found,
            }
        }
        Found::None
    }

    fn find_in(&self, tier: Tier, view: &View, ask: &Ask<'_>, now: Instant) -> Found {
        let strategy = &view.set.plan.strategy;
        let mut candidates = self.candidates.borrow_mut();
        candidates.clear();
        let mut any_busy = false;
        for (index, local) in view.nodes.iter().enumerate() {
            let node = &local.node;
            let Some(share) = share_in(tier, local, now) else {
                continue;
            };
            if ask.tried.contains(&node.state.id()) {
                continue;
            }
            if !node.has_room() {
                any_busy = true;
                continue;
            }
            candidates.push(Candidate {
                index,
                weight: node.weight.saturating_mul(share),
                load: match strategy.looks_at_load() {
                    true => node.state.load(),
                    false => 0,
                },
                latency: match strategy {
                    Strategy::LeastTime => local.latency(now),
                    _ => None,
                },
            });
        }
        let key = view.set.ring.as_ref().zip(ask.key);
        let mut balancer = self.balancer.borrow_mut();
        match balancer.pick(strategy, &candidates, key) {
            Some(index) => Found::Node(index),
            None if any_busy => Found::Busy(Wants {
                only: None,
                tried: ask.tried.clone(),
                backup: !matches!(tier, Tier::Primary),
            }),
            None => Found::None,
        }
    }
}

/// The node of a sticky cookie.
fn kept_with<'a>(view: &'a View, route: &str) -> Option<(usize, &'a LocalNode)> {
    view.nodes
        .iter()
        .enumerate()
        .find(|(_, local)| *local.node.route == *route)
        .map(|(index, local)| (index, &**local))
}

/// The part of its weight with which a node is among those of a tier.
fn share_in(tier: Tier, local: &LocalNode, now: Instant) -> Option<u32> {
    let node = &local.node;
    if node.state.admin() != Admin::Up {
        return None;
    }
    match tier {
        Tier::Primary | Tier::Backup => {
            let is_theirs = node.backup == matches!(tier, Tier::Backup);
            let admitted = is_theirs.then(|| node.admission(now)).flatten()?;
            Some(admitted.share)
        }
        Tier::LastResort => match node.verdict(now) {
            Verdict::Out {
                why: Reason::Failures | Reason::Ejected,
                ..
            } => Some(FULL_SHARE),
            _ => None,
        },
    }
}

/// Admits a request to a node; tells whether it is the one that tries it. `None` if that one is under
/// way already.
fn admit(view: &View, index: usize, now: Instant) -> Option<bool> {
    let node = &view.nodes.get(index)?.node;
    match node.admission(now) {
        Some(admitted) if admitted.probe => node.state.begin_probe(&node.plan, now).then_some(true),
        _ => Some(false),
    }
}

/// When a node may be asked again at the soonest.
fn soonest(view: &View, now: Instant) -> Option<Duration> {
    view.nodes
        .iter()
        .filter(|local| local.node.state.admin() == Admin::Up)
        .filter_map(|local| match local.node.verdict(now) {
            Verdict::Out {
                until: Some(until), ..
            } => Some(until.saturating_duration_since(now)),
            _ => None,
        })
        .min()
}
