//! The C interface of Apus: the library behind `apus.h`.
//!
//! Each function of the header is a function here. Objects are opaque: C has pointers to the types of this crate, as `Box`es where
//! it owns them, and as references where it lends them. No panic leaves a function (`border`), and each error has a text
//! (`error`).
//!
//! `unsafe` code is needed where C and Rust meet: texts and bytes that are pointers, callbacks with the pointers of their users,
//! and objects that threads hand to one another as the header allows.

mod access_log;
mod allocator;
mod app;
mod background;
mod border;
mod callback;
mod config;
mod deferred;
mod error;
mod executor;
mod handles;
mod lifetime;
mod log;
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
pub use log::*;
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
