//! PHP: a service whose answers come from PHP over FastCGI.
//!
//! `script` finds the program that a path means, which is one that exists below the root; `variables`
//! are what it is told of the request, as PHP applications know them from other servers; `service` asks
//! the group of FastCGI servers, and `uncached` keeps away from a cache what must not be stored. What a
//! kind of application wants besides is data: see [`Preset`](crate::sites::Preset).

mod fpm;
mod resident;
mod script;
mod service;
mod settings;
mod socket;
mod uncached;
mod variables;

pub use self::service::Php;
pub use self::settings::PhpSettings;
pub use self::uncached::Uncached;
pub(crate) use self::uncached::Untold;
