//! A shared HTTP cache (RFC 9111).
//!
//! [`policy`] decides what may be stored and sent (RFC 9111), without I/O and without a clock.
//! [`store`] keeps stored responses in memory and on disk. [`service`] is the cache in front of
//! another service.

#![forbid(unsafe_code)]

pub mod policy;
pub mod service;
pub mod store;
