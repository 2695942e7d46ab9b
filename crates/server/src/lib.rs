//! apus.toml, read into a plan and run.

pub mod access_log;
pub mod config;
pub mod control;
pub mod local_ca;
pub mod logging;
