//! Tests of storage in a folder, and in an object store (s3rver).

#[cfg(test)]
mod busy_store;
#[cfg(test)]
mod folder;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod object_store;
#[cfg(test)]
mod objects;
