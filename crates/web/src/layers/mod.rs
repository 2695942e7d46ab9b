//! Layers: the middleware that most applications want, each a value for [`crate::App::layer`].
//!
//! The first layer is outermost. An order that serves most applications:
//!
//! ```
//! use std::time::Duration;
//!
//! use apus::App;
//! use apus::layers::{Compression, Cors, Etag, Logged, Metrics, RequestIds, SecurityHeaders, Timeout};
//!
//! let metrics = Metrics::new();
//! let app = App::new()
//!     .layer(RequestIds::new())
//!     .layer(Logged::new())
//!     .layer(metrics.clone())
//!     .layer(SecurityHeaders::new())
//!     .layer(Cors::new().origin("https://shop.example").credentials())
//!     .layer(Compression::default())
//!     .layer(Etag::new())
//!     .layer(Timeout::new(Duration::from_secs(30)))
//!     .get("/metrics", metrics.handler())
//!     .get("/", async || "Hello!\n");
//! # app.check().unwrap();
//! ```
//!
//! What a layer refuses is answered as an [`crate::Error`] of a handler would be: as text, a page or
//! problem details, by what the client accepts. A layer costs nothing where it has nothing to do, and no future where the answer is there at once.

mod body_limit;
mod catch_panic;
mod client_info;
#[cfg(feature = "compress")]
mod compress;
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

pub use self::body_limit::BodyLimit;
pub use self::catch_panic::CatchPanic;
pub use self::client_info::{ClientInfo, ForwardedField, TrustedProxies};
pub use self::cors::{AllowedOrigins, AnyOrigin, Cors, ListedOrigins};
pub use self::etag::Etag;
pub use self::force_https::ForceHttps;
pub use self::log::Logged;
pub use self::metrics::{Metrics, MetricsHandler};
#[cfg(feature = "rate-limit")]
pub use self::rate_limit::RateLimit;
#[cfg(feature = "password")]
pub(crate) use self::rate_limit::network_of;
pub use self::request_id::{RequestId, RequestIds};
pub use self::security_headers::{CspNonce, SecurityHeaders};
pub use self::timeout::Timeout;

#[cfg(feature = "compress")]
pub use apus_compress::Compression;
