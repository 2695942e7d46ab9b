//! The masking of payloads (RFC 6455 section 5.3).

/// Masks or unmasks in place; `offset` is the position of `bytes` in the payload.
pub(super) fn apply(bytes: &mut [u8], key: [u8; 4], offset: usize) {
    let mut rotated = key;
    rotated.rotate_left(offset & 3);
    let word = u64::from_ne_bytes(double(rotated));
    let (words, rest) = bytes.as_chunks_mut();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(rotated.iter().cycle()) {
        *byte ^= key;
    }
}

fn double([a, b, c, d]: [u8; 4]) -> [u8; 8] {
    [a, b, c, d, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masking_by_words_equals_masking_by_bytes() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        for len in 0..70 {
            for offset in 0..9 {
                let plain: Vec<u8> = (0..len).collect();
                let bytes = plain.iter().enumerate();
                let expected: Vec<u8> = bytes.map(|(at, b)| b ^ key[(at + offset) % 4]).collect();
                let mut masked = plain.clone();
                apply(&mut masked, key, offset);
                assert_eq!(masked, expected);
            }
        }
    }
}
