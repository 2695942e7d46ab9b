//! HMAC-SHA256 (RFC 2104), and the comparison of secrets in constant time.

use std::hint::black_box;

use sha2::{Digest, Sha256};

/// The block of SHA-256.
const BLOCK: usize = 64;

/// The HMAC-SHA256 of a message under a key.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    let hashed;
    let key = if key.len() > BLOCK {
        hashed = super::sha256(key);
        &hashed[..]
    } else {
        key
    };
    for (byte, of_key) in block.iter_mut().zip(key) {
        *byte = *of_key;
    }
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

/// Whether two texts are equal, in a time that does not tell where they differ. Their lengths are no secrets.
pub fn is_equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let pairs = one.iter().zip(other);
    let difference = pairs.fold(0, |found, (one, other)| black_box(found | (one ^ other)));
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hexadecimal;

    /// RFC 4231 section 4: the test cases 1, 2, 3 and 6.
    #[test]
    fn digests_are_those_of_rfc_4231() {
        for (key, message, expected) in [
            (
                vec![0x0b; 20],
                b"Hi There".to_vec(),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?".to_vec(),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 20],
                vec![0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            let digest = hmac_sha256(&key, &message);
            assert_eq!(Hexadecimal(&digest).to_string(), expected);
        }
    }

    #[test]
    fn texts_are_equal_if_all_bytes_are() {
        for (one, other, are_equal) in [
            ("", "", true),
            ("a", "", false),
            ("abc", "abc", true),
            ("abc", "abd", false),
            ("abc", "Abc", false),
            ("abc", "abcd", false),
        ] {
            let found = is_equal_in_constant_time(one.as_bytes(), other.as_bytes());
            assert_eq!(found, are_equal, "{one} {other}");
        }
    }
}
