//! Groups of origin servers: balancing, health, retries, queues and connections.
//!
//! All threads share [`Upstreams`], which keeps the state of nodes across reloads. A worker gets a
//! [`WorkerGroup`] from it, which has the worker's balancer and connections, and sends requests with
//! [`WorkerGroup::send`]. The rules of balancing, health, retries and the queue have no sockets and no clocks:
//! time is an argument.

#![forbid(unsafe_code)]

mod balance;
mod checks;
mod counters;
mod dns;
mod group;
mod health;
mod node;
pub mod plan;
mod pool;
mod queue;
mod retry;
mod status;
mod upstreams;
mod wait_queue;
mod worker;

pub use balance::hash_key;
pub use counters::{FailureKind, GroupTotals};
pub use health::OutReason;
pub use node::HealthCheckResult;
pub use retry::is_idempotent;
pub use status::{GroupStatus, NodeAvailability, NodeStatus};
pub use upstreams::{UnknownNode, Upstreams};
pub use wait_queue::{QueueOutcome, WaitQueue, WaitTicket};
pub use worker::{
    AttemptFailure, FailedAttempt, NodeLabel, RequestContext, UpstreamError, UpstreamErrorKind,
    UpstreamExchange, UpstreamResponse, WorkerGroup,
};
