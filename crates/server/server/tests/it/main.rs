//! Tests of the server as a library, by topic.

#[cfg(test)]
mod building_blocks;
#[cfg(test)]
mod explain;
