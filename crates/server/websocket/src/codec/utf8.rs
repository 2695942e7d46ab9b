//! Incremental validation of UTF-8, which fails at the first invalid byte (RFC 6455 section 8.1).

use std::str::from_utf8;

use super::WebSocketProtocolError;

/// The state of an incremental validation.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    /// The first bytes of a character at the end of a piece.
    partial: [u8; 4],
    len: usize,
}

impl Utf8 {
    /// Validates the next piece.
    pub(super) fn check(&mut self, mut piece: &[u8]) -> Result<(), WebSocketProtocolError> {
        while self.len > 0 {
            let Some((byte, rest)) = piece.split_first() else {
                return Ok(());
            };
            piece = rest;
            self.push(*byte)?;
        }
        match from_utf8(piece) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_some() => Err(WebSocketProtocolError::InvalidUtf8),
            Err(error) => {
                let partial = piece.get(error.valid_up_to()..).unwrap_or_default();
                partial.iter().try_for_each(|byte| self.push(*byte))
            }
        }
    }

    /// Checks that the text does not end within a character.
    pub(super) fn finish(&self) -> Result<(), WebSocketProtocolError> {
        match self.len {
            0 => Ok(()),
            _ => Err(WebSocketProtocolError::InvalidUtf8),
        }
    }

    /// Adds a byte to the partial character.
    fn push(&mut self, byte: u8) -> Result<(), WebSocketProtocolError> {
        if let Some(next) = self.partial.get_mut(self.len) {
            *next = byte;
            self.len = self.len.saturating_add(1);
        }
        match from_utf8(self.partial.get(..self.len).unwrap_or_default()) {
            Ok(_) => {
                self.len = 0;
                Ok(())
            }
            Err(error) if error.error_len().is_some() => Err(WebSocketProtocolError::InvalidUtf8),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_does_not_depend_on_the_pieces() {
        let text = "κόσμε \u{10ffff} \u{d7ff}\u{e000} a".as_bytes();
        for size in 1..text.len() {
            let mut utf8 = Utf8::default();
            for piece in text.chunks(size) {
                utf8.check(piece).unwrap();
            }
            utf8.finish().unwrap();
        }
    }

    #[test]
    fn rejects_the_first_invalid_byte() {
        // Surrogates, overlong forms, and code points beyond the last.
        for (before, wrong) in [
            (&b"\xed"[..], 0xa0),
            (b"\xc0", 0x80),
            (b"\xe0", 0x80),
            (b"\xf4", 0x90),
            (b"\xce\xba\xce", b'a'),
        ] {
            let mut utf8 = Utf8::default();
            let begun = before
                .iter()
                .try_for_each(|byte| utf8.check(std::slice::from_ref(byte)));
            assert!(
                begun.is_err() || utf8.check(&[wrong]).is_err(),
                "{before:x?}"
            );
        }
        let mut utf8 = Utf8::default();
        utf8.check(b"\xf0\x9f").unwrap();
        assert!(utf8.finish().is_err());
    }
}
