//! PHP: a service whose answers come from PHP over FastCGI.
//!
//! `script` finds the program that a path means, which is one that exists below the root; `variables`
//! are what it is told of the request, as PHP applications know them from other servers; `service` asks
//! the group of FastCGI servers, or a pool of resident workers. What a kind of application needs besides is
//! data: see [`Preset`](apus_sites::Preset).

mod fpm;
mod resident;
mod script;
mod service;
mod settings;
mod socket;
mod variables;

pub use self::service::Php;
pub use self::settings::PhpSettings;
