//! A shared cache in front of a service (RFC 9111).
//!
//! ```
//! use apus::cached::{Cache, CacheSettings, Cached, StoreSettings};
//! use apus::testing::TestClient;
//! use apus::{App, Files};
//!
//! let folder = std::env::temp_dir().join(format!("cached-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! std::fs::write(folder.join("a.txt"), "swifts")?;
//!
//! // One cache for all services of the process.
//! let cache = Cache::new(StoreSettings { memory_bytes: 64 << 20, ..StoreSettings::default() });
//! let cached = Cached::new(&cache, "files", CacheSettings::default(), Files::new(&folder));
//! let client = TestClient::new(App::new().mount("/", cached));
//! client.get("/a.txt").send().assert_text("swifts");
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), std::io::Error>(())
//! ```

pub use apus_cache::service::{
    Cache, CacheSettings, CacheUnlessBypassed, CachedService as Cached, PurgeAccess, PurgeRequest,
};
pub use apus_cache::store::{
    CacheStatistics, DiskSettings, PurgeCount, PurgeReceipt, PurgeSelector, StoreSettings,
};
