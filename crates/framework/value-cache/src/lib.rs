//! A cache of the values of an application, in memory or in Redis.
//!
//! ```
//! use std::time::Duration;
//!
//! use apus_handler::{HandlerService, Result, State};
//! use apus_value_cache::ValueCache;
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
//! let service = HandlerService::new(report).state(ValueCache::in_memory(16 * 1024 * 1024));
//! # assert_eq!(apus_testkit::get("/report").to(&service).text(), "the report");
//! ```
//!
//! The package `apus` exports this crate as `apus::cache`.
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
//! `tests/it`, in memory and in Redis.

#![forbid(unsafe_code)]

mod cache;
mod flights;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod stored_value;

pub use cache::{ValueCache, ValueCacheError};
