//! Tests of the reverse proxy.

#[cfg(test)]
mod forwarding;
#[cfg(test)]
mod mirror;
