//! What a server and a client need of sockets: byte streams, TLS, buffers, time.
//!
//! [`Transport`] is the byte stream of a connection, in clear text or under TLS. An [`InputBuffer`] holds what
//! was read from it and a [`write_batch::WriteBatch`] what is written to it, in [`buffers`] that a connection
//! borrows while it needs them. [`BodySender`] passes a body that arrives to its reader, and [`tunnel`] turns
//! a connection or a stream into one. This crate knows no protocol but the frames that [`write_batch`] makes
//! room for; the roles are in `apus-net` and `apus-client`.
//!
//! # Modules
//!
//! - `transport`, `socket`, `tls`: the byte stream of a connection. `read_interest` waits for input without a read that
//!   would find nothing.
//! - `input`, [`buffers`], [`write_batch`]: what was read, and what is written in one vectored write of at most 128
//!   KiB. Bodies in memory are not copied before TLS encrypts them.
//! - `body`, `body_chunk`: bodies on their way to a reader, with the windows that they hold open.
//! - `clock`, `precise_timer`: the time of a worker. A busy worker reads it once in a tick.
//! - [`per_worker`]: a value for each worker, such as connections to a server.
//! - [`descriptors`]: the account of file descriptors, from which `crates/engine/net` and pools take shares.
//! - `stream_wakers`, `poll_budget`, `yield_task`: how tasks of one connection take turns.
//! - [`tunnel`]: a connection or a stream that became one, for Upgrade and CONNECT.
//! - `send_rate`: how slowly a client may take a response.
//!
//! # Features
//!
//! `tls` is TLS by rustls and aws-lc-rs. Without it there is no module `tls`, and a [`Transport`] is in clear text.
//!
//! # Decisions
//!
//! - **tokio, not epoll or `io_uring`.** Our own epoll and `io_uring` loops took the same CPU time per request, within
//!   noise.
//! - **rustls with aws-lc-rs** is the only TLS library. `cargo deny` rejects any other.
//! - **Buffers belong to a pool** ([`buffers`]). An idle connection holds none.
//! - **Requests that arrive together are forwarded together** (`yield_task`): before a task writes to an origin, it
//!   lets the other ready tasks read. The origin wakes up once for several requests, which saves 5 to 10% of a proxied
//!   request. Doing the same for responses saved nothing.
//! - **Certificates in other forms than PEM are named** (`tls`), with the command that converts them; tests are in
//!   `crates/tools/cli/tests/it/commands/pem_forms.rs`.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. Over sockets this crate is tested by the tests of `crates/engine/net`
//! and `crates/engine/client`.

mod body;
mod body_chunk;
pub mod buffers;
mod clock;
pub mod descriptors;
pub mod file;
mod input;
pub mod per_worker;
mod poll_budget;
mod precise_timer;
mod read_interest;
mod send_rate;
mod socket;
mod stream_wakers;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
mod transport;
pub mod tunnel;
mod unread;
pub mod write_batch;
mod yield_task;

pub use body::{BodyProgress, BodyReceiver, BodySender, UnreadBytes};
pub use body_chunk::{BodyChunk, ChunkPart};
pub use clock::{TICK, WorkerClock, coarse_now, deadline_from};
pub use input::InputBuffer;
pub use poll_budget::PollBudget;
pub use precise_timer::PreciseTimer;
pub use read_interest::ReadInterestSocket;
pub use send_rate::SendRate;
pub use socket::{StreamSocket, canonical};
pub use stream_wakers::StreamWakers;
pub use transport::Transport;
pub use unread::unread_memory;
pub use yield_task::{take_yield, yield_to_events, yield_to_ready_tasks};
