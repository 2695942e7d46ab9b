//! Layers: the middleware that most applications need, for [`crate::App::layer`].
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
//! A layer rejects a request like a handler that returns an [`crate::Error`]: with text, a page or problem
//! details, by what the client accepts. A layer makes no future if the response is ready at once.

pub use apus_handler::{BodyLimit, ClientInfo, ForwardedField, TrustedProxies};
pub use apus_http::RequestId;
#[cfg(feature = "etag")]
pub use apus_layers::Etag;
pub use apus_layers::{
    AccessCheck, AccessDecision, AccessGrant, AllowedOrigins, AnyOf, AnyOrigin, BrowserChallenge,
    CatchPanic, ChallengeKey, ChallengeLevel, ConditionalLayer, Cors, CspNonce, ForceHttps, Hsts,
    LabelValue, ListedOrigins, Logged, Maintenance, MaintenanceState, MaintenanceSwitch, MapLayer,
    MetricDefinition, MetricFamily, MetricFormat, MetricSamples, MetricUnit, MetricValue, Metrics,
    MetricsHandler, NetworkAccess, Referers, RequestIds, RequestMap, RequestMaps,
    RequireClientCertificate, SecurityHeaders, Timeout,
};
#[cfg(feature = "rate-limit")]
pub use apus_layers::{
    BandwidthLimit, ConcurrentRequests, InvalidLimitKey, LimitFacts, LimitHandle, LimitKey,
    QuotaKeyUsage, QuotaLimit, QuotaReport, QuotaWindow, RateLimit, TimeZone,
};
#[cfg(feature = "bots")]
pub use apus_layers::{BotClaim, BotProof, Bots, KnownBot};

#[cfg(feature = "compress")]
pub use apus_compress::Compression;
