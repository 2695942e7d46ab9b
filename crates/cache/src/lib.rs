//! A shared HTTP cache.
//!
//! [`policy`] decides what may be stored, for how long, and what may be sent from it (RFC 9111). It
//! does no I/O and reads no clock. [`store`] keeps what was stored, in memory and on disk.

#![forbid(unsafe_code)]

pub mod policy;
pub mod store;
