//! Random bytes, SHA-256 digests and HMAC-SHA256, and their text in hexadecimal digits and base64.
//!
//! Session ids, nonces, links in mails, names of files and identities of processes are random; stores and cookies have the
//! digests of texts. This crate is on the lowest shelf, as crates of all shelves need these few functions.
//!
//! # Modules
//!
//! - `random`: bytes that nobody can guess, and [`NoRandomness`].
//! - `hexadecimal`: bytes as hexadecimal digits, and back.
//! - `hmac`: HMAC-SHA256, and the comparison of secrets in constant time.
//!
//! # Decisions
//!
//! - **No crate for hexadecimal digits**: `hex` and `data-encoding` are in the tree of some programs, but not of an application that
//!   uses the framework alone, and two functions are all that is needed.
//! - **HMAC here, on `sha2`**: signatures of sessions and of URLs are those of AWS-LC, which layers that need no authentication do not bring.
//! - **The system's random bytes, and `sha2`**: AWS-LC would bring its build tools to a hello world that has no TLS. The kernel's
//!   `getrandom` reads from the same kind of generator.
//! - **A missing source of randomness is an error**: callers have errors anyway, and none of them continues with bytes that are zero.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module.

#![forbid(unsafe_code)]

mod hexadecimal;
mod hmac;
mod random;

use sha2::{Digest, Sha256};

pub use hexadecimal::{Hexadecimal, from_hexadecimal};
pub use hmac::{hmac_sha256, is_equal_in_constant_time};
pub use random::{NoRandomness, nonce, random_bytes};

/// The SHA-256 digest of bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
