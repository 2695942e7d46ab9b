//! The patterns of a configuration: server names for hosts, and globs for paths.
//!
//! # Modules
//!
//! - `server_names`: the site of a host, in the order exact name, `*.name`, `name.*`, regular expression, default.
//! - `host_name`: the form in which names of hosts are compared (IDNA). `uncertifiable`: names that no certificate authority
//!   accepts. `regex_name`: names that are regular expressions.
//! - `glob`: patterns of paths. `hashed`: names of files with a content hash.
//!
//! # Features
//!
//! `idna` is for names in other scripts, with the tables of Unicode (25 packages). `regex` is for globs and for server names
//! that are regular expressions. Without a feature, a name that needs it is invalid, and the error names the feature.
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

#[cfg(feature = "regex")]
mod glob;
#[cfg(feature = "regex")]
mod hashed;
mod host_name;
#[cfg(feature = "regex")]
mod regex_name;
#[cfg(not(feature = "regex"))]
#[path = "regex_name_off.rs"]
mod regex_name;
mod server_names;
#[cfg(feature = "idna")]
mod uncertifiable;

#[cfg(feature = "regex")]
pub use glob::{Glob, InvalidGlob};
pub use host_name::canonical_host_name;
pub use regex_name::InvalidNameRegex;
pub use server_names::{
    InvalidServerName, ServerName, ServerNameMatch, ServerNames, certificate_covers,
};
#[cfg(feature = "idna")]
pub use uncertifiable::uncertifiable;
