//! The names of one site that have no certificate: those that are looked for, and those that are refused for a while.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use apus_net::tls::{OnDemandLookup, PreparedSite};
use tokio::sync::watch;

use super::clients::ClientNetwork;

/// How long handshakes wait for a certificate, from the first one on.
pub(super) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(8);
/// The most names of a site that wait for the control thread.
pub(super) const LONGEST_QUEUE: usize = 256;
/// The most names of a site without a certificate that are remembered.
pub(super) const MAX_UNCERTIFIED: usize = 4_096;

/// The names of one site that have no certificate. The oldest are forgotten when there are too many.
#[derive(Default)]
pub(super) struct UncertifiedNames {
    names: HashMap<Box<str>, UncertifiedName>,
    /// The names in the order in which they came, each with its number. A name that has another number now came again.
    order: VecDeque<(u64, Box<str>)>,
    last_number: u64,
    queue: VecDeque<Box<str>>,
}

struct UncertifiedName {
    number: u64,
    state: UncertifiedState,
}

enum UncertifiedState {
    /// The control thread looks for its certificate.
    Pending {
        since: Instant,
        sender: watch::Sender<Option<OnDemandResult>>,
        client: Option<ClientNetwork>,
    },
    Refused {
        until: Instant,
        result: OnDemandResult,
    },
}

/// What came of a name.
#[derive(Clone)]
pub(super) enum OnDemandResult {
    Ready(PreparedSite),
    NotPermitted,
    NotYet,
}

impl From<OnDemandResult> for OnDemandLookup {
    fn from(result: OnDemandResult) -> Self {
        match result {
            OnDemandResult::Ready(site) => Self::Ready(site),
            OnDemandResult::NotPermitted => Self::NotPermitted,
            OnDemandResult::NotYet => Self::NotYet,
        }
    }
}

impl UncertifiedNames {
    /// What is known of a name; `None` if it has to be looked for.
    pub(super) fn known(&self, name: &str, now: Instant) -> Option<OnDemandLookup> {
        match &self.names.get(name)?.state {
            UncertifiedState::Refused { until, result } => {
                (*until > now).then(|| result.clone().into())
            }
            UncertifiedState::Pending { since, .. }
                if now.duration_since(*since) > HANDSHAKE_PATIENCE =>
            {
                Some(OnDemandLookup::NotYet)
            }
            UncertifiedState::Pending { sender, .. } => Some(pending(sender)),
        }
    }

    /// Whether one more name can be looked for.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < LONGEST_QUEUE
    }

    /// Begins to look for the certificate of a name.
    pub(super) fn begin(
        &mut self,
        name: &str,
        client: Option<ClientNetwork>,
        now: Instant,
    ) -> OnDemandLookup {
        let (sender, _) = watch::channel(None);
        let lookup = pending(&sender);
        self.queue.push_back(name.into());
        let state = UncertifiedState::Pending {
            since: now,
            sender,
            client,
        };
        self.insert(name, state, now);
        lookup
    }

    /// The next name of the queue.
    pub(super) fn next(&mut self) -> Option<Box<str>> {
        self.queue.pop_front()
    }

    /// Tells the handshakes that wait for a name.
    pub(super) fn resolve(&self, name: &str, result: OnDemandResult) {
        if let Some(UncertifiedState::Pending { sender, .. }) =
            self.names.get(name).map(|name| &name.state)
        {
            sender.send_replace(Some(result));
        }
    }

    /// Refuses a name for a while.
    pub(super) fn refuse(&mut self, name: &str, result: OnDemandResult, lifetime: Duration) {
        self.resolve(name, result.clone());
        let now = Instant::now();
        let until = now + lifetime;
        let state = UncertifiedState::Refused { until, result };
        match self.names.get_mut(name) {
            Some(known) => known.state = state,
            None => self.insert(name, state, now),
        }
    }

    /// Forgets a name that has a certificate. Returns the client for which that was looked for.
    pub(super) fn remove(&mut self, name: &str) -> Option<ClientNetwork> {
        match self.names.remove(name)?.state {
            UncertifiedState::Pending { client, .. } => client,
            UncertifiedState::Refused { .. } => None,
        }
    }

    /// Forgets the names that are refused.
    pub(super) fn forget_refused(&mut self) {
        self.names
            .retain(|_, name| matches!(name.state, UncertifiedState::Pending { .. }));
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    fn insert(&mut self, name: &str, state: UncertifiedState, now: Instant) {
        self.make_room(now);
        self.last_number += 1;
        let number = self.last_number;
        self.order.push_back((number, name.into()));
        self.names
            .insert(name.into(), UncertifiedName { number, state });
    }

    /// Forgets the oldest names: those that are refused no longer, and as many more as there are too many.
    fn make_room(&mut self, now: Instant) {
        while let Some((number, name)) = self.order.front() {
            let found = self.names.get(name).filter(|found| found.number == *number);
            let is_over = match found.map(|found| &found.state) {
                None => true,
                Some(UncertifiedState::Refused { until, .. }) => *until <= now,
                Some(UncertifiedState::Pending { .. }) => false,
            };
            if !is_over && self.order.len() < MAX_UNCERTIFIED {
                return;
            }
            if found.is_some() {
                let name = name.clone();
                self.names.remove(&name);
            }
            self.order.pop_front();
        }
    }
}

fn pending(sender: &watch::Sender<Option<OnDemandResult>>) -> OnDemandLookup {
    let mut receiver = sender.subscribe();
    OnDemandLookup::Pending(Box::pin(async move {
        let result = receiver.wait_for(Option::is_some).await;
        let result = result.ok().and_then(|result| result.clone());
        result.unwrap_or(OnDemandResult::NotYet).into()
    }))
}
