//! The commands of `apus`, run as an operator runs them.

mod application;
mod check;
mod control;
pub(crate) mod dev;
mod explain;
mod help;
mod new;
mod serve;
mod serve_tls;
