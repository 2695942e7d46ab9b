//! Connections that a pool has: how long, and for how many requests.

use std::time::{Duration, Instant};

use apus_net::client::{Http1Client, Http2Client};

use super::Client;
use crate::plan::PoolPlan;

/// A connection of HTTP/1.1 that waits.
pub(super) struct Idle {
    pub(super) connection: Http1Client,
    pub(super) client: Client,
}

impl Idle {
    pub(super) fn is_for(&self, client: Client) -> bool {
        self.client == client
    }

    /// Whether it is not to be used again.
    pub(super) fn is_spent(&self, plan: &PoolPlan, now: Instant) -> bool {
        let connection = &self.connection;
        let waited = now.saturating_duration_since(connection.idle_since());
        is_worn(plan, connection.requests(), connection.opened_at(), now)
            || waited > plan.idle_timeout
            || connection.idle_limit().is_some_and(|limit| waited >= limit)
    }

    /// How long it may wait.
    pub(super) fn limit(&self, plan: &PoolPlan) -> Duration {
        let limit = self.connection.idle_limit().unwrap_or(plan.idle_timeout);
        limit.min(plan.idle_timeout)
    }
}

/// A connection of HTTP/2, which many requests share.
pub(super) struct Shared {
    pub(super) connection: Http2Client,
    pub(super) client: Client,
}

impl Shared {
    /// Whether it has room for one more request of the client.
    pub(super) fn has_room(&self, client: Client) -> bool {
        self.client == client && self.connection.has_room()
    }

    /// Whether it is not to be used again. Requests that use it go on.
    pub(super) fn is_spent(&self, plan: &PoolPlan, now: Instant) -> bool {
        let connection = &self.connection;
        connection.is_closed() || is_worn(plan, connection.requests(), connection.opened_at(), now)
    }

    /// Whether nobody has used it for too long.
    pub(super) fn is_idle(&self, plan: &PoolPlan, now: Instant) -> bool {
        let waited = now.saturating_duration_since(self.connection.idle_since());
        self.connection.open_streams() == 0 && (plan.max_idle == 0 || waited > plan.idle_timeout)
    }
}

/// Whether a connection has carried as many requests, or is as old, as connections become.
pub(super) fn is_worn(plan: &PoolPlan, requests: u64, opened_at: Instant, now: Instant) -> bool {
    let is_used_up = plan.max_requests > 0 && requests >= plan.max_requests;
    let age = now.saturating_duration_since(opened_at);
    is_used_up || (!plan.max_age.is_zero() && age > plan.max_age)
}
