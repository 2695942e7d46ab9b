//! Tests of the cache through its public interface.

#[cfg(test)]
mod policy;
#[cfg(test)]
mod service;
#[cfg(test)]
mod store;
