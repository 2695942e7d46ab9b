//! A separate program for the one test that measures the memory of its process.

#[cfg(test)]
mod measured;
