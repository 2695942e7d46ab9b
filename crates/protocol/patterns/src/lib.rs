//! The patterns of a configuration: server names for hosts, and globs for paths.
//!
//! # Modules
//!
//! - `server_names`: the site of a host, in the order exact name, `*.name`, `name.*`, regular expression, default.
//!   `hashed` makes the lookup of exact names cheap.
//! - `host_name`: the form in which names of hosts are compared (IDNA), and names that no certificate authority
//!   accepts.
//! - `glob`: patterns of paths.
//!
//! # Decisions
//!
//! - **Globs for paths are our own**, sixty lines over the crate regex. In globset a `**` is special only as a whole
//!   component, `/**/` matches a single slash, and `[` opens a class, so patterns that protect files would match other
//!   paths.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module; `crates/server/sites/tests/it/routing.rs` has whole configurations.

#![forbid(unsafe_code)]

mod glob;
mod hashed;
mod host_name;
mod server_names;

pub use glob::{Glob, InvalidGlob};
pub use host_name::{canonical_host_name, uncertifiable};
pub use server_names::{
    InvalidServerName, ServerName, ServerNameMatch, ServerNames, certificate_covers,
};
