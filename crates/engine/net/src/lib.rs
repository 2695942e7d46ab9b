//! The engine: workers and listeners, which run the codecs over the connections of clients.
//!
//! [`Engine::start`] takes an [`EnginePlan`] and runs it on one pinned thread per worker. A worker owns its
//! sockets, its connections and its services; while it serves a request, it shares nothing with another
//! thread.
//!
//! # From accept to close
//!
//! | step | module | what happens |
//! | --- | --- | --- |
//! | listen | `listen`, `h3::sockets` | Binds the sockets before a new plan replaces the old one. A socket that both plans name stays open. Beside the TCP socket, a UDP socket is bound for each worker; if that fails, the other protocols are served. |
//! | accept | `accept`, `connection_table` | Accepts connections. A listener that a reload removes first makes the kernel ignore new clients, and then accepts what waits in its queue, so that no connection is reset. Clients that may not connect and try again and again are dropped by the kernel (`syn_filter`), and what they have open is closed (`refused_clients`). When descriptors run short, it closes waiting connections in the order of `EvictionRank`; when there are none left, it waits a moment before it tries again. |
//! | connection | `connection` | Runs a connection from accept to close: PROXY header, TLS handshake, HTTP. |
//! | PROXY header | `proxy` | Reads the PROXY header, with which every connection from a network that the plan trusts must begin. |
//! | TLS | `tls::handshake`, `tls::quic` | Reads the ClientHello, selects the certificate of the site, and finishes the handshake. A session of one site cannot be resumed at another. |
//! | HTTP/1.1 | `h1` | Handles the requests of a connection one after another. Responses to pipelined requests are sent in one write. `h1::exchange` calls the service, passes it the body as it reads it, and turns a panic into a 500. |
//! | HTTP/2 | `h2`, `streams` | Runs all streams of a connection in one task: reads all available bytes, handles every frame, polls the streams that were woken, writes once, and repeats. |
//! | HTTP/3 | `h3`, `streams` | The same over QUIC; the requests over streams are the same code. `h3::endpoint` enters connections in the table of the worker, under the same limits, and ends them at a reload or a stop. |
//! | bodies | `h1::request_body`, `streams::request_body` | Limits clients by flow-control windows, which open as the service reads the body, and grow with the bandwidth-delay product. |
//! | write | `h1::send`, `h2::output`, `h3::output` | Collects small responses in one buffer, sends large ones by `writev`, and files and sealed memory by `sendfile`. |
//! | tunnel | `streams::responses` | Presents an extended CONNECT to services as an Upgrade, and turns its stream into a tunnel. |
//! | offer | `alt_svc` | Tells clients over TCP of HTTP/3 (`Alt-Svc`). |
//!
//! # Threads
//!
//! There is one **worker** per core: a pinned thread with its own single-threaded runtime, its own `SO_REUSEPORT`
//! sockets and its own services. `run` runs it; `worker` has the state that its connections share. Services are `Rc`,
//! and futures need not be `Send`. A request takes no locks and touches no shared atomics, except where something
//! belongs to all workers, which the decisions of its crate name. Counters are per worker and added up when they are
//! read. Blocking work, such as reads of files that are not in memory and heavy compression, has its own threads.
//!
//! **Reload**: `engine` hands each worker the new plan, which replaces the parts of the listeners that open connections
//! share (`take_over` in `run` and `worker`). New requests use the new plan, open connections and requests continue,
//! and none is lost.
//!
//! `embedded` serves on the thread of its caller, for a program in C that has its own loop. `spawn` starts processes
//! that end with the server; `stop_signals` waits for SIGTERM, SIGINT and SIGQUIT; `trusted_file` decides which files root reads, and through which links;
//! `development` has the address that `apus dev` gives to an application.
//!
//! # Features
//!
//! `tls` is TLS, and `http3` HTTP/3 over QUIC with it. Without a feature, a module of the same name (`tls_off`, `h3_off`) takes
//! the place of the one that it leaves out, with types that have no values.
//!
//! # Decisions
//!
//! - **Deadlines are numbers in a table** that is checked when the earliest is due (`connection_table`). Setting one
//!   costs a store; a request registers and moves no timer. Deadlines are as coarse as a tick, which is fine for
//!   time-outs in seconds.
//! - **An idle worker sleeps until its next deadline** (`scheduler`). When it wakes up, it reads the clock first.
//! - **What a worker knows about files is its own.** Nothing needs a lock, and each core has its files in its own
//!   cache. Compressed variants, which take time to make, are made once for all workers.
//! - **The keys of session tickets are derived for each site** (`tls::tickets`), from a secret that is stored, where
//!   the tickets of rustls have keys of the process that cannot be given to it. `crates/server/acme` keeps the secret.
//! - **0-RTT (early data) is for requests without effects only** (`h3::input`): others get 425, and origins get
//!   `Early-Data: 1` (RFC 8470). Sessions of QUIC have state and can be resumed once (`tls::sessions`), because a
//!   ticket without state could be replayed. There is no early data over TCP.
//! - **Limits are in one type** ([`Limits`]), and each is a key of `[global]`. Versions, cipher suites and groups of
//!   TLS are in `tls::policy`.
//!
//! # Tests
//!
//! `tests/it`, over sockets on loopback: `framing`, `h2`, `h3`, `limits`, `tls`, `persistence`, `reload` and others.

mod accept;
mod account;
mod alt_svc;
mod client_filter;
mod connection;
mod connection_table;
mod counters;
mod development;
mod embedded;
mod engine;
mod h1;
mod h2;
#[cfg(feature = "http3")]
mod h3;
#[cfg(not(feature = "http3"))]
#[path = "h3_off.rs"]
mod h3;
#[cfg(feature = "http3")]
mod http3_settings;
#[cfg(not(feature = "http3"))]
#[path = "http3_settings_off.rs"]
mod http3_settings;
mod limits;
mod linger;
mod listen;
mod load_meter;
mod plan;
mod port_owner;
mod proxy;
mod refused_clients;
mod run;
mod scheduler;
mod slow_receivers;
mod spawn;
mod stop;
mod stop_signals;
mod streams;
mod syn_filter;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
mod trusted_file;
mod tunnel_limits;
mod tunnel_refusal;
mod worker;

pub use account::{AccountError, SystemAccount};
#[cfg(feature = "http3")]
pub use apus_quic::{CongestionControl, RetryMode};
pub use client_filter::{ClientFilter, ClientRefusal};
pub use counters::{WorkerStatus, WorkerTotals};
pub use development::{DEVELOPMENT_SOCKET, DevelopmentSocket, DevelopmentSocketTaken};
pub use embedded::EmbeddedWorker;
pub use engine::{Engine, EngineStartError, EngineStatus};
#[cfg(feature = "http3")]
pub use http3_settings::{Http3Secret, Http3Settings};
pub use limits::Limits;
pub use listen::{Binder, bind_listener};
pub use plan::{EnginePlan, ListenAddress, ListenerPlan};
pub use slow_receivers::SlowReceivers;
pub use spawn::{fork, spawn_dependent, spawn_in_group};
pub use stop::worker_stop;
pub use stop_signals::StopSignals;
pub use trusted_file::read_trusted_file;
pub use tunnel_limits::TunnelLimits;
