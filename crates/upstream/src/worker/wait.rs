//! A place at a node: at once, or after waiting for it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::WorkerGroup;
use super::choose::{Ask, Choice, Chosen};
use super::flight::Flight;
use super::send::Way;
use crate::counts::count;
use crate::group::PlaceAt;
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
        match self.choose(tried, Some(None)) {
            Boarding::Flight(flight) => Ok(flight),
            // Kept out of the way of those who do not wait.
            Boarding::Wait(ticket, place) => Box::pin(self.wait(tried, ticket, place)).await,
            Boarding::No(none) => Err(none),
        }
    }

    /// Waits for a place, and if the nodes change meanwhile, for another.
    async fn wait(
        &self,
        tried: &Tried,
        ticket: Ticket,
        place: oneshot::Receiver<PlaceAt>,
    ) -> Result<Flight, NoFlight> {
        count(&self.group.counts.queued);
        let until = self.waits_until();
        let _queued = Queued {
            group: self.group,
            ticket,
        };
        let mut place = place;
        loop {
            match timeout_at(until.into(), place).await {
                Ok(Ok(place)) => {
                    if let Some(flight) = self.take(place) {
                        return Ok(flight);
                    }
                }
                // The nodes are others now.
                Ok(Err(_)) => {}
                Err(_) => return Err(NoFlight::QueueTimedOut),
            }
            place = match self.choose(tried, Some(Some(ticket))) {
                Boarding::Flight(flight) => return Ok(flight),
                Boarding::Wait(_, place) => place,
                Boarding::No(none) => return Err(none),
            };
        }
    }

    /// Begins an attempt at the node of a place; `None` if that is gone.
    fn take(&self, place: PlaceAt) -> Option<Flight> {
        let view = self.group.view();
        let index = view.position(place.node()?.state.id())?;
        let chosen = Chosen {
            index,
            place: Some(place),
            probe: false,
        };
        Flight::begin(self.group, &view, chosen, Instant::now())
    }

    /// Begins an attempt at a node that was not tried yet, if that needs no waiting.
    pub(super) fn board_now(&self, tried: &Tried) -> Option<Flight> {
        match self.choose(tried, None) {
            Boarding::Flight(flight) => Some(flight),
            Boarding::Wait(..) | Boarding::No(_) => None,
        }
    }

    /// Chooses a node; waits for one only with a turn, of which there may be none yet.
    fn choose(&self, tried: &Tried, turn: Option<Option<Ticket>>) -> Boarding {
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
            Choice::Node(chosen) => match Flight::begin(self.group, &view, chosen, now) {
                Some(flight) => Boarding::Flight(flight),
                None => Boarding::No(NoFlight::NoNode(None)),
            },
            Choice::Wait(ticket, place) => Boarding::Wait(ticket, place),
            Choice::Full => Boarding::No(NoFlight::QueueFull),
            Choice::None(after) => Boarding::No(NoFlight::NoNode(after)),
        }
    }

    fn waits_until(&self) -> Instant {
        let timeout = self.group.view().set.plan.queue.timeout;
        let now = Instant::now();
        let until = now.checked_add(timeout).unwrap_or(now);
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }
}

/// What a choice led to.
enum Boarding {
    Flight(Flight),
    Wait(Ticket, oneshot::Receiver<PlaceAt>),
    No(NoFlight),
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
