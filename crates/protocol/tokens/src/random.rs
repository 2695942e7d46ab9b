//! Bytes that nobody can guess.

use std::{error, fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes of the system's source for secrets.
///
/// # Errors
/// The system has no random bytes.
pub fn random_bytes<const LENGTH: usize>() -> Result<[u8; LENGTH], NoRandomness> {
    let mut bytes = [0; LENGTH];
    let mut filled = 0;
    // The system fills up to 256 bytes at once, and a signal may interrupt it.
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(length) => filled += length,
            Err(Errno::INTR) => {}
            Err(_) => return Err(NoRandomness),
        }
    }
    Ok(bytes)
}

/// 128 random bits in base64, as the nonce of a content security policy and `Sec-WebSocket-Key` are.
///
/// # Errors
/// The system has no random bytes.
pub fn nonce() -> Result<String, NoRandomness> {
    Ok(STANDARD.encode(random_bytes::<16>()?))
}

/// The system has no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomness;

impl fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system has no random bytes")
    }
}

impl error::Error for NoRandomness {}

impl From<NoRandomness> for io::Error {
    fn from(error: NoRandomness) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_nonces_are_others_each_time() {
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes().unwrap());
        let [one, other] = [nonce().unwrap(), nonce().unwrap()];
        assert_ne!(one, other);
        assert_eq!((one.len(), &one[22..]), (24, "=="));
    }
}
