//! Computations that run: requests for the same key wait for one of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

/// The computations of all workers of this process, by key.
#[derive(Clone, Default)]
pub(crate) struct Flights(Arc<Mutex<HashMap<String, RunningFlight>>>);

struct RunningFlight {
    result: watch::Receiver<FlightResult>,
    is_outdated: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum FlightResult {
    Running,
    Done(Bytes),
    Failed,
}

/// The part of a caller.
pub(crate) enum FlightRole {
    /// It computes the value, and tells the others.
    Leader(FlightLeader),
    /// It waits for the value.
    Follower(FlightFollower),
}

impl Flights {
    /// Joins the computation of a key, or begins one.
    pub(crate) fn join(&self, key: &str) -> FlightRole {
        let mut running = self.running();
        if let Some(flight) = running.get(key) {
            return FlightRole::Follower(FlightFollower(flight.result.clone()));
        }
        let (sender, result) = watch::channel(FlightResult::Running);
        let is_outdated = Arc::<AtomicBool>::default();
        let flight = RunningFlight {
            result,
            is_outdated: is_outdated.clone(),
        };
        running.insert(key.to_owned(), flight);
        FlightRole::Leader(FlightLeader {
            flights: self.clone(),
            key: key.to_owned(),
            sender,
            is_outdated,
        })
    }

    /// Keeps the computations that run from being stored: their keys were written or forgotten since they began.
    pub(crate) fn outdate(&self, is_meant: impl Fn(&str) -> bool) {
        self.running().retain(|key, flight| {
            let is_meant = is_meant(key);
            if is_meant {
                flight.is_outdated.store(true, Ordering::Relaxed);
            }
            !is_meant
        });
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, RunningFlight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Computes the value of a key. If it is dropped before it ends, one of those that wait takes its place.
pub(crate) struct FlightLeader {
    flights: Flights,
    key: String,
    sender: watch::Sender<FlightResult>,
    is_outdated: Arc<AtomicBool>,
}

impl FlightLeader {
    /// Whether the key was written or forgotten since the computation began.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Gives the others the value.
    pub(crate) fn finish(self, json: Bytes) {
        self.sender.send_replace(FlightResult::Done(json));
    }

    /// Lets the others compute for themselves.
    pub(crate) fn fail(self) {
        self.sender.send_replace(FlightResult::Failed);
    }
}

impl Drop for FlightLeader {
    fn drop(&mut self) {
        let mut running = self.flights.running();
        let is_own = |flight: &RunningFlight| Arc::ptr_eq(&flight.is_outdated, &self.is_outdated);
        if running.get(&self.key).is_some_and(is_own) {
            running.remove(&self.key);
        }
    }
}

/// Waits for the value of a key.
pub(crate) struct FlightFollower(watch::Receiver<FlightResult>);

/// What became of a computation.
pub(crate) enum FlightEnd {
    /// The value, as JSON.
    Done(Bytes),
    /// It failed.
    Failed,
    /// It was given up, as when its client disconnected.
    GivenUp,
}

impl FlightFollower {
    pub(crate) async fn wait(mut self) -> FlightEnd {
        let ended = self
            .0
            .wait_for(|result| !matches!(result, FlightResult::Running));
        match ended.await.as_deref() {
            Ok(FlightResult::Done(json)) => FlightEnd::Done(json.clone()),
            Ok(_) => FlightEnd::Failed,
            Err(_) => FlightEnd::GivenUp,
        }
    }
}
