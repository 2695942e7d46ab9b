//! A shared cache in front of a service (RFC 9111).

pub use apus_cache::service::{
    Cache, CacheSettings, CacheUnlessBypassed, CachedService as Cached, PurgeAccess, PurgeRequest,
};
