//! Layers, over real connections.

mod cors;
mod etags;
mod files;
pub(crate) mod logs;
mod metrics;
mod panics;
mod rate_limit;
mod security_headers;
mod timeout;

pub(crate) use logs::logged;
