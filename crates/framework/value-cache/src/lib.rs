//! A cache of the values of an application, in memory or in Redis.
//!
//! ```
//! use std::time::Duration;
//!
//! use apus::cache::ValueCache;
//! use apus::testing::TestClient;
//! use apus::{App, Result, State};
//!
//! async fn report(State(cache): State<ValueCache>) -> Result<String> {
//!     cache
//!         .remember("report", Duration::from_secs(60), async || {
//!             // A statement that takes its time.
//!             Ok("the report".to_owned())
//!         })
//!         .await
//! }
//!
//! let app = App::new()
//!     .state(ValueCache::in_memory(16 * 1024 * 1024))
//!     .get("/report", report);
//! TestClient::new(app).get("/report").send().assert_text("the report");
//! ```
//!
//! Values are kept as JSON. A store that fails costs time, never a response: values are computed as if they
//! were not stored.
//!
//! # Modules
//!
//! `cache` is the interface, `memory` and `redis` are the stores, and `flights` makes concurrent computations of a key
//! one.
//!
//! # Tests
//!
//! `crates/framework/web/tests/it/values.rs`.

#![forbid(unsafe_code)]

mod cache;
mod flights;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod stored_value;

pub use cache::{ValueCache, ValueCacheError};
