//! Tests of the example.

#[cfg(test)]
mod login;
