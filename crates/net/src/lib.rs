//! The engine: workers, listeners, TLS and sockets, which drive the codecs over real connections.
//!
//! [`Engine::start`] takes an [`EnginePlan`] and runs it on one pinned thread per worker. A worker owns its
//! sockets, its connections and its services; while it serves a request, it shares nothing with another
//! thread.

mod accept;
mod account;
mod body;
mod buffers;
pub mod client;
mod clock;
mod connection;
mod connection_table;
mod counters;
mod descriptors;
mod engine;
mod file;
mod h1;
mod h2;
mod input;
mod limits;
mod linger;
mod listen;
mod plan;
mod proxy;
mod read_interest;
mod run;
mod scheduler;
mod socket;
mod spawn;
mod stop;
pub mod tls;
mod transport;
mod worker;
mod yield_task;

pub use account::{AccountError, SystemAccount};
pub use clock::coarse_now;
pub use counters::{WorkerStatus, WorkerTotals};
pub use engine::{Engine, EngineStartError, EngineStatus};
pub use limits::Limits;
pub use listen::{Binder, bind_listener};
pub use plan::{EnginePlan, ListenAddress, ListenerPlan};
pub use read_interest::ReadInterestSocket;
pub use spawn::{fork, spawn_dependent};
pub use stop::worker_stop;
