//! PHP applications, run over FastCGI or by resident workers on the distribution's own PHP.
//!
//! A [`WorkerPool`] has workers: PHP processes that load an application once and then handle request after
//! request. A worker starts as an ordinary FastCGI request to PHP-FPM, or to a `php-cgi` that the pool starts
//! itself ([`plan::Launch`]); the script of that request connects back to the pool and stays. `php/apus.php` is
//! the script, which is part of the binary; `php/WIRE.md` documents the protocol, and [`wire`] is its codec.

#![forbid(unsafe_code)]

mod background;
mod connection;
mod error;
mod error_log;
mod exchange;
pub mod handler;
mod hello;
mod hub;
mod launcher;
mod log_line;
pub mod plan;
mod pool;
mod pools;
mod record;
mod request;
mod response_body;
mod shared;
mod socket;
mod sockets;
mod status;
mod supervisor;
mod supervisor_message;
mod task;
mod topics;
pub mod wire;

pub use error::{PoolStartError, WorkerError};
pub use launcher::{Launcher, PhpProcess};
pub use pool::WorkerPool;
pub use pools::WorkerPools;
pub use request::{WorkerRequest, WorkerResponse};
pub use socket::{PhpSocket, SocketEvents};
pub use sockets::{SocketCommand, SocketCommands};
pub use status::{PhpWorkerStatus, PoolStatus, PoolTotals};
pub use supervisor::{PhpCgiProcess, children_of, end_orphans, spawn};
