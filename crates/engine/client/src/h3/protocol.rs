//! The codec of an HTTP/3 connection to an origin over QUIC, as the protocol of its streams.

use std::collections::VecDeque;

use apus_codec::messages::OutgoingRequest;
use apus_h3::{H3Config, H3Connection, H3ErrorCode, RequestError, StreamKey};
use apus_h3_quic::{CHUNK, Http3Input, Http3Transport, stream_id};
use apus_http::{Headers, Version};
use apus_quic::{Dir, QuicConnection, StreamId};
use bytes::{Bytes, BytesMut};

use super::fault::Http3Fault;
use crate::streams::{ClientProtocol, STREAMS};
use crate::{FailureCause, ResponseRules};

/// The table with which origins may compress their field sections (RFC 9204 section 3.2.3): as large as in HTTP/2.
const DECODER_TABLE_BYTES: usize = 4096;

/// The table with which field sections of requests are compressed, if the origin allows one: as large as in HTTP/2.
const ENCODER_TABLE_BYTES: usize = 4096;

/// The most streams of an origin that wait for inserts into that table.
const BLOCKED_STREAMS: usize = 16;

/// The codec over QUIC, and the input of the streams.
pub(super) struct Http3ClientProtocol {
    pub(super) transport: Http3Transport,
    pub(super) input: Http3Input,
    /// The streams of the next requests. QUIC does not report how many more the origin allows.
    reserved: VecDeque<StreamId>,
    /// The buffer into which files are read.
    file: BytesMut,
    /// Bytes that QUIC took.
    written: u64,
    /// Whether the connection has ended.
    pub(super) is_ended: bool,
    /// Whether the settings of the origin are late, so that it is taken for one without extended CONNECT.
    pub(super) are_settings_late: bool,
}

impl Http3ClientProtocol {
    /// A connection whose handshake is complete.
    pub(super) fn new(quic: QuicConnection, rules: ResponseRules) -> Self {
        let codec = H3Connection::client(H3Config {
            max_concurrent_streams: u32::try_from(STREAMS).unwrap_or(u32::MAX),
            target_bytes: 0,
            head_bytes: rules.head_size(),
            fields: rules.max_fields(),
            extended_connect: false,
            decoder_table_bytes: DECODER_TABLE_BYTES,
            blocked_streams: BLOCKED_STREAMS,
            encoder_table_bytes: ENCODER_TABLE_BYTES,
        });
        let mut protocol = Self {
            transport: Http3Transport::new(codec, quic),
            input: Http3Input::default(),
            reserved: VecDeque::new(),
            file: BytesMut::new(),
            written: 0,
            is_ended: false,
            are_settings_late: false,
        };
        protocol.reserve_streams();
        protocol
    }

    /// Opens the streams of the next requests, up to the limit of the origin.
    pub(super) fn reserve_streams(&mut self) {
        while self.reserved.len() < self.transport.codec.available_streams()
            && let Some(stream) = self.transport.quic.open(Dir::Bi)
        {
            self.reserved.push_back(stream);
        }
    }

    /// Gives QUIC what was encoded, and does what the codec requests. Returns how many bytes QUIC took since the last
    /// call.
    pub(super) fn flush(&mut self) -> usize {
        self.transport.flush(|_| {});
        let written = self.transport.take_written();
        self.written += written as u64;
        written
    }
}

impl ClientProtocol for Http3ClientProtocol {
    type Id = u64;
    type Fault = Http3Fault;

    const VERSION: Version = Version::HTTP_3;

    fn open_streams(&self) -> usize {
        self.transport.codec.open_streams()
    }

    fn available_streams(&self) -> usize {
        let available = self.transport.codec.available_streams();
        available.min(self.reserved.len())
    }

    fn is_shutting_down(&self) -> bool {
        self.transport.codec.is_shutting_down()
    }

    fn has_room(&self) -> bool {
        !self.is_ended && self.transport.has_room()
    }

    fn has_peer_settings(&self) -> bool {
        self.are_settings_late || self.transport.codec.has_peer_settings()
    }

    fn allows_extended_connect(&self) -> bool {
        self.transport.codec.allows_extended_connect()
    }

    fn send_request(
        &mut self,
        request: OutgoingRequest<'_>,
        is_whole: bool,
    ) -> Result<StreamKey, FailureCause> {
        let Some(stream) = self.reserved.front() else {
            return Err(FailureCause::Refused);
        };
        let opened = self.transport.send_request(*stream, request, is_whole);
        match opened {
            Ok(key) => {
                self.reserved.pop_front();
                Ok(key)
            }
            Err(error @ RequestError::HeadTooLarge) => Err(FailureCause::Request(error.into())),
            Err(_) => Err(FailureCause::Refused),
        }
    }

    fn output_position(&self) -> u64 {
        self.written
    }

    fn has_written_behind(&self, position: u64) -> bool {
        self.written > position
    }

    fn is_open(&self, stream: StreamKey) -> bool {
        self.transport.codec.is_open(stream)
    }

    fn is_stalled(&self, stream: StreamKey) -> bool {
        self.transport.is_blocked(stream)
    }

    fn want_send(&mut self, stream: StreamKey) {
        self.transport.want_send(stream);
    }

    fn send_bytes(&mut self, stream: StreamKey, chunk: Bytes, end: bool) -> bool {
        self.transport.send_bytes(stream, chunk, end);
        true
    }

    fn room(&mut self, most: usize) -> &mut [u8] {
        self.file.clear();
        self.file.resize(most.min(CHUNK), 0);
        &mut self.file
    }

    fn send_read(&mut self, stream: StreamKey, len: usize, end: bool) -> bool {
        let chunk = self.file.split_to(len.min(self.file.len())).freeze();
        self.send_bytes(stream, chunk, end)
    }

    fn send_end(&mut self, stream: StreamKey, trailers: Option<&Headers>) -> bool {
        match trailers {
            Some(trailers) => {
                self.transport.send_trailers(stream, trailers);
            }
            None => {
                self.transport.send_bytes(stream, Bytes::new(), true);
            }
        }
        true
    }

    fn cancel(&mut self, stream: StreamKey) {
        let (id, code) = (stream.id(), H3ErrorCode::REQUEST_CANCELLED);
        self.transport.codec.reset(stream, code);
        if self.transport.forget_output(id) {
            // For the codec it may be complete.
            let _ = self.transport.quic.reset(stream_id(id), code.0);
        }
        self.input.forget(id);
    }

    fn consumed(&mut self, stream: StreamKey, bytes: usize) {
        self.input.note_consumed(stream.id(), bytes);
    }
}
