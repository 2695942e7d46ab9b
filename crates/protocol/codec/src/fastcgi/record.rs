//! Encodes and decodes FastCGI records (FastCGI 1.0 sections 3.3, 5 and 8).

/// Bytes of a record header.
pub(super) const HEADER_BYTES: usize = 8;

/// Maximum bytes of a record's content.
pub(super) const MAX_CONTENT: usize = 65_535;

/// The version of the protocol.
const VERSION: u8 = 1;

/// The identifier of the only request on a connection.
pub(super) const REQUEST: u16 = 1;

/// The request identifier of management records.
pub(super) const MANAGEMENT: u16 = 0;

pub(super) const BEGIN_REQUEST: u8 = 1;
pub(super) const ABORT_REQUEST: u8 = 2;
pub(super) const END_REQUEST: u8 = 3;
pub(super) const PARAMS: u8 = 4;
pub(super) const STDIN: u8 = 5;
pub(super) const STDOUT: u8 = 6;
pub(super) const STDERR: u8 = 7;

const RESPONDER: u16 = 1;
const KEEP_CONN: u8 = 1;

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) kind: u8,
    pub(super) request: u16,
    pub(super) content: u16,
    pub(super) padding: u8,
}

impl RecordHeader {
    /// Parses the header at the start of `input`. `None` if it is incomplete, `Some(None)` if it has
    /// another version of the protocol.
    pub(super) fn read(input: &[u8]) -> Option<Option<Self>> {
        let (&[version, kind, r1, r0, c1, c0, padding, _reserved], _) =
            input.split_first_chunk::<HEADER_BYTES>()?;
        Some((version == VERSION).then_some(Self {
            kind,
            request: u16::from_be_bytes([r1, r0]),
            content: u16::from_be_bytes([c1, c0]),
            padding,
        }))
    }

    fn write(self, out: &mut Vec<u8>) {
        let [r1, r0] = self.request.to_be_bytes();
        let [c1, c0] = self.content.to_be_bytes();
        out.extend_from_slice(&[VERSION, self.kind, r1, r0, c1, c0, self.padding, 0]);
    }
}

/// Appends the header of a record of the request, before `content` bytes.
pub(super) fn start(kind: u8, content: u16, out: &mut Vec<u8>) {
    let header = RecordHeader {
        kind,
        request: REQUEST,
        content,
        // The specification suggests to align records to 8 bytes. The padding would be one more piece in each write of
        // a body.
        padding: 0,
    };
    header.write(out);
}

/// Appends `FCGI_BEGIN_REQUEST` for a Responder, which closes the connection after its response unless
/// `keep`.
pub(super) fn begin(keep: bool, out: &mut Vec<u8>) {
    start(BEGIN_REQUEST, 8, out);
    out.extend_from_slice(&RESPONDER.to_be_bytes());
    out.extend_from_slice(&[if keep { KEEP_CONN } else { 0 }, 0, 0, 0, 0, 0]);
}

/// Appends content in as many records as it needs, none if it is empty.
pub(super) fn stream(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    for part in content.chunks(MAX_CONTENT) {
        start(kind, u16::try_from(part.len()).unwrap_or(u16::MAX), out);
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_bytes_of_the_specification() {
        let mut out = Vec::new();
        begin(true, &mut out);
        begin(false, &mut out);
        stream(PARAMS, b"ab", &mut out);
        start(STDIN, 0, &mut out);
        let expected: [&[u8]; 4] = [
            &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0],
            &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            &[1, 4, 0, 1, 0, 2, 0, 0, b'a', b'b'],
            &[1, 5, 0, 1, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn splits_long_streams_into_records() {
        let mut out = Vec::new();
        stream(STDIN, &[7; 65_536], &mut out);
        assert_eq!(out.len(), 65_536 + 2 * HEADER_BYTES);
        let last = &out[HEADER_BYTES + MAX_CONTENT..];
        assert_eq!(last, [1, 5, 0, 1, 0, 1, 0, 0, 7]);
        out.clear();
        stream(STDIN, &[], &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn parses_complete_headers_of_the_version() {
        let bytes = [1, 6, 0, 1, 0x12, 0x34, 5, 9];
        let header = RecordHeader {
            kind: STDOUT,
            request: 1,
            content: 0x1234,
            padding: 5,
        };
        assert_eq!(RecordHeader::read(&bytes), Some(Some(header)));
        assert_eq!(RecordHeader::read(&bytes[..7]), None);
        assert_eq!(RecordHeader::read(&[2, 6, 0, 1, 0, 0, 0, 0]), Some(None));
    }
}
