//! PHP applications that stay in memory, on the distribution's own PHP.
//!
//! A [`Pool`] has workers: PHP processes that loaded an application once and then answer request after
//! request. They are ordinary FastCGI requests to PHP-FPM, or to a `php-cgi` that the pool starts itself
//! ([`plan::Launch`]), whose script connects back to us and stays. `php/apus.php` is their side, carried
//! inside the program; `php/WIRE.md` is what both sides say, and [`wire`] its codec, without I/O.

#![forbid(unsafe_code)]

mod after;
mod connection;
mod content;
mod error;
mod exchange;
mod greeting;
pub mod handler;
mod hub;
mod launcher;
mod line;
pub mod plan;
mod pool;
mod pools;
mod record;
mod request;
mod shared;
mod signal;
mod socket;
mod sockets;
mod status;
mod supervisor;
mod task;
pub mod wire;

pub use error::{Failure, StartError};
pub use launcher::{Launched, Launcher};
pub use pool::Pool;
pub use pools::Pools;
pub use request::{WorkerRequest, WorkerResponse};
pub use socket::{Socket, SocketEvents};
pub use sockets::{SocketOrder, SocketOrders};
pub use status::{PoolStatus, PoolTotals, WorkerStatus};
pub use supervisor::spawn;
