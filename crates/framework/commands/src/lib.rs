//! Commands of an application's own program, such as `shop db migrate` and `shop jobs list`.
//!
//! A [`CommandGroup`] is the name of a group of commands, which is the first argument of the program, with their usage. The database
//! and the jobs of an application each have one. A command ends with a [`CommandReport`] or a [`CommandFailure`], which the
//! group prints and turns into the exit code.
//!
//! # Modules
//!
//! - `command_group`: the arguments of the program, and what a command reports.
//! - `own_thread`: runs the future of a command and blocks until it ends, beside a runtime or without one.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. Commands are tested from outside in `crates/framework/database`,
//! `crates/framework/jobs` and `crates/tools/cli/tests/it/commands`.

#![forbid(unsafe_code)]

mod command_group;
mod own_thread;

pub use command_group::{CommandFailure, CommandGroup, CommandReport};
pub use own_thread::run_on_own_thread;
