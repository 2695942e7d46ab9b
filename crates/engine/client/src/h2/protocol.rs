//! The codec of an HTTP/2 connection to an origin and its output, as the protocol of its streams.

use std::rc::Rc;

use apus_codec::h2::{
    ConnectionError, ErrorCode, Http2Codec as Codec, Http2Config, OutgoingRequest, StreamKey,
};
use apus_http::{Headers, Version};
use apus_transport::buffers::BufferPool;
use apus_transport::write_batch::{BATCH, WriteBatch};
use bytes::Bytes;

use crate::streams::{ClientProtocol, CloseReason, RECEIVE_WINDOW, STREAMS};
use crate::{FailureCause, ResponseRules};

/// The codec and the bytes to write.
pub(super) struct Http2ClientProtocol {
    pub(super) codec: Codec,
    pub(super) out: WriteBatch,
    pub(super) buffers: Rc<BufferPool>,
    /// Why the connection ends, once `out` is written.
    pub(super) end: Option<CloseReason<ConnectionError>>,
}

impl Http2ClientProtocol {
    /// A connection over which nothing was sent or received.
    pub(super) fn new(rules: ResponseRules) -> Self {
        let buffers = BufferPool::of_thread();
        let mut out = WriteBatch::default();
        let config = Http2Config {
            max_concurrent_streams: u32::try_from(STREAMS).unwrap_or(u32::MAX),
            // The initial value, below which none is allowed (RFC 9113 section 6.5.2).
            max_frame_size: 16 * 1024,
            // A client gets no requests.
            target_bytes: 0,
            head_bytes: rules.head_size(),
            fields: rules.max_fields(),
            receive_window: RECEIVE_WINDOW,
            stream_receive_window: None,
            // Only a server offers it (RFC 8441 section 3).
            extended_connect: false,
        };
        let codec = Codec::client(config, out.frames(&buffers));
        Self {
            codec,
            out,
            buffers,
            end: None,
        }
    }

    /// Encodes the header of a frame of data; returns whether the connection goes on.
    fn send_data(&mut self, stream: StreamKey, len: usize, end: bool) -> bool {
        let frames = self.out.frames(&self.buffers);
        match self.codec.send_data(stream, len, end, frames) {
            Ok(()) => true,
            Err(error) => {
                self.end = Some(CloseReason::Protocol(error));
                false
            }
        }
    }
}

impl ClientProtocol for Http2ClientProtocol {
    type Id = u32;
    type Fault = ConnectionError;

    const VERSION: Version = Version::HTTP_2;

    fn open_streams(&self) -> usize {
        self.codec.open_streams()
    }

    fn available_streams(&self) -> usize {
        self.codec.available_streams()
    }

    fn is_shutting_down(&self) -> bool {
        self.codec.is_shutting_down()
    }

    fn has_room(&self) -> bool {
        self.out.len() < BATCH && self.end.is_none()
    }

    fn has_peer_settings(&self) -> bool {
        self.codec.has_peer_settings()
    }

    fn allows_extended_connect(&self) -> bool {
        self.codec.allows_extended_connect()
    }

    fn send_request(
        &mut self,
        request: OutgoingRequest<'_>,
        is_whole: bool,
    ) -> Result<StreamKey, FailureCause> {
        let frames = self.out.frames(&self.buffers);
        let opened = self.codec.send_request(request, is_whole, frames);
        opened.ok_or(FailureCause::Refused)
    }

    fn output_position(&self) -> u64 {
        self.out.added()
    }

    fn has_written_behind(&self, position: u64) -> bool {
        self.out.written() > position
    }

    fn is_open(&self, stream: StreamKey) -> bool {
        self.codec.is_open(stream)
    }

    fn is_stalled(&self, stream: StreamKey) -> bool {
        self.codec.is_stalled(stream)
    }

    fn want_send(&mut self, stream: StreamKey) {
        self.codec.want_send(stream);
    }

    fn send_bytes(&mut self, stream: StreamKey, chunk: Bytes, end: bool) -> bool {
        let goes_on = self.send_data(stream, chunk.len(), end);
        if goes_on {
            self.out.add(chunk, &self.buffers);
        }
        goes_on
    }

    fn room(&mut self, most: usize) -> &mut [u8] {
        self.out.room(most, &self.buffers)
    }

    fn send_read(&mut self, stream: StreamKey, len: usize, end: bool) -> bool {
        let goes_on = self.send_data(stream, len, end);
        if goes_on {
            self.out.add_read(len);
        }
        goes_on
    }

    fn send_end(&mut self, stream: StreamKey, trailers: Option<&Headers>) -> bool {
        match trailers {
            Some(trailers) => {
                let frames = self.out.frames(&self.buffers);
                self.codec.send_trailers(stream, trailers, frames);
                true
            }
            None => self.send_data(stream, 0, true),
        }
    }

    fn cancel(&mut self, stream: StreamKey) {
        let frames = self.out.frames(&self.buffers);
        self.codec.reset(stream, ErrorCode::CANCEL, frames);
    }

    fn consumed(&mut self, stream: StreamKey, bytes: usize) {
        let frames = self.out.frames(&self.buffers);
        self.codec.consumed(stream, bytes, frames);
    }
}
