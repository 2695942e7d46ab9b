//! Variable-length integers (RFC 9000 section 16), and a reader of packets and frames.

/// The largest variable-length integer.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// The bytes of an integer.
#[inline]
pub(crate) const fn size(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes an integer of at most [`MAX`].
#[inline]
pub(crate) fn write(value: u64, buffer: &mut Vec<u8>) {
    match value {
        0..0x40 => buffer.push(value as u8),
        0x40..0x4000 => buffer.extend_from_slice(&(0x4000 | value as u16).to_be_bytes()),
        0x4000..0x4000_0000 => {
            buffer.extend_from_slice(&(0x8000_0000 | value as u32).to_be_bytes())
        }
        _ => buffer.extend_from_slice(&(0xc000_0000_0000_0000 | value).to_be_bytes()),
    }
}

/// Reads fields one after another. Every method returns `None` where the bytes end too early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The rest of the bytes.
    #[inline]
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    #[inline]
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(bytes)
    }

    #[inline]
    pub(crate) fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let (bytes, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*bytes)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }

    /// A variable-length integer.
    #[inline]
    pub(crate) fn integer(&mut self) -> Option<u64> {
        let first = *self.bytes.first()?;
        match first >> 6 {
            0 => self.byte().map(u64::from),
            1 => Some(u64::from(u16::from_be_bytes(self.array()?) & 0x3fff)),
            2 => Some(u64::from(u32::from_be_bytes(self.array()?) & 0x3fff_ffff)),
            _ => Some(u64::from_be_bytes(self.array()?) & MAX),
        }
    }

    /// Bytes whose length stands before them as an integer.
    #[inline]
    pub(crate) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let length = self.integer()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    /// Skips all bytes up to the next that is not zero.
    pub(crate) fn skip_zeros(&mut self) {
        // Whole words first: padding is most of what a client sends in its Initial packets.
        while let Some((word, rest)) = self.bytes.split_first_chunk::<16>()
            && u128::from_ne_bytes(*word) == 0
        {
            self.bytes = rest;
        }
        while let Some((0, rest)) = self.bytes.split_first() {
            self.bytes = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_they_were_written() {
        for bits in [0, 1, 6, 14, 30, 62] {
            for value in [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1] {
                if value > MAX {
                    continue;
                }
                let mut buffer = Vec::new();
                write(value, &mut buffer);
                assert_eq!(buffer.len(), size(value));
                let mut reader = Reader::new(&buffer);
                assert_eq!(reader.integer(), Some(value));
                assert!(reader.is_empty());
                let cut_off = &buffer[..buffer.len() - 1];
                assert_eq!(Reader::new(cut_off).integer(), None);
            }
        }
    }

    #[test]
    fn integers_may_be_longer_than_needed() {
        for bytes in [&[37][..], &[0x40, 37], &[0x80, 0, 0, 37]] {
            assert_eq!(Reader::new(bytes).integer(), Some(37));
        }
    }

    #[test]
    fn zeros_of_any_number_are_skipped() {
        for length in 0..50 {
            let mut bytes = vec![0; length];
            bytes.extend([7, 0]);
            let mut reader = Reader::new(&bytes);
            reader.skip_zeros();
            assert_eq!(reader.rest(), [7, 0]);
        }
    }
}
