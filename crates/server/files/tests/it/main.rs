//! Tests of static files.

#[cfg(test)]
mod serving;
