//! The server of `apus.toml`: loads the configuration, assembles its services, and runs the engine.

#![forbid(unsafe_code)]

pub mod application_log;
pub mod assemble;
mod browser;
mod cache_admin;
mod certificate_admin;
mod certificate_report;
mod core_dumps;
mod descriptors;
mod explain;
mod folder_config;
mod helper_protocol;
mod load;
pub mod local_ca;
mod pool_status;
mod privileges;
mod run;
mod serve_error;
mod signals;
mod source;
mod upstream_admin;
mod url;
mod warm;

pub use apus_access_log as access_log;
pub use apus_acme as acme;
pub use apus_config as config;
pub use apus_control as control;
pub use apus_control::ControlError;
pub use browser::open_in_browser;
pub use certificate_admin::{
    CertificateAdmin, CertificateAdminError, ImportReport, import_certificates,
};
pub use certificate_report::CertificateReport;
pub use explain::{ExplainError, ExplainRequest, Explanation, explain};
pub use folder_config::{InvalidListen, ListenArgument};
pub use load::{CheckedConfig, LoadError, ask_server_of, check};
pub use privileges::PrivilegesError;
pub use run::{ServeOptions, serve};
pub use serve_error::ServeError;
pub use source::{ConfigSource, DEFAULT_FILE, SourceNotFound};
pub use url::InvalidUrl;
pub use warm::{WarmError, WarmResult, warm};
