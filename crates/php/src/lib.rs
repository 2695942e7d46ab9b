//! PHP applications that stay in memory, on the distribution's own PHP.

#![forbid(unsafe_code)]

pub mod wire;
