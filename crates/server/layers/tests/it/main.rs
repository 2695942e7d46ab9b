//! Tests of the layers through their public interface.

#[cfg(test)]
mod access;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod bots;
#[cfg(test)]
mod concurrent_requests;
#[cfg(test)]
mod cors;
#[cfg(test)]
mod etags;
#[cfg(test)]
#[path = "../../../handler/tests/it/harness/mod.rs"]
#[allow(dead_code, reason = "the tests of handlers share it")]
mod harness;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod quota_limit;
#[cfg(test)]
mod rate_limit;
#[cfg(test)]
mod readiness;
#[cfg(test)]
mod security_headers;
#[cfg(test)]
mod timeout;
