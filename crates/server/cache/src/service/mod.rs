//! A shared cache in front of a service (RFC 9111).
//!
//! [`Cache`] holds the stored responses of all sites and workers. [`CachedService`] makes a service
//! that responds from it, and forwards the other requests to the service behind it. `cached`
//! decides about a request, `prepared_response` makes responses from stored ones, `fetch` forwards
//! requests and stores the responses, `ranges` fetches missing ranges, and `compression` makes
//! compressed forms.

mod bypass;
mod cache_status;
mod cached;
mod clock;
mod compression;
mod device;
mod fetch;
mod prepared_response;
mod purge;
mod ranges;
mod settings;
mod use_counter;

pub use self::bypass::CacheUnlessBypassed;
pub use self::cached::CachedService;
pub use self::purge::{PurgeAccess, PurgeRequest};
pub use self::settings::{Cache, CacheSettings};
