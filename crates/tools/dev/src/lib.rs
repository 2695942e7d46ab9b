//! `apus dev`: builds an application of the framework, runs it, and follows its sources.
//!
//! [`run`] listens itself, and sends requests on to the application, which listens on a Unix socket
//! ([`apus_net::DevelopmentSocket`]). So clients never find the port closed: while the application is restarted, requests
//! wait. The supervisor (`supervisor`) publishes the state of the application (`state`), and the service of each worker
//! (`service`) reads it: it forwards a request, or shows why there is no application to forward it to.
//!
//! # Modules
//!
//! `sources` finds which files changed, `supervisor` decides what is done, `cargo_build` and `process` build and run,
//! `dev_service` is what clients get meanwhile. `page` and `script` are the page of errors and the reload of the
//! browser; `content_security` and `meta_policies` allow that script. The address of the application is
//! `apus_net::DevelopmentSocket`.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module; `crates/tools/cli/tests/it/commands` runs `apus dev` on projects.

#![forbid(unsafe_code)]

mod cargo_build;
mod child;
mod content_security;
mod dev_service;
mod diagnostics;
mod meta_policies;
mod options;
mod output;
mod page;
mod panics;
mod process;
mod project;
mod run;
mod script;
mod sources;
mod state;
mod supervisor;
mod terminal;

pub use options::{DevOptions, PackageSelection};
pub use project::ProjectError;
pub use run::{DevError, run};
