//! FastCGI records: the header, and bodies of a fixed form (FastCGI 1.0 sections 3.3, 5 and 8).

/// Bytes of a record's header.
pub(super) const HEADER: usize = 8;

/// The most content a record can have.
pub(super) const CONTENT_MOST: usize = 65_535;

/// The version of the protocol.
const VERSION: u8 = 1;

/// The request that a connection carries. There is never more than one.
pub(super) const REQUEST: u16 = 1;

/// The request of management records: none.
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
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) request: u16,
    pub(super) content: u16,
    pub(super) padding: u8,
}

impl Header {
    /// The header at the start of `input`, if all of it is there; `Some(None)` if it is of no version
    /// of the protocol.
    pub(super) fn read(input: &[u8]) -> Option<Option<Self>> {
        let (&[version, kind, r1, r0, c1, c0, padding, _reserved], _) =
            input.split_first_chunk::<HEADER>()?;
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

/// Appends the header of a record of the request, which `content` bytes follow.
pub(super) fn start(kind: u8, content: u16, out: &mut Vec<u8>) {
    let header = Header {
        kind,
        request: REQUEST,
        content,
        padding: 0,
    };
    header.write(out);
}

/// Appends `FCGI_BEGIN_REQUEST`: the application is a Responder, and closes the connection behind its
/// answer unless `keep`.
pub(super) fn begin(keep: bool, out: &mut Vec<u8>) {
    start(BEGIN_REQUEST, 8, out);
    out.extend_from_slice(&RESPONDER.to_be_bytes());
    out.extend_from_slice(&[if keep { KEEP_CONN } else { 0 }, 0, 0, 0, 0, 0]);
}

/// Appends content in as many records as it takes, none if it is empty.
pub(super) fn stream(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    for part in content.chunks(CONTENT_MOST) {
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
    fn cuts_long_streams_into_records() {
        let mut out = Vec::new();
        stream(STDIN, &[7; 65_536], &mut out);
        assert_eq!(out.len(), 65_536 + 2 * HEADER);
        let last = &out[HEADER + CONTENT_MOST..];
        assert_eq!(last, [1, 5, 0, 1, 0, 1, 0, 0, 7]);
        out.clear();
        stream(STDIN, &[], &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn reads_whole_headers_of_the_version() {
        let bytes = [1, 6, 0, 1, 0x12, 0x34, 5, 9];
        let header = Header {
            kind: STDOUT,
            request: 1,
            content: 0x1234,
            padding: 5,
        };
        assert_eq!(Header::read(&bytes), Some(Some(header)));
        assert_eq!(Header::read(&bytes[..7]), None);
        assert_eq!(Header::read(&[2, 6, 0, 1, 0, 0, 0, 0]), Some(None));
    }
}
