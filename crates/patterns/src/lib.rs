//! Patterns that a configuration names hosts and paths by.

#![forbid(unsafe_code)]

mod glob;
mod hashed;
mod server_names;

pub use glob::{Glob, InvalidGlob};
pub use server_names::{InvalidServerName, Match, ServerName, ServerNames, certificate_covers};
