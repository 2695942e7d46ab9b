//! Raw QUIC clients of a server, and bytes of HTTP/3 for them.

use apus_testkit::quic::frame::{integer, integers, stream};
use apus_testkit::quic::{RawQuicClient, RawQuicOptions};

use super::H3Server;

/// The streams of a client that opens its control stream first, then its QPACK streams.
pub(super) const CONTROL: u64 = 2;
pub(super) const ENCODER: u64 = 6;
pub(super) const DECODER: u64 = 10;
/// The next unidirectional stream.
pub(super) const OTHER: u64 = 14;

/// The types of frames (RFC 9114 section 7.2, RFC 9218 section 7.2).
pub(super) const DATA: u64 = 0x0;
pub(super) const HEADERS: u64 = 0x1;
pub(super) const CANCEL_PUSH: u64 = 0x3;
pub(super) const SETTINGS: u64 = 0x4;
pub(super) const PUSH_PROMISE: u64 = 0x5;
pub(super) const GOAWAY: u64 = 0x7;
pub(super) const MAX_PUSH_ID: u64 = 0xd;
pub(super) const PRIORITY_UPDATE: u64 = 0xf0700;
pub(super) const PRIORITY_UPDATE_OF_PUSH: u64 = 0xf0701;
/// A reserved type (RFC 9114 section 7.2.8).
pub(super) const RESERVED: u64 = 0x21;

impl H3Server {
    pub(super) fn raw_options(&self) -> RawQuicOptions {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        RawQuicOptions::new(tls, "example.com")
    }

    /// A raw client after the handshake.
    pub(super) async fn connect_raw(&self) -> RawQuicClient {
        RawQuicClient::connect(self.server.address(), &self.raw_options()).await
    }

    /// A raw client whose control and QPACK streams the server has read.
    pub(super) async fn connect_raw_h3(&self) -> RawQuicClient {
        let mut client = self.connect_raw().await;
        client.send_frames(&local_streams()).await;
        client.acknowledged().await.unwrap();
        client
    }
}

/// Opens the control stream with empty SETTINGS, and the streams of QPACK.
pub(super) fn local_streams() -> Vec<u8> {
    [
        stream(CONTROL, 0, &[0x0, 0x4, 0x0], false),
        stream(ENCODER, 0, &[0x2], false),
        stream(DECODER, 0, &[0x3], false),
    ]
    .concat()
}

/// A STREAM frame with more bytes of a stream that [`local_streams`] opened.
pub(super) fn on(id: u64, bytes: &[u8]) -> Vec<u8> {
    let offset = match id {
        CONTROL => 3,
        ENCODER | DECODER => 1,
        _ => 0,
    };
    stream(id, offset, bytes, false)
}

/// A frame of HTTP/3.
pub(super) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let head = integers(&[kind, payload.len() as u64]);
    [&head, payload].concat()
}

/// A frame of HTTP/3 that consists of integers.
pub(super) fn frame_of(kind: u64, fields: &[u64]) -> Vec<u8> {
    let payload: Vec<_> = fields.iter().flat_map(|field| integer(*field)).collect();
    frame(kind, &payload)
}

/// A field section of literals (RFC 9204 section 4.5.6).
pub(super) fn section(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in lines {
        prefixed(0x20, 3, name.len(), &mut section);
        section.extend(name.as_bytes());
        prefixed(0, 7, value.len(), &mut section);
        section.extend(value.as_bytes());
    }
    section
}

/// An integer in the last bits of a byte, and more (RFC 9204 section 4.1.1).
pub(super) fn prefixed(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    let limit = (1 << bits) - 1;
    if value < limit {
        return out.push(flags | value as u8);
    }
    out.push(flags | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.com"),
    (":path", "/"),
];

/// The field section of a GET with more lines.
pub(super) fn get_section(lines: &[(&str, &str)]) -> Vec<u8> {
    section(&[&GET, lines].concat())
}

/// The field section of a GET without one of its lines.
pub(super) fn get_without(name: &str) -> Vec<u8> {
    let lines: Vec<_> = GET.into_iter().filter(|line| line.0 != name).collect();
    section(&lines)
}

/// A GET request.
pub(super) fn get() -> Vec<u8> {
    frame(HEADERS, &get_section(&[]))
}
