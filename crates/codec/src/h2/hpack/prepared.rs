//! Field sections that are encoded again and again, such as those of a cached file.

use std::ops::Range;

use super::encoder::{Form, Plan, string};
use apus_http::Headers;
use apus_http::response_head::is_connection_field;

/// Field lines, without connection-specific ones, as far as they can be encoded without knowing the
/// dynamic table.
#[derive(Debug)]
pub(crate) struct Prepared {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
pub(super) struct Piece {
    /// Where what is ready of it ends; it begins where that of the piece before ends.
    end: usize,
    pub(super) kind: PieceKind,
}

#[derive(Debug)]
pub(super) enum PieceKind {
    /// Lines that are the same on each connection.
    Verbatim,
    /// The `Content-Length`, which is the same too, if it is wanted.
    Length,
    /// A line that can be in the dynamic table. Its strings are ready.
    Indexed {
        known: usize,
        mark: u32,
        /// Where it is in the wire form of the lines.
        name: Range<usize>,
        value: Range<usize>,
        /// Where in the ready bytes the string of the value begins, behind that of the name.
        value_at: usize,
    },
}

impl Prepared {
    pub(crate) fn new(headers: &Headers) -> Self {
        let mut prepared = Self {
            bytes: Vec::new(),
            pieces: Vec::new(),
        };
        let mut start = 0_usize;
        for line in headers.hpack_lines() {
            let (name, value, _) = line;
            // Between them stand a colon and a space, behind them CRLF.
            let len = name.len().saturating_add(value.len()).saturating_add(4);
            let end = start.saturating_add(len);
            if !is_connection_field(name) {
                prepared.add(line, start..end);
            }
            start = end;
        }
        prepared.bytes.shrink_to_fit();
        prepared.pieces.shrink_to_fit();
        prepared
    }

    fn add(&mut self, (name, value, never_indexed): (&[u8], &[u8], bool), line: Range<usize>) {
        let plan = Plan::of_line(name, value, never_indexed);
        let kind = match plan.form {
            Form::Indexed { mark } => {
                string(name, &mut self.bytes);
                let value_at = self.bytes.len();
                string(value, &mut self.bytes);
                let name_end = line.start.saturating_add(name.len());
                // Behind the value is CRLF.
                let value_end = line.end.saturating_sub(2);
                PieceKind::Indexed {
                    known: plan.known,
                    mark,
                    name: line.start..name_end,
                    value: value_end.saturating_sub(value.len())..value_end,
                    value_at,
                }
            }
            _ => {
                plan.verbatim(name, value, &mut self.bytes);
                if name == b"content-length" {
                    PieceKind::Length
                } else {
                    PieceKind::Verbatim
                }
            }
        };
        let end = self.bytes.len();
        match (self.pieces.last_mut(), &kind) {
            (
                Some(
                    last @ Piece {
                        kind: PieceKind::Verbatim,
                        ..
                    },
                ),
                PieceKind::Verbatim,
            ) => last.end = end,
            _ => self.pieces.push(Piece { end, kind }),
        }
    }

    /// The lines, each with what is ready of it.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&PieceKind, Range<usize>)> {
        let mut start = 0;
        self.pieces.iter().map(move |piece| {
            let range = start..piece.end;
            start = piece.end;
            (&piece.kind, range)
        })
    }

    /// Bytes of what is ready.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }
}
