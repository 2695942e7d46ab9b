//! Lines of a section that is bounded in bytes, each ended by CRLF (RFC 9112 section 2.2).

use super::ProtocolError;

/// Takes lines from input that comes in pieces, scanning every byte once.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    /// Bytes of the unfinished line that hold no LF.
    scanned: usize,
    /// Bytes of the finished lines.
    taken: usize,
}

impl LineReader {
    /// Whether nothing came yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.scanned == 0 && self.taken == 0
    }

    /// The next line without its CRLF, and the bytes it takes with it. `None` if the line is
    /// unfinished; `input` has to start with the same bytes again then.
    ///
    /// All lines together may take `section` bytes, and this one `line` bytes; past either the
    /// error is the one beside it.
    pub(super) fn next<'a>(
        &mut self,
        input: &'a [u8],
        section: (usize, ProtocolError),
        line: (usize, ProtocolError),
    ) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
        let left = section.0.saturating_sub(self.taken);
        let (room, error) = if line.0 <= left {
            line
        } else {
            (left, section.1)
        };
        let window = input.get(..room).unwrap_or(input);
        let unscanned = window.get(self.scanned..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', unscanned) else {
            self.scanned = window.len();
            return if window.len() >= room {
                Err(error)
            } else {
                Ok(None)
            };
        };
        let end = self.scanned.saturating_add(at);
        let Some([line @ .., b'\r']) = window.get(..end) else {
            return Err(ProtocolError::BareLineFeed);
        };
        let bytes = end.saturating_add(1);
        self.scanned = 0;
        self.taken = self.taken.saturating_add(bytes);
        Ok(Some((line, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: (usize, ProtocolError) = (100, ProtocolError::HeadTooLarge);

    #[test]
    fn takes_lines_as_they_become_whole() {
        let mut lines = LineReader::default();
        assert!(lines.is_untouched());
        assert_eq!(lines.next(b"ab\r", FAR, FAR), Ok(None));
        assert!(!lines.is_untouched());
        assert_eq!(lines.next(b"ab\r\nc", FAR, FAR), Ok(Some((&b"ab"[..], 4))));
        assert_eq!(lines.next(b"c", FAR, FAR), Ok(None));
        assert_eq!(lines.next(b"c\r\n", FAR, FAR), Ok(Some((&b"c"[..], 3))));
        assert_eq!(lines.next(b"\r\n", FAR, FAR), Ok(Some((&b""[..], 2))));
    }

    #[test]
    fn rejects_bare_line_feed() {
        for input in [&b"\n"[..], b"a\n", b"a\r\r\n\n"] {
            let mut lines = LineReader::default();
            let mut rest = input;
            let error = loop {
                match lines.next(rest, FAR, FAR) {
                    Ok(Some((_, bytes))) => rest = &rest[bytes..],
                    other => break other,
                }
            };
            assert_eq!(error, Err(ProtocolError::BareLineFeed), "{input:?}");
        }
    }

    #[test]
    fn bounds_a_line_and_the_section() {
        let section = (8, ProtocolError::HeadTooLarge);
        let line = (5, ProtocolError::TargetTooLong);
        let mut lines = LineReader::default();
        assert_eq!(
            lines.next(b"abc\r\n", section, line),
            Ok(Some((&b"abc"[..], 5)))
        );
        assert_eq!(
            lines.next(b"a\r\n", section, line),
            Ok(Some((&b"a"[..], 3)))
        );
        assert_eq!(
            lines.next(b"\r\n", section, line),
            Err(ProtocolError::HeadTooLarge)
        );
        assert_eq!(
            LineReader::default().next(b"abcd\r\n", section, line),
            Err(ProtocolError::TargetTooLong)
        );
    }
}
