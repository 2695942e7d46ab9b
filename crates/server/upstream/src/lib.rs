//! Groups of origin servers: balancing, health, retries, queues and connections.
//!
//! All threads share [`Upstreams`], which keeps the state of nodes across reloads. A worker gets a
//! [`WorkerGroup`] from it, which has the worker's balancer and connections, and sends requests with
//! [`WorkerGroup::send`]. The rules of balancing, health, retries and the queue have no sockets and no clocks:
//! time is an argument.
//!
//! # The path of a request
//!
//! | step | module | what happens |
//! | --- | --- | --- |
//! | exchange | `worker::exchange` | Sends the request over an idle connection and waits for the response: one state machine from the proxy to the socket, without a future for each layer. Everything else that may be needed is in the next step. |
//! | attempts | `worker::send`, `worker::acquire`, `retry` | Waits in the queue if all nodes are at their limit, connects, limits the time, sends to a second node when the first is slow, and retries at other nodes if the rules and the retry budget (`retry::token_bucket`) allow it. |
//! | node | `worker::choose`, `balance`, `health` | Selects one of the healthy nodes by the strategy, or by the sticky cookie (`balance::sticky`). |
//! | connection | `pool` | Takes an idle connection of this worker or opens a new one. |
//!
//! `wait_queue` is one queue for slots of nodes, processes of FastCGI applications, and resident PHP workers. `checks`
//! runs active health checks, `dns` resolves names periodically.
//!
//! # Decisions
//!
//! - **A request and its connection to an origin stay on one worker.** Each worker has its own connection pools and
//!   balancers; the health of a node is shared and changes rarely. Only a limit of requests per node over all workers
//!   takes a lock.
//! - **All workers share idle FastCGI connections.** A process of PHP-FPM serves one connection until that is closed.
//!   If one worker kept it, the others could not use the process. So any worker may take any idle connection, under a
//!   lock, also for another group with the same address. A connection whose process still works after its response is
//!   skipped, because it does not read yet.
//! - **The number of processes of a FastCGI application is learnt** (`pool::concurrency`). FastCGI does not say it, and
//!   a request over a connection that no process accepts waits in the backlog until another connection is closed. So a
//!   request opens a connection if none is idle, until the kernel reports, over a Unix socket, that the application has
//!   not read one while responses came over others. From then on, further requests wait here in order, and from time to
//!   time one more is sent to find out whether the application serves more. The one that waits in vain gets the process
//!   of the next connection that returns. Over TCP the kernel does not report it, so only many responses over other
//!   connections count.
//! - **A queue changes its order only when origins work for clients that are gone** (`wait_queue`). First in, first out
//!   is fair; but with more requests than an origin serves, and clients that give up after a time, each response is
//!   ready when its client is gone. That is what the queue measures: how many of the last requests that it let through
//!   were abandoned. Requests that leave while they wait cost nothing and say nothing, so a client cannot change the
//!   order by opening and closing requests. A learnt limit of patience would be an alternative, with two times to
//!   guess.
//!
//! # Tests
//!
//! Rules have unit tests with the time as an argument. `tests/it` has groups over sockets: `balancing`, `health`,
//! `retries`, `queue`, `pool`, `fastcgi`, `dns`.

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
    AttemptFailure, AttemptTimes, FailedAttempt, NodeLabel, RequestContext, UpstreamError,
    UpstreamErrorKind, UpstreamExchange, UpstreamResponse, WorkerGroup,
};
