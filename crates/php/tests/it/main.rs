//! Resident workers: the wire, the pool, and real PHP.

#[cfg(test)]
mod wire;
