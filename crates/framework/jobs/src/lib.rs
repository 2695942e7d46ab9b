//! Work beside requests: queues of jobs with retries, and schedules.
//!
//! ```
//! use apus_handler::{HandlerService, Result, State};
//! use apus_jobs::{Job, JobRunner, Jobs};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct SendMail {
//!     to: String,
//! }
//!
//! impl Job for SendMail {
//!     const NAME: &'static str = "send mail";
//! }
//!
//! async fn order(State(jobs): State<Jobs>) -> Result<&'static str> {
//!     jobs.push(&SendMail { to: "ada@example.com".to_owned() }).await?;
//!     Ok("thank you")
//! }
//!
//! let jobs = Jobs::in_memory();
//! let runner = JobRunner::new(&jobs).on(async |mail: SendMail| {
//!     println!("to {}", mail.to);
//!     Ok::<(), std::io::Error>(())
//! });
//! let service = HandlerService::new(order).state(jobs);
//! # let worker = apus_testkit::LocalClient::of(&service);
//! # assert_eq!(worker.send(apus_testkit::ask("POST", "/order")).text(), "thank you");
//! # worker.run(async {
//! assert_eq!(runner.run_due().await.unwrap(), 1);
//! # });
//! ```
//!
//! The package `apus` exports this crate as `apus::jobs`, and its `Server` runs a runner beside an application.
//!
//! A job runs at least once: after a crash, or if the store cannot be reached when it ends, it runs again. Make its
//! work safe to repeat.
//!
//! # Modules
//!
//! `job`, `queue`, `record`: a job, and the queue that it is pushed to. `store`: what a store has to do, with `memory`,
//! `sql` and `redis`. `runner`: runs jobs, repeats those that fail, and keeps dead letters, which `commands` lists,
//! repeats and forgets. `schedules`, `cron`: work at given times, once for all processes.
//!
//! # Decisions
//!
//! - **A store gives a job to one runner for a time, not until it says that it is done.** So the job of a process that
//!   crashed runs again, and no process has to be declared dead.
//!
//! # Tests
//!
//! `tests/it`: most tests are of all stores. A runner of a server is in `crates/framework/web/tests/it/jobs.rs`.

#![forbid(unsafe_code)]

mod commands;
mod cron;
mod error;
mod job;
mod memory;
mod metrics;
mod queue;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod runner;
mod schedules;
#[cfg(feature = "sql")]
mod sql;
mod store;

pub use commands::JobCommands;
pub use cron::{CronError, CronExpression};
pub use error::JobError;
pub use job::{Job, JobSettings, PushOptions};
pub use queue::Jobs;
pub use record::{DeadJob, JobCounts, JobId};
pub use runner::JobRunner;
pub use schedules::Schedules;
