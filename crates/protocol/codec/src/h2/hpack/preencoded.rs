//! Pre-encodes field sections that are sent repeatedly, such as the header fields of a cached file.

use std::ops::Range;

use super::representation::{FieldEncoding, FieldForm, string};
use apus_http::Headers;
use apus_http::response_head::is_connection_field;

/// Field lines, without connection-specific ones, with all parts encoded that do not depend on the dynamic table.
#[derive(Debug)]
pub(crate) struct PreencodedHeaders {
    bytes: Vec<u8>,
    segments: Vec<EncodedSegment>,
}

#[derive(Debug)]
pub(super) struct EncodedSegment {
    /// The end of its encoded bytes, which start at the end of the segment before.
    end: usize,
    pub(super) kind: EncodedSegmentKind,
}

#[derive(Debug)]
pub(super) enum EncodedSegmentKind {
    /// Lines whose encoding is the same on each connection.
    Verbatim,
    /// The `Content-Length` line, whose encoding is the same on each connection, but which may be omitted.
    Length,
    /// A line that may be in the dynamic table. Its strings are encoded.
    Indexed {
        name_index: usize,
        mark: u32,
        /// The ranges of name and value in the HTTP/1.1 form of the lines.
        name: Range<usize>,
        value: Range<usize>,
        /// The start of the value's string in the encoded bytes, after the name's string.
        value_at: usize,
    },
}

impl PreencodedHeaders {
    pub(crate) fn new(headers: &Headers) -> Self {
        let mut preencoded = Self {
            bytes: Vec::new(),
            segments: Vec::new(),
        };
        let mut start = 0_usize;
        for line in headers.hpack_lines() {
            let (name, value, _) = line;
            // A colon and a space separate them, and CRLF follows.
            let len = name.len().saturating_add(value.len()).saturating_add(4);
            let end = start.saturating_add(len);
            if !is_connection_field(name) {
                preencoded.add(line, start..end);
            }
            start = end;
        }
        preencoded.bytes.shrink_to_fit();
        preencoded.segments.shrink_to_fit();
        preencoded
    }

    fn add(&mut self, (name, value, never_indexed): (&[u8], &[u8], bool), line: Range<usize>) {
        let encoding = FieldEncoding::of_line(name, value, never_indexed);
        let kind = match encoding.form {
            FieldForm::Indexed { mark } => {
                string(name, &mut self.bytes);
                let value_at = self.bytes.len();
                string(value, &mut self.bytes);
                let name_end = line.start.saturating_add(name.len());
                // CRLF follows the value.
                let value_end = line.end.saturating_sub(2);
                EncodedSegmentKind::Indexed {
                    name_index: encoding.name_index,
                    mark,
                    name: line.start..name_end,
                    value: value_end.saturating_sub(value.len())..value_end,
                    value_at,
                }
            }
            _ => {
                encoding.write(name, value, &mut self.bytes);
                if name == b"content-length" {
                    EncodedSegmentKind::Length
                } else {
                    EncodedSegmentKind::Verbatim
                }
            }
        };
        let end = self.bytes.len();
        match (self.segments.last_mut(), &kind) {
            (
                Some(
                    last @ EncodedSegment {
                        kind: EncodedSegmentKind::Verbatim,
                        ..
                    },
                ),
                EncodedSegmentKind::Verbatim,
            ) => last.end = end,
            _ => self.segments.push(EncodedSegment { end, kind }),
        }
    }

    /// The segments, each with the range of its encoded bytes.
    pub(super) fn segments(&self) -> impl Iterator<Item = (&EncodedSegmentKind, Range<usize>)> {
        let mut start = 0;
        self.segments.iter().map(move |segment| {
            let range = start..segment.end;
            start = segment.end;
            (&segment.kind, range)
        })
    }

    /// The encoded bytes in this range.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }
}
