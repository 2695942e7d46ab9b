//! The patterns of a configuration: server names for hosts, and globs for paths.

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
