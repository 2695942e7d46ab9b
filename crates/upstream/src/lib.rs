//! Groups of origin servers: balancing, health, retries and connections.
//!
//! [`Upstreams`] is shared by all threads and keeps what is known of nodes while configurations come
//! and go. A worker asks it for a [`WorkerGroup`], which has the worker's connections and turns, and
//! sends requests with [`WorkerGroup::send`]. The rules of balancing, health, retries and the queue know
//! neither sockets nor clocks: time is an argument.

#![forbid(unsafe_code)]

mod balance;
mod checks;
mod counts;
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
mod worker;

pub use balance::hash_key;
pub use counts::{FailureKind, GroupTotals};
pub use health::Reason;
pub use node::CheckResult;
pub use retry::is_idempotent;
pub use status::{GroupStatus, NodeStatus, State};
pub use upstreams::{UnknownNode, Upstreams};
pub use worker::{
    Attempt, AttemptOutcome, Context, Delivered, Failed, FailedKind, NodeLabel, WorkerGroup,
};
