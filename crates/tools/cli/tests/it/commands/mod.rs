//! The commands of `apus`, run as an operator runs them.

mod application;
mod bench;
mod check;
mod control;
mod db;
pub(crate) mod dev;
mod explain;
mod help;
mod new;
mod pem_forms;
mod serve;
mod serve_tls;
mod top;
