//! The load generator behind `apus bench`: it sends requests to one server, and reports what it measured of the
//! server and of itself.
//!
//! A [`LoadPlan`] says what is sent, how and for how long; [`run`] carries it out and returns a [`BenchReport`].
//! Each worker thread has its own runtime, its own connections and its own histograms, which are added up without
//! loss at the end. No failure is part of a latency: each is counted under the name of its [`LoadFailure`].

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
pub use cpu_list::CpuList;
pub use error::BenchError;
pub use failure::{FailureCount, LoadFailure};
pub use find_max::{LoadObjective, MaxRateReport, SearchedRate, find_max};
pub use load_run::{LoadProgress, latency_band_start_ms, run, server_pss};
pub use pace::ClientSpeed;
pub use plan::{ConnectionLife, Expectations, HttpVersion, LoadLimit, LoadPlan};
pub use prepared_load::{fetch, run_scenario};
pub use rate::{ArrivalOrder, ArrivalRate};
pub use recorder::ResponseSample;
pub use report::{
    BenchReport, GeneratorReport, IntervalReport, LatencyReport, ServerPoint, ServerReport,
    UrlReport, format_rate, html, to_csv, to_html, to_text,
};
pub use request::PlannedRequest;
pub use scenario::ScenarioPlan;
pub use status_range::parse_statuses;
pub use target::{BenchUrl, parse_duration};
pub use think_time::ThinkTime;
pub use tls::TlsPlan;
pub use usage::MachineReport;
pub use websocket_mode::WebSocketMode;
