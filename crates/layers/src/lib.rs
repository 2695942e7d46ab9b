//! Layers: the middleware that most applications need.

#![forbid(unsafe_code)]

mod catch_panic;
mod cors;
mod etag;
mod force_https;
mod log;
mod metrics;
#[cfg(feature = "rate-limit")]
mod rate_limit;
mod request_id;
mod security_headers;
mod timeout;

pub use catch_panic::{CatchPanic, panic_message};
pub use cors::{AllowedOrigins, AnyOrigin, Cors, ListedOrigins};
pub use etag::Etag;
pub use force_https::ForceHttps;
pub use log::Logged;
pub use metrics::{Metrics, MetricsHandler};
#[cfg(feature = "rate-limit")]
pub use rate_limit::{RateLimit, network_of};
pub use request_id::{RequestId, RequestIds};
pub use security_headers::{CspNonce, SecurityHeaders};
pub use timeout::Timeout;
