//! The engine: workers, listeners, TLS and sockets, driving the codecs over real connections.
//!
//! [`Engine::start`] takes a [`Plan`] and runs it on one pinned thread per worker. A worker owns
//! its sockets, its connections and its services; nothing on the path of a request is shared with
//! another thread.

mod accept;
mod account;
mod buffers;
pub mod client;
mod clock;
mod connection;
mod content;
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
mod pace;
mod plan;
mod proxy;
mod quiet;
mod run;
mod socket;
mod spawn;
mod stopping;
mod table;
pub mod tls;
mod transport;
mod turn;
mod worker;

pub use account::{Account, UnknownAccount};
pub use clock::coarse_now;
pub use counters::{Totals, WorkerStatus};
pub use engine::{Engine, StartError, Status};
pub use limits::Limits;
pub use listen::{Binder, bind_listener};
pub use plan::{ListenAddress, Listener, Plan};
pub use quiet::QuietSocket;
pub use spawn::{fork, spawn_tied};
pub use stopping::stopping;
