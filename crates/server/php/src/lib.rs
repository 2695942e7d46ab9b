//! PHP applications, run over FastCGI or by resident workers on the distribution's own PHP.
//!
//! A [`WorkerPool`] has workers: PHP processes that load an application once and then handle request after
//! request. A worker starts as an ordinary FastCGI request to PHP-FPM, or to a `php-cgi` that the pool starts
//! itself ([`plan::Launch`]); the script of that request connects back to the pool and stays. `php/apus.php` is
//! the script, which is part of the binary; `php/WIRE.md` documents the protocol, and [`wire`] is its codec.
//!
//! # A request
//!
//! 1. The file, if there is one, is sent by apus-files, but never the source of a script.
//! 2. `handler::script` resolves the path to a script that exists below the root.
//! 3. `handler::variables` makes the variables of the script. No field of a client can replace a variable of the
//!    server.
//! 4. `handler::service` buffers the request body and sends the request to the FastCGI group, as the proxy does. With
//!    `workers`, `handler::resident` sends it to an idle resident worker instead (`pool`, `shared`), by one write and
//!    one read on its connection; if there is none, the request waits in the queue.
//! 5. The response is read ahead (apus-proxy), so that a slow client does not occupy the process.
//!
//! # Resident workers
//!
//! Each pool has a thread (`supervisor`) that starts the workers, kills those that hang, starts others for those that
//! ended, after a delay if they fail, and replaces all of them when the application changed. It is not on the path of a
//! request: the thread that serves a request takes a connection out of the pool, and holds the lock of the pool only
//! for that. `supervisor::schedule` has the time limits, `supervisor::php_cgi` the `php-cgi` master,
//! `supervisor::process` what ends with it.
//!
//! [`wire`] is the protocol of these workers; a change of it is a change of `php/WIRE.md` and `php/apus.php`, too.
//!
//! # Decisions
//!
//! - **Workers run on the distribution's own PHP**, started as an ordinary FastCGI request whose script connects back.
//!   An extension of PHP or an embedded interpreter would have to be built for each version of PHP.
//! - **A worker that PHP cannot reset is replaced.** `docs/resident-php.md` lists the state that is reset between
//!   requests.
//!
//! # Tests
//!
//! `tests/it` runs pools against PHP; `php/tests/run` tests the part that is written in PHP;
//! `crates/tools/cli/tests/it/php` compares the same scripts behind nginx with PHP-FPM and behind Apus, in all modes.

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
