//! The apus command.
fn main() {}
