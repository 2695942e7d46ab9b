//! A shared HTTP cache.
//!
//! [`policy`] decides what may be stored, for how long, and what may be sent from it (RFC 9111). It
//! does no I/O and reads no clock. [`store`] keeps stored responses, in memory and on disk. [`service`] is the
//! cache in front of another service.

#![forbid(unsafe_code)]

pub mod policy;
pub mod service;
pub mod store;
