//! The PHP service, whose responses come from PHP over FastCGI or from resident workers.
//!
//! `script` resolves a path to a script below the root. `variables` makes the variables of a request, with the
//! values that PHP applications know from other servers. `service` sends the request to the group of FastCGI
//! servers, or to a pool of workers. Presets for applications are data: see [`Preset`](apus_sites::Preset).

mod fpm;
mod resident;
mod script;
mod service;
mod settings;
mod socket;
mod variables;

pub use self::service::Php;
pub use self::settings::PhpSettings;
