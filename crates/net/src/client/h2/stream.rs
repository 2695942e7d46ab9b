//! What a connection keeps of each open stream, in a table by the stream's slot.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

use apus_codec::h2::StreamKey;
use apus_http::{Body, BodyStream, Headers, Interim, StatusCode};
use bytes::Bytes;

use super::response_slot::ResponseSlot;
use crate::body::{BodyReceiver, BodySender};
use crate::client::Timeouts;
use crate::h2::stream::BodyChunk;

/// The streams of a connection, by their slots.
#[derive(Default)]
pub(super) struct ClientStreams(Vec<Option<Box<ClientStream>>>);

/// One stream.
pub(super) struct ClientStream {
    pub(super) key: StreamKey,
    /// Who waits for the response; `None` once it is there.
    pub(super) response_slot: Option<Rc<ResponseSlot>>,
    pub(super) interim: Option<Interim>,
    pub(super) timeouts: Rc<Timeouts>,
    /// The connection had so many bytes to write before this request.
    pub(super) begins_at: u64,
    /// Whether this is an extended CONNECT, and so perhaps a tunnel.
    pub(super) is_tunnel: bool,
    /// Whether the response has no content whatever its fields say.
    pub(super) is_head: bool,
    pub(super) sending: RequestBodyState,
    pub(super) receiving: ResponseState,
    /// By when the next piece of the response, its head or the content that is waited for, has to
    /// come.
    pub(super) receive_by: Option<Instant>,
}

/// The content of the request.
pub(super) struct RequestBodyState {
    /// What it was, if it can be had again.
    pub(super) kept: Body,
    pub(super) next: BodyChunk,
    /// Where content comes from behind `next`.
    pub(super) source: Option<Box<dyn BodyStream>>,
    /// Whether nothing was taken from `source`.
    pub(super) is_untouched: bool,
    /// Bytes that `source` still has to give, where the head said how many.
    pub(super) left: Option<u64>,
    /// A part of a file that is read from its disk.
    pub(super) reading: Option<Pin<Box<dyn Future<Output = io::Result<Bytes>>>>>,
    /// Held back for `100 Continue`, no longer than this.
    pub(super) held_until: Option<Instant>,
    /// All was sent.
    pub(super) ended: bool,
    /// When some of it was sent last.
    pub(super) moved_at: Instant,
}

/// The response.
pub(super) enum ResponseState {
    /// Its head has to come.
    Head,
    /// The head is here, and perhaps a piece of the content. Both are handed on together, once all of
    /// the input was looked at.
    Pending(PendingResponse),
    /// BodySender is on its way to its reader.
    Body(BodySender),
    /// What comes is for nobody.
    Ended,
}

/// A response that was not handed on.
pub(super) struct PendingResponse {
    pub(super) status: StatusCode,
    pub(super) headers: Box<Headers>,
    /// The first piece of the content, as long as it is the only one.
    pub(super) piece: Option<Bytes>,
    pub(super) flow: Option<(BodySender, BodyReceiver)>,
}

impl RequestBodyState {
    /// The content `body`, whose sending begins now.
    pub(super) fn new(body: Body, now: Instant) -> Self {
        let mut sending = Self {
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
            Body::Stream(source) => sending.source = Some(source),
            whole => {
                // Of what is shared, a second one costs nothing.
                sending.kept = whole.share().unwrap_or_default();
                sending.next = whole.into();
            }
        }
        sending
    }

    /// Lets go of content that will not be sent.
    pub(super) fn forget(&mut self) {
        self.next = BodyChunk::Empty;
        self.source = None;
        self.held_until = None;
        self.ended = true;
    }

    /// The content, if nothing of it is lost.
    pub(super) fn give_back(self) -> Option<Body> {
        match self.source {
            Some(source) => self.is_untouched.then_some(Body::Stream(source)),
            None => self.is_untouched.then_some(self.kept),
        }
    }
}

impl ClientStreams {
    /// The stream, if it is here.
    pub(super) fn get(&mut self, key: StreamKey) -> Option<&mut ClientStream> {
        let stream = self.0.get_mut(key.slot())?.as_deref_mut();
        stream.filter(|stream| stream.key == key)
    }

    /// Which stream is in a slot.
    pub(super) fn key(&self, slot: usize) -> Option<StreamKey> {
        let stream = self.0.get(slot)?.as_ref();
        stream.map(|stream| stream.key)
    }

    pub(super) fn enter(&mut self, stream: Box<ClientStream>) {
        let slot = stream.key.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.0.get_mut(slot) {
            *place = Some(stream);
        }
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, key: StreamKey) -> Option<Box<ClientStream>> {
        let place = self.0.get_mut(key.slot())?;
        match place {
            Some(stream) if stream.key == key => place.take(),
            _ => None,
        }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.0.len()
    }

    pub(super) fn keys(&self) -> Vec<StreamKey> {
        let streams = self.0.iter().flatten();
        streams.map(|stream| stream.key).collect()
    }
}
