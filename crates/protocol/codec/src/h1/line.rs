//! Splits a section of bounded size into lines that end with CRLF (RFC 9112 section 2.2).

use super::Http1Error;

/// Finds lines in input that arrives in pieces. Scans every byte once.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    /// Bytes of the incomplete line that were scanned and hold no LF.
    scanned: usize,
    /// Bytes of the complete lines.
    consumed: usize,
    /// Field lines among them.
    pub(super) fields: usize,
    /// Whether a line may end with LF alone.
    pub(super) is_lenient: bool,
}

impl LineReader {
    /// Whether no byte was read yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.scanned == 0 && self.consumed == 0
    }

    /// Whether the next line begins at the start of the input, none of which was scanned yet, and may have
    /// this many bytes: the part of the section that is left, and that the input has.
    pub(super) fn window<'a>(&self, input: &'a [u8], section: usize) -> Option<&'a [u8]> {
        let left = section.saturating_sub(self.consumed);
        (self.scanned == 0).then(|| input.get(..left).unwrap_or(input))
    }

    /// Takes a line that was found at the start of the input.
    pub(super) fn take(&mut self, bytes: usize) {
        self.consumed = self.consumed.saturating_add(bytes);
    }

    /// The next line without its CRLF, and its length with it. `None` if the line is incomplete; the
    /// next `input` has to start with the same bytes.
    ///
    /// `section` limits the bytes of all lines together, `line` the bytes of this one, each with the
    /// error that is returned beyond the limit.
    pub(super) fn next<'a>(
        &mut self,
        input: &'a [u8],
        section: (usize, Http1Error),
        line: (usize, Http1Error),
    ) -> Result<Option<(&'a [u8], usize)>, Http1Error> {
        let remaining = section.0.saturating_sub(self.consumed);
        let (limit, error) = if line.0 <= remaining {
            line
        } else {
            (remaining, section.1)
        };
        let window = input.get(..limit).unwrap_or(input);
        let unscanned = window.get(self.scanned..).unwrap_or_default();
        // What was searched already is not searched again: a client that sends a long line byte by byte would cost
        // the square of its length.
        let Some(at) = memchr::memchr(b'\n', unscanned) else {
            self.scanned = window.len();
            return if window.len() >= limit {
                Err(error)
            } else {
                Ok(None)
            };
        };
        let end = self.scanned.saturating_add(at);
        let line = match window.get(..end) {
            Some([line @ .., b'\r']) => line,
            Some(line) if self.is_lenient => line,
            _ => return Err(Http1Error::BareLineFeed),
        };
        let bytes = end.saturating_add(1);
        self.scanned = 0;
        self.consumed = self.consumed.saturating_add(bytes);
        Ok(Some((line, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: (usize, Http1Error) = (100, Http1Error::HeadTooLarge);

    #[test]
    fn returns_lines_once_they_are_complete() {
        let mut lines = LineReader::default();
        assert!(lines.is_untouched());
        assert_eq!(lines.next(b"ab\r", LIMIT, LIMIT), Ok(None));
        assert!(!lines.is_untouched());
        assert_eq!(
            lines.next(b"ab\r\nc", LIMIT, LIMIT),
            Ok(Some((&b"ab"[..], 4)))
        );
        assert_eq!(lines.next(b"c", LIMIT, LIMIT), Ok(None));
        assert_eq!(lines.next(b"c\r\n", LIMIT, LIMIT), Ok(Some((&b"c"[..], 3))));
        assert_eq!(lines.next(b"\r\n", LIMIT, LIMIT), Ok(Some((&b""[..], 2))));
    }

    #[test]
    fn rejects_bare_line_feed() {
        for input in [&b"\n"[..], b"a\n", b"a\r\r\n\n"] {
            let mut lines = LineReader::default();
            let mut rest = input;
            let error = loop {
                match lines.next(rest, LIMIT, LIMIT) {
                    Ok(Some((_, bytes))) => rest = &rest[bytes..],
                    other => break other,
                }
            };
            assert_eq!(error, Err(Http1Error::BareLineFeed), "{input:?}");
        }
    }

    #[test]
    fn bounds_a_line_and_the_section() {
        let section = (8, Http1Error::HeadTooLarge);
        let line = (5, Http1Error::TargetTooLong);
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
            Err(Http1Error::HeadTooLarge)
        );
        assert_eq!(
            LineReader::default().next(b"abcd\r\n", section, line),
            Err(Http1Error::TargetTooLong)
        );
    }
}
