//! The engine: workers and listeners, which run the codecs over the connections of clients.
//!
//! [`Engine::start`] takes an [`EnginePlan`] and runs it on one pinned thread per worker. A worker owns its
//! sockets, its connections and its services; while it serves a request, it shares nothing with another
//! thread.

mod accept;
mod account;
mod alt_svc;
mod connection;
mod connection_table;
mod counters;
mod development;
mod embedded;
mod engine;
mod h1;
mod h2;
mod h3;
mod http3_settings;
mod limits;
mod linger;
mod listen;
mod plan;
mod port_owner;
mod proxy;
mod run;
mod scheduler;
mod spawn;
mod stop;
mod streams;
pub mod tls;
mod trusted_file;
mod tunnel_limits;
mod worker;

pub use account::{AccountError, SystemAccount};
pub use apus_quic::{CongestionControl, RetryMode};
pub use counters::{WorkerStatus, WorkerTotals};
pub use development::{DEVELOPMENT_SOCKET, DevelopmentSocket, DevelopmentSocketTaken};
pub use embedded::EmbeddedWorker;
pub use engine::{Engine, EngineStartError, EngineStatus};
pub use http3_settings::Http3Settings;
pub use limits::Limits;
pub use listen::{Binder, bind_listener};
pub use plan::{EnginePlan, Http3Secret, ListenAddress, ListenerPlan};
pub use spawn::{fork, spawn_dependent, spawn_in_group};
pub use stop::worker_stop;
pub use trusted_file::read_trusted_file;
pub use tunnel_limits::TunnelLimits;
