//! A place at a node: at once, or after waiting for it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use super::WorkerGroup;
use super::choose::{Ask, Choice, Chosen};
use super::flight::Flight;
use super::send::Way;
use crate::counts::count;
use crate::queue::{Ticket, Tried};

/// Why there is no place.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoFlight {
    NoNode(Option<Duration>),
    QueueFull,
    QueueTimedOut,
}

impl Way<'_> {
    /// Begins an attempt at a node that was not tried yet, after waiting for it if need be.
    pub(super) async fn board(&self, tried: &Tried) -> Result<Flight, NoFlight> {
        let mut queued: Option<(Queued<'_>, Instant)> = None;
        loop {
            let ticket = queued.as_ref().map(|(queued, _)| queued.ticket);
            let (ticket, receiver) = match self.choose(tried, Some(ticket)) {
                Ok(flight) => return Ok(flight),
                Err(Choice::Wait(ticket, receiver)) => (ticket, receiver),
                Err(Choice::Full) => return Err(NoFlight::QueueFull),
                Err(Choice::None(after)) => return Err(NoFlight::NoNode(after)),
                Err(Choice::Node(_)) => continue,
            };
            let (_, until) = queued.get_or_insert_with(|| {
                count(&self.group.counts.queued);
                let queued = Queued {
                    group: self.group,
                    ticket,
                };
                (queued, self.waits_until())
            });
            let place = match timeout_at((*until).into(), receiver).await {
                Ok(Ok(place)) => place,
                // The nodes are others now.
                Ok(Err(_)) => continue,
                Err(_) => return Err(NoFlight::QueueTimedOut),
            };
            let view = self.group.view();
            let index = place.node().and_then(|node| view.position(node.state.id()));
            let chosen = index.map(|index| Chosen {
                index,
                place: Some(place),
                probe: false,
            });
            let now = Instant::now();
            if let Some(flight) =
                chosen.and_then(|chosen| Flight::begin(self.group, &view, chosen, now))
            {
                return Ok(flight);
            }
        }
    }

    /// Begins an attempt at a node that was not tried yet, if that needs no waiting.
    pub(super) fn board_now(&self, tried: &Tried) -> Option<Flight> {
        self.choose(tried, None).ok()
    }

    /// Chooses a node; waits for one only with a turn, of which there may be none yet.
    fn choose(&self, tried: &Tried, turn: Option<Option<Ticket>>) -> Result<Flight, Choice> {
        let view = self.group.view();
        let is_first = tried.is_empty() && matches!(turn, Some(None));
        let now = if is_first { self.began } else { Instant::now() };
        let ask = Ask {
            key: self.context.key,
            sticky: self.context.sticky,
            tried,
            turn,
        };
        match self.group.choose(&view, &ask, now) {
            Choice::Node(chosen) => {
                Flight::begin(self.group, &view, chosen, now).ok_or(Choice::None(None))
            }
            other => Err(other),
        }
    }

    fn waits_until(&self) -> Instant {
        let timeout = self.group.view().set.plan.queue.timeout;
        let until = Instant::now() + timeout;
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }
}

/// A turn in the line; given up when dropped.
struct Queued<'a> {
    group: &'a Rc<WorkerGroup>,
    ticket: Ticket,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.group.group.line().leave(self.ticket);
    }
}
