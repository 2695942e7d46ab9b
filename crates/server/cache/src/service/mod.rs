//! A shared cache in front of a service (RFC 9111).
//!
//! [`Cache`] holds the stored responses of all sites and workers. [`CachedService`] makes a service
//! that responds from it, and forwards the other requests to the service behind it. From the lowest to
//! the highest: `location` has what all others need, `compression` makes compressed forms, `ranges`
//! fetches missing ranges, `prepared_response` makes responses from stored ones, `fetch` forwards
//! requests and stores the responses, `lookup` responds from the store, and `cached` decides about a request.

mod bypass;
mod cache;
mod cache_status;
mod cached;
mod clock;
mod compression;
mod device;
mod exchange;
mod fetch;
mod fill;
mod location;
mod lookup;
mod prepared_response;
mod purge;
mod ranges;
mod settings;
mod use_counter;

pub use self::bypass::CacheUnlessBypassed;
pub use self::cache::Cache;
pub use self::cached::CachedService;
pub use self::purge::{PurgeAccess, PurgeRequest};
pub use self::settings::CacheSettings;
