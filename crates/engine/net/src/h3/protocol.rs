//! The codec of an HTTP/3 connection over QUIC, as the protocol of its streams.

use std::collections::VecDeque;

use apus_codec::messages::ExpectedBody;
use apus_h3::{H3ErrorCode, StreamKey};
use apus_h3_quic::{CHUNK, Http3Transport, stream_id};
use apus_http::{Headers, ResponseHead, ResponseOutcome, StatusCode};
use bytes::{Bytes, BytesMut};

use crate::connection_table::NEVER;
use crate::streams::{self, CompletionObservers, ResetReason, Stall, StreamProtocol};

/// The codec over QUIC, and the responses that it sends.
pub(super) struct Http3Protocol {
    pub(super) transport: Http3Transport,
    /// The buffer into which files are read.
    file: BytesMut,
    /// The responses that QUIC has as a whole, and the client in part.
    completing: CompletingResponses,
    /// Bytes of bodies that services have read, by stream.
    pub(super) consumed: Vec<(u64, usize)>,
}

/// Responses by their streams, with the observers of their completion.
#[derive(Default)]
struct CompletingResponses(VecDeque<(u64, Box<CompletionObservers>)>);

impl CompletingResponses {
    fn report(&mut self, id: u64, outcome: ResponseOutcome) {
        let position = self.0.iter().position(|(other, _)| *other == id);
        if let Some(position) = position
            && let Some((_, observed)) = self.0.remove(position)
        {
            observed.notify(outcome);
        }
    }
}

impl Http3Protocol {
    pub(super) fn new(transport: Http3Transport) -> Self {
        Self {
            transport,
            file: BytesMut::new(),
            completing: CompletingResponses::default(),
            consumed: Vec::new(),
        }
    }

    /// Gives QUIC what was encoded, and does what the codec requests.
    pub(super) fn flush(&mut self) {
        let completing = &mut self.completing;
        self.transport
            .flush(|id| completing.report(id, ResponseOutcome::ClientGone));
    }

    /// Drops what a stream has to send, and reports its response as incomplete.
    pub(super) fn forget_output(&mut self, id: u64) {
        self.transport.forget_output(id);
        self.report(id, ResponseOutcome::ClientGone);
    }

    /// Reports to the observers of a response that QUIC has as a whole.
    pub(super) fn report(&mut self, id: u64, outcome: ResponseOutcome) {
        self.completing.report(id, outcome);
    }

    /// Reports all responses that QUIC has as a whole.
    pub(super) fn report_all(&mut self, outcome: ResponseOutcome) {
        for (_, observed) in self.completing.0.drain(..) {
            observed.notify(outcome);
        }
    }

    /// Resets the streams that are complete here, and of which the client has taken less than `least` bytes since
    /// `oldest`. Returns their number, and the tick since which another waits.
    pub(super) fn reset_stalled(&mut self, now: u32, oldest: u32, least: usize) -> (u64, u32) {
        let (stalled, earliest) = self.transport.stalled(now, oldest, least);
        for id in &stalled {
            let code = H3ErrorCode::REQUEST_CANCELLED.0;
            let _ = self.transport.quic.reset(stream_id(*id), code);
            self.forget_output(*id);
        }
        (stalled.len() as u64, earliest.unwrap_or(NEVER))
    }

    /// Releases memory, while no stream is open.
    pub(super) fn shrink(&mut self) {
        self.transport.shrink();
        self.file = BytesMut::new();
        self.completing.0.shrink_to_fit();
    }
}

impl streams::SlotKey for StreamKey {
    fn slot(self) -> usize {
        self.slot()
    }

    fn number(self) -> u32 {
        // The lower bits of its place among the requests of the connection.
        (self.id() >> 2) as u32
    }
}

impl StreamProtocol for Http3Protocol {
    type Key = StreamKey;

    fn is_open(&self, stream: StreamKey) -> bool {
        self.transport.codec.is_open(stream)
    }

    fn stall(&self, stream: StreamKey) -> Option<Stall> {
        self.transport.is_blocked(stream).then_some(Stall::Unknown)
    }

    fn unsent(&self, stream: StreamKey) -> u64 {
        self.transport.blocked_bytes(stream) as u64
    }

    fn has_room(&self) -> bool {
        self.transport.has_room()
    }

    fn send_head(&mut self, stream: StreamKey, head: ResponseHead<'_>) -> (ExpectedBody, u64) {
        self.transport.send_head(stream, head)
    }

    fn send_informational(&mut self, stream: StreamKey, status: StatusCode, headers: &Headers) {
        self.transport.send_informational(stream, status, headers);
    }

    fn want_send(&mut self, stream: StreamKey) {
        self.transport.want_send(stream);
    }

    fn send_bytes(&mut self, stream: StreamKey, chunk: Bytes, end: bool) -> Option<u64> {
        Some(self.transport.send_bytes(stream, chunk, end))
    }

    fn room(&mut self, most: usize) -> &mut [u8] {
        self.file.clear();
        // Each read fills a new buffer. Pages that the worker keeps did not pay: with 1 MB over 16 connections of
        // HTTP/3 a request took 996 us with them and 1,000 us without. What is saved in user mode is lost in the
        // kernel, which copies into colder memory.
        self.file.resize(most.min(CHUNK), 0);
        &mut self.file
    }

    fn send_read(&mut self, stream: StreamKey, len: usize, end: bool) -> Option<u64> {
        let chunk = self.file.split_to(len.min(self.file.len())).freeze();
        self.send_bytes(stream, chunk, end)
    }

    fn send_trailers(&mut self, stream: StreamKey, trailers: &Headers) -> u64 {
        self.transport.send_trailers(stream, trailers)
    }

    fn complete(&mut self, stream: StreamKey, mut observed: Box<CompletionObservers>) {
        observed.sent_all();
        self.completing.0.push_back((stream.id(), observed));
    }

    fn abandon(&mut self, stream: StreamKey) {
        self.transport.codec.abandon(stream);
    }

    fn reset(&mut self, stream: StreamKey, why: ResetReason) {
        let code = match why {
            // With this code, and after a complete response only, a client does not discard the response (RFC 9114
            // section 4.1).
            ResetReason::Complete => H3ErrorCode::NO_ERROR,
            ResetReason::Failed => H3ErrorCode::INTERNAL_ERROR,
            ResetReason::Stalled | ResetReason::Unsent => H3ErrorCode::REQUEST_CANCELLED,
        };
        self.transport.codec.reset(stream, code);
    }

    fn consumed(&mut self, stream: StreamKey, bytes: usize) {
        self.consumed.push((stream.id(), bytes));
    }
}
