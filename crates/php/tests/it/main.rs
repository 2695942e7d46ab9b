//! Resident workers: the wire, the pool, and real PHP.

#[cfg(test)]
mod harness;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod wire;
