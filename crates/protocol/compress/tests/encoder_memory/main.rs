//! A program of its own for the one test that measures the memory of its process.

#[cfg(test)]
mod measured;
