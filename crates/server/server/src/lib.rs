//! The server of `apus.toml`: loads the configuration, assembles its services, and runs the engine.
//!
//! # Modules
//!
//! - `load`, `assemble`: a plan of the file, and services of the plan. A service of a new kind gets its handler in
//!   `assemble`.
//! - `run`: the control thread. It does what must not disturb workers: signals, reloads, the control socket, the
//!   writing of logs. `run::commands`: what the operator asks for. A **reload** reads the file, and opens everything that it names, before anything changes; then
//!   the engine hands each worker the new plan.
//! - `privileges`, `helper_protocol`: the helper of a server that is started as root. `privileges::owned_folder`
//!   creates folders.
//! - `explain`: the steps of a request, for `apus explain`. `local_ca`: local certificates (`--tls`). `folder_config`:
//!   a folder without a file.
//! - `certificate_admin`, `certificate_report`, `upstream_admin`, `cache_admin`, `site_admin`, `warm`, `pool_status`: what
//!   commands do through the control socket. `maintenance`: sites in maintenance by command. `ban_control`, `ban_lists`: bans of clients, and files of networks. `glitch_control`: what clients do wrong. `quota_control`:
//!   what quotas have counted. `limit_admin`: limits for commands. `otlp_export`: metrics for a collector. `traffic_lease`: until when requests are counted for `apus status --top`. `audit_log`: who changed what. `config_change`: changes of the configuration that are tried, and its versions. `state_folder`, `saved_file`: what is remembered over restarts.
//!
//! # Decisions
//!
//! - **A process keeps root, not a thread.** Linux has credentials per thread, so a control thread with a few
//!   capabilities would have been less code. But threads share memory: an attacker in a thread that serves clients
//!   would have all of them. The helper is forked before there is a second thread; the server gives up root at once, on
//!   its only thread, so that all later threads start without it. On request the helper reads the files of the
//!   configuration, binds low ports, opens log files that belong to root, and starts PHP of other users. It accepts no
//!   path and no address from the server: it reads the configuration itself, and a request can only select from what it
//!   found there. Start and reload use the same code, so a file that a reload could not read is reported at the start.
//!
//! # Tests
//!
//! `tests/it` has `explain`; the examples of `docs/building-blocks.md` are in
//! `crates/framework/web/tests/it/building_blocks.rs`. The server is tested from outside, as a
//! program, in `crates/tools/cli/tests/it`: `server`, `proxy`, `cache`, `php`, `acme`, `attacks`.

#![forbid(unsafe_code)]

mod admin_server;
pub mod application_log;
pub mod assemble;
mod audit_log;
mod ban_control;
mod ban_lists;
mod browser;
mod cache_admin;
mod certificate_admin;
mod certificate_files;
mod certificate_report;
mod config_change;
mod core_dumps;
mod descriptors;
mod explain;
mod folder_config;
mod glitch_control;
mod helper_protocol;
mod history_sampler;
mod limit_admin;
mod load;
pub mod local_ca;
mod maintenance;
mod otlp_export;
mod pool_status;
mod privileges;
mod quota_control;
mod recent_errors;
mod run;
mod saved_file;
mod serve_error;
mod server_metrics;
mod signals;
mod site_admin;
mod source;
mod state_folder;
mod traffic_lease;
mod upstream_admin;
mod url;
mod warm;

pub use apus_access_log as access_log;
pub use apus_acme as acme;
pub use apus_config as config;
pub use apus_control as control;
pub use apus_control::ControlError;
pub use ban_control::ban_settings;
pub use browser::open_in_browser;
pub use certificate_admin::{
    CertificateAdmin, CertificateAdminError, ImportReport, import_certificates,
};
pub use certificate_report::CertificateReport;
pub use explain::{ExplainError, ExplainRequest, Explanation, explain};
pub use folder_config::{InvalidListen, ListenArgument};
pub use load::{CheckedConfig, LoadError, ask_server_of, check};
pub use maintenance::MaintenanceSwitches;
pub use privileges::PrivilegesError;
pub use run::{ServeOptions, serve};
pub use serve_error::ServeError;
pub use source::{ConfigSource, DEFAULT_FILE, SourceNotFound};
pub use url::InvalidUrl;
pub use warm::{WarmError, WarmResult, warm};
