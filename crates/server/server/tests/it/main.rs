//! Tests of the server as a library, by topic.

#[cfg(test)]
mod explain;
