//! The load generator behind `apus bench`: it sends requests to one server, and reports what it measured of the
//! server and of itself.
//!
//! A [`LoadPlan`] says what is sent, how and for how long; [`run`] carries it out and returns a [`BenchReport`].
//! Each worker thread has its own runtime, its own connections and its own histograms, which are added up without
//! loss at the end. No failure is part of a latency: each is counted under the name of its [`LoadFailure`].
//!
//! # Modules
//!
//! - `plan`, `rate`, `arrivals`, `pace`: what is sent. A closed loop sends when a response has come; an open loop sends
//!   at the times of an `ArrivalRate`, and its latencies count from when a request was due. `find_max` searches the
//!   highest rate that meets objectives.
//! - `load_run`, `worker`, `generator`: threads that carry it out. `protocol`: HTTP/1.1, HTTP/2, HTTP/3, WebSocket and
//!   gRPC, over the codecs of Apus.
//! - `scenario`: requests of a TOML file one after another, with checks and captured values.
//! - `recorder`, `report`: histograms, and the report as text, JSON, CSV or a page.
//! - `usage`: what processes and the machine consume, as the kernel of Linux tells: CPU, context switches, memory,
//!   descriptors, disks, energy.
//! - `comparison`: several servers, measured in turn under the same load until it is known how they differ, for `apus
//!   bench compare`. A `ComparisonFile` names the servers, the load on each and how they are started; the result has
//!   medians, intervals, and the ratios to one of the servers with how sure each difference is.
//!
//! # Decisions
//!
//! - **Each thread of the generator has its own runtime, connections and histograms**, as a worker of the server has,
//!   so that the generator's cost per request does not grow with cores.
//! - **No failure is part of a latency**, since a refused connection is fast.
//! - **The generator measures itself.** A report says when a thread of it was busy or late, because figures of a server
//!   are then figures of the generator.
//!
//! # Tests
//!
//! `tests/it`: latencies against known schedules (`accuracy`), failures, protocols, scenarios, comparisons. `make
//! bench-crosscheck` compares the figures with what h2load, wrk and k6 report.

#![forbid(unsafe_code)]

mod arrivals;
pub mod comparison;
mod connect;
mod cpu_list;
mod error;
mod failure;
mod find_max;
mod generator;
mod load_run;
mod pace;
mod plan;
mod prepared_load;
mod protocol;
mod rate;
mod recorder;
mod report;
mod request;
mod scenario;
mod status_page;
mod status_range;
mod target;
mod think_time;
mod tls;
pub mod usage;
mod websocket_mode;
mod worker;

pub use apus_transport::tls::Certificate as ClientCertificate;
pub use cpu_list::{CpuList, InvalidCpuList};
pub use error::BenchError;
pub use failure::{FailureCount, LoadFailure};
pub use find_max::{InvalidObjective, LoadObjective, MaxRateReport, SearchedRate, find_max};
pub use load_run::{LoadProgress, latency_band_start_ms, run, server_pss};
pub use pace::ClientSpeed;
pub use plan::{ConnectionLife, Expectations, HttpVersion, LoadLimit, LoadPlan};
pub use prepared_load::{fetch, run_scenario};
pub use rate::{ArrivalOrder, ArrivalRate, InvalidRate};
pub use recorder::ResponseSample;
pub use report::{
    BenchReport, GeneratorReport, IntervalReport, LatencyReport, ServerPoint, ServerReport,
    UrlReport, format_rate, html, to_csv, to_html, to_text,
};
pub use request::PlannedRequest;
pub use scenario::ScenarioPlan;
pub use status_range::{InvalidStatuses, parse_statuses};
pub use target::{BenchUrl, InvalidBenchUrl, InvalidDuration, parse_duration};
pub use think_time::{InvalidThinkTime, ThinkTime};
pub use tls::TlsPlan;
pub use usage::MachineReport;
pub use websocket_mode::WebSocketMode;
