//! apus.toml, read into a plan and run.

pub mod assemble;
mod caching;
mod descriptors;
mod explain;
mod folder;
mod helper_protocol;
mod load;
pub mod local_ca;
pub mod logging;
mod php;
mod privileges;
mod run;
mod signals;
mod source;
mod upstreams;
mod url;
mod warm;

pub use apus_access_log as access_log;
pub use apus_config as config;
pub use apus_control as control;
pub use apus_control::{ControlError, ask};
pub use explain::{ExplainError, Explanation, Question, explain};
pub use folder::{InvalidListen, ListenArgument};
pub use load::{LoadError, ask_server_of, check};
pub use privileges::PrivilegesError;
pub use run::{ServeError, ServeOptions, serve};
pub use source::{DEFAULT_FILE, NoSource, Source};
pub use url::UrlError;
pub use warm::{WarmError, Warmed, warm};
