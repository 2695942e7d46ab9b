//! Layers: the middleware that most applications need.

#![forbid(unsafe_code)]

pub mod auth;
mod catch_panic;
#[cfg(any(feature = "password", feature = "rate-limit"))]
mod client_network;
mod client_wait;
mod cors;
mod etag;
mod force_https;
mod hsts;
mod log;
mod metrics;
#[cfg(feature = "rate-limit")]
mod rate_limit;
mod readiness;
mod request_id;
mod security_headers;
mod timeout;

pub use catch_panic::CatchPanic;
pub use cors::{AllowedOrigins, AnyOrigin, Cors, ListedOrigins};
pub use etag::Etag;
pub use force_https::ForceHttps;
pub use hsts::Hsts;
pub use log::Logged;
pub use metrics::{Metrics, MetricsHandler};
#[cfg(feature = "rate-limit")]
pub use rate_limit::RateLimit;
pub use readiness::Readiness;
pub use request_id::RequestIds;
pub use security_headers::{CspNonce, SecurityHeaders};
pub use timeout::Timeout;
