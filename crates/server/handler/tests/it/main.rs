//! Tests of handlers, extractors and responses through their public interface.

#[cfg(test)]
mod extract;
#[cfg(test)]
#[allow(dead_code, reason = "the tests of layers share it")]
mod harness;
#[cfg(test)]
mod responses;
