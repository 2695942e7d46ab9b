//! The state of each open stream of a connection to an origin, in a table by the stream's slot.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

use apus_codec::stream_table::{StreamId, StreamKey};
use apus_http::{Body, BodyStream, Headers, Interim, StatusCode};
use apus_transport::{BodyChunk, BodyReceiver, BodySender};
use bytes::Bytes;

use super::response_slot::ResponseSlot;
use crate::Timeouts;

/// The streams of a connection, by their slots.
pub(super) struct ClientStreams<Id>(Vec<Option<Box<ClientStream<Id>>>>);

impl<Id> Default for ClientStreams<Id> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// One stream.
pub(super) struct ClientStream<Id> {
    pub(super) key: StreamKey<Id>,
    /// The slot of the sender that waits for the response; `None` once it was delivered.
    pub(super) response_slot: Option<Rc<ResponseSlot>>,
    pub(super) interim: Option<Interim>,
    pub(super) timeouts: Rc<Timeouts>,
    /// The place of this request in the output of the connection.
    pub(super) begins_at: u64,
    /// The protocol of an extended CONNECT, which may become a tunnel.
    pub(super) tunnel: Option<Box<str>>,
    /// Whether the response has no body whatever its fields say.
    pub(super) is_head: bool,
    pub(super) request_body: RequestBodyState,
    pub(super) response: ResponseState,
    /// By when the next part of the response has to arrive: its head, or data that its reader waits for.
    pub(super) receive_by: Option<Instant>,
}

/// The body of the request.
pub(super) struct RequestBodyState {
    /// A copy of the body, if it can be sent again.
    pub(super) kept: Body,
    pub(super) next: BodyChunk,
    /// The source of the data behind `next`.
    pub(super) source: Option<Box<dyn BodyStream>>,
    /// Whether nothing was taken from `source`.
    pub(super) is_untouched: bool,
    /// Bytes that `source` still has to produce, if the head has a length.
    pub(super) left: Option<u64>,
    /// The read of a part of a file from its disk.
    pub(super) reading: Option<Pin<Box<dyn Future<Output = io::Result<Bytes>>>>>,
    /// The end of the wait for `100 Continue`.
    pub(super) held_until: Option<Instant>,
    /// Whether all was sent.
    pub(super) ended: bool,
    /// When some of it was sent last.
    pub(super) moved_at: Instant,
}

/// The response.
pub(super) enum ResponseState {
    /// The head has not arrived.
    Head,
    /// The head has arrived, and perhaps the first chunk of the body. Both are delivered together when all of
    /// the input was handled.
    Pending(PendingResponse),
    /// The body is on its way to its reader.
    Body(BodySender),
    /// What arrives is discarded.
    Ended,
}

/// A response that was not delivered.
pub(super) struct PendingResponse {
    pub(super) status: StatusCode,
    pub(super) headers: Box<Headers>,
    /// The first chunk of the body, while it is the only one.
    pub(super) piece: Option<Bytes>,
    pub(super) flow: Option<(BodySender, BodyReceiver)>,
}

impl RequestBodyState {
    /// The body of a request that starts to be sent now.
    pub(super) fn new(body: Body, now: Instant) -> Self {
        let mut request_body = Self {
            kept: Body::Empty,
            next: BodyChunk::Empty,
            source: None,
            is_untouched: true,
            left: body.len(),
            reading: None,
            held_until: None,
            ended: false,
            moved_at: now,
        };
        match body {
            Body::Stream(source) => request_body.source = Some(source),
            whole => {
                // A copy of a shared body costs nothing.
                request_body.kept = whole.share().unwrap_or_default();
                request_body.next = whole.into();
            }
        }
        request_body
    }

    /// Drops a body that will not be sent.
    pub(super) fn forget(&mut self) {
        self.next = BodyChunk::Empty;
        self.source = None;
        self.reading = None;
        self.held_until = None;
        self.ended = true;
    }

    /// The body, if it can be sent again.
    pub(super) fn give_back(self) -> Option<Body> {
        match self.source {
            Some(source) => self.is_untouched.then_some(Body::Stream(source)),
            None => self.is_untouched.then_some(self.kept),
        }
    }
}

impl<Id: StreamId> ClientStreams<Id> {
    /// The stream, if it is in its slot.
    pub(super) fn get(&mut self, key: StreamKey<Id>) -> Option<&mut ClientStream<Id>> {
        let stream = self.0.get_mut(key.slot())?.as_deref_mut();
        // Slots are used again: an event of a stream that is closed must not reach the next one in its slot.
        stream.filter(|stream| stream.key == key)
    }

    /// The stream in a slot.
    pub(super) fn key(&self, slot: usize) -> Option<StreamKey<Id>> {
        let stream = self.0.get(slot)?.as_ref();
        stream.map(|stream| stream.key)
    }

    pub(super) fn enter(&mut self, stream: Box<ClientStream<Id>>) {
        let slot = stream.key.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        if let Some(entry) = self.0.get_mut(slot) {
            *entry = Some(stream);
        }
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, key: StreamKey<Id>) -> Option<Box<ClientStream<Id>>> {
        let entry = self.0.get_mut(key.slot())?;
        match entry {
            Some(stream) if stream.key == key => entry.take(),
            _ => None,
        }
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        self.0.len()
    }

    pub(super) fn keys(&self) -> Vec<StreamKey<Id>> {
        let streams = self.0.iter().flatten();
        streams.map(|stream| stream.key).collect()
    }
}
