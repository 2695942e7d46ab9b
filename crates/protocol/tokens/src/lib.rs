//! Random bytes and SHA-256 digests, and their text in hexadecimal digits and base64.
//!
//! Session ids, nonces, links in mails, names of files and identities of processes are random; stores and cookies have the
//! digests of texts. This crate is on the lowest shelf, as crates of all shelves need these few functions.
//!
//! # Modules
//!
//! - `random`: bytes that nobody can guess, and [`NoRandomness`].
//! - `hexadecimal`: bytes as hexadecimal digits, and back.
//!
//! # Decisions
//!
//! - **No crate for hexadecimal digits**: `hex` and `data-encoding` are in the tree of some programs, but not of an application that
//!   uses the framework alone, and two functions are all that is needed.
//! - **A missing source of randomness is an error**, although AWS-LC ends the process in that case: callers have errors anyway, and
//!   none of them continues with bytes that are zero.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module.

#![forbid(unsafe_code)]

mod hexadecimal;
mod random;

use aws_lc_rs::digest::{SHA256, digest};

pub use hexadecimal::{Hexadecimal, from_hexadecimal};
pub use random::{NoRandomness, nonce, random_bytes};

/// The SHA-256 digest of bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut found = [0; 32];
    // The lengths are the same.
    found.copy_from_slice(digest(&SHA256, bytes).as_ref());
    found
}
