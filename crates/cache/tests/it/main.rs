//! Tests of the cache through its public doors.

#[cfg(test)]
mod policy;
#[cfg(test)]
mod store;
