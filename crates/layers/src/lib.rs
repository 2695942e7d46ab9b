//! What goes around a service, in a site of the configuration as in an application.

#![forbid(unsafe_code)]

mod force_https;

pub use force_https::ForceHttps;
