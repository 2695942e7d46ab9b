//! Encodes field lines that are sent repeatedly, such as the header fields of a cached file, once for all connections.

use std::ops::Range;

use super::representation::write_literal;
use super::static_table;
use apus_http::Headers;
use apus_http::response_head::is_connection_field;

/// Field lines, without connection-specific ones, encoded without the dynamic table.
#[derive(Debug)]
pub(super) struct PreencodedLines {
    bytes: Vec<u8>,
    /// The lines of `Content-Length`, which may be omitted.
    lengths: Vec<Range<usize>>,
}

impl PreencodedLines {
    pub(super) fn new(headers: &Headers) -> Self {
        let mut bytes = Vec::new();
        let mut lengths = Vec::new();
        for line in headers.hpack_lines() {
            if is_connection_field(line.0) {
                continue;
            }
            let start = bytes.len();
            write_literal(line, static_table::find(line.0, line.1), &mut bytes);
            if line.0 == b"content-length" {
                lengths.push(start..bytes.len());
            }
        }
        bytes.shrink_to_fit();
        Self { bytes, lengths }
    }

    /// Appends the lines, without `Content-Length` unless `keeps_length`.
    pub(super) fn write(&self, keeps_length: bool, out: &mut Vec<u8>) {
        let mut from = 0;
        for length in self.lengths.iter().filter(|_| !keeps_length) {
            out.extend_from_slice(self.bytes.get(from..length.start).unwrap_or_default());
            from = length.end;
        }
        out.extend_from_slice(self.bytes.get(from..).unwrap_or_default());
    }
}
