//! The connections of a pool, and the limits of their age and use.

use std::time::{Duration, Instant};

use apus_client::{Http1Client, MultiplexedClient};

use super::ProxyClient;
use crate::plan::ConnectionPoolPlan;

/// An idle connection of HTTP/1.1.
pub(super) struct IdleConnection {
    pub(super) connection: Http1Client,
    pub(super) client: ProxyClient,
}

impl IdleConnection {
    pub(super) fn is_for(&self, client: ProxyClient) -> bool {
        self.client == client
    }

    /// Whether the connection must not be used again.
    pub(super) fn is_expired(&self, plan: &ConnectionPoolPlan, now: Instant) -> bool {
        let connection = &self.connection;
        let waited = now.saturating_duration_since(connection.idle_since());
        exceeds_limits(plan, connection.requests(), connection.opened_at(), now)
            || waited > plan.idle_timeout
            // The node has announced when it closes. A request sent in that moment would be lost, or sent twice.
            || connection.idle_limit().is_some_and(|limit| waited >= limit)
    }

    /// Returns how long the connection may be idle.
    pub(super) fn idle_limit(&self, plan: &ConnectionPoolPlan) -> Duration {
        let limit = self.connection.idle_limit().unwrap_or(plan.idle_timeout);
        limit.min(plan.idle_timeout)
    }
}

/// A connection of HTTP/2 or HTTP/3, which many requests share.
pub(super) struct MultiplexedConnection {
    pub(super) connection: MultiplexedClient,
    pub(super) client: ProxyClient,
}

impl MultiplexedConnection {
    /// Whether the connection accepts one more request of the client.
    pub(super) fn accepts(&self, client: ProxyClient) -> bool {
        self.client == client && self.connection.has_room()
    }

    /// Whether the connection must not be used again. Its open requests go on.
    pub(super) fn is_expired(&self, plan: &ConnectionPoolPlan, now: Instant) -> bool {
        let connection = &self.connection;
        connection.is_closed()
            || exceeds_limits(plan, connection.requests(), connection.opened_at(), now)
    }

    /// Whether the connection was idle for too long.
    pub(super) fn is_idle(&self, plan: &ConnectionPoolPlan, now: Instant) -> bool {
        let waited = now.saturating_duration_since(self.connection.idle_since());
        self.connection.open_streams() == 0 && (plan.max_idle == 0 || waited > plan.idle_timeout)
    }
}

/// Whether a connection has reached its limit of requests or of age.
pub(super) fn exceeds_limits(
    plan: &ConnectionPoolPlan,
    requests: u64,
    opened_at: Instant,
    now: Instant,
) -> bool {
    let is_used_up = plan.max_requests > 0 && requests >= plan.max_requests;
    let age = || now.saturating_duration_since(opened_at);
    is_used_up || (!plan.max_age.is_zero() && age() > plan.max_age)
}
