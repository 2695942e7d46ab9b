//! The C interface of Apus: the library behind `apus.h`.
//!
//! Each function of the header is a function here. Objects are opaque: C has pointers to the types of this crate, as
//! `Box`es where it owns them, and as references where it lends them. No panic leaves a function (`ffi`), and each
//! error has a text (`error`).
//!
//! `unsafe` code is needed where C and Rust meet: texts and bytes that are pointers, callbacks with the pointers of
//! their users, and objects that threads hand to one another as the header allows.
//!
//! # Modules
//!
//! One file for each part of the header: `app`, `request`, `response`, `writer`, `deferred`, `server`, `websocket`,
//! `rooms`, `sse`, `worker` and others. `ffi`, `handles`, `lifetime` and `callback` are the FFI boundary. `apus.h` is
//! made of this crate; `apus.hpp` is written by hand.
//!
//! # Decisions
//!
//! - **An error is a number and a text of the thread**, as with errno; a server whose set-up had an error does not
//!   start, so that no result has to be checked by every line of a program.
//! - **A use of a request or response after its end aborts builds for debugging** (`lifetime`), with the name of the
//!   handler to which it belonged. Other builds check nothing and pay nothing for it.
//!
//! # Tests
//!
//! `tests/it` builds programs in C and C++: a new function gets a route in `tests/c/server.c`, and its client in
//! `tests/it/server.rs`. Valgrind looks at them; `tests/examples` runs the examples.

mod access_log;
mod allocator;
mod app;
mod background;
mod callback;
mod callback_name;
mod config;
mod deferred;
mod error;
mod executor;
mod ffi;
mod handles;
mod last_error;
mod lifetime;
mod log;
mod owned_text;
mod request;
mod response;
mod rooms;
mod server;
mod service;
mod sse;
mod text;
mod tls;
mod user;
mod websocket;
mod worker;
mod writer;

pub use access_log::*;
pub use allocator::*;
pub use app::*;
pub use callback::*;
pub use config::*;
pub use deferred::*;
pub use error::*;
pub use executor::*;
pub use handles::*;
pub use last_error::*;
pub use log::*;
pub use owned_text::*;
pub use request::*;
pub use response::*;
pub use rooms::*;
pub use server::*;
pub use service::*;
pub use sse::*;
pub use text::*;
pub use tls::*;
pub use user::*;
pub use websocket::*;
pub use worker::*;
pub use writer::*;
