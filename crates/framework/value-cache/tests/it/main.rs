//! Tests of `ValueCache`, in memory and in Redis.

#[cfg(test)]
mod values;
