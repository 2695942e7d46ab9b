//! What a connection keeps of each open stream, in a table by the stream's slot.

use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use apus_codec::h2::StreamKey;
use apus_http::{Body, BodyStream, Completion, FileRange, Outcome, Response, StatusCode};
use bytes::Bytes;

use super::request_body::Http2RequestBody;

/// The streams of a connection, by their slots.
#[derive(Default)]
pub(super) struct ServerStreams(Vec<ServerStream>);

/// One stream, or a free place for one.
#[derive(Default)]
pub(super) struct ServerStream {
    key: Option<StreamKey>,
    pub(super) kind: StreamKind,
    pub(super) work: StreamWork,
    pub(super) next: BodyChunk,
    /// Where content comes from behind `next`.
    pub(super) source: Option<Box<dyn BodyStream>>,
    /// Bytes that `source` still has to give, where the head said how many.
    pub(super) left: Option<u64>,
    pub(super) incoming: Option<Box<Http2RequestBody>>,
    pub(super) observed: Option<Box<CompletionObservers>>,
    /// The tick at which it last got or sent content.
    pub(super) moved_at: u32,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// A response.
    #[default]
    Regular,
    /// A tunnel by CONNECT, which a 2xx opens (RFC 9113 section 8.5).
    Connect,
    /// A tunnel by extended CONNECT (RFC 8441), which a 101 opens.
    ExtendedConnect,
}

/// What a stream waits for.
#[derive(Default)]
pub(super) enum StreamWork {
    #[default]
    None,
    /// The response of the service.
    Response(Pin<Box<dyn Future<Output = Response>>>),
    /// A part of a file, for a disk.
    Reading(Pin<Box<dyn Future<Output = io::Result<Bytes>>>>),
    /// The end of a tunnel.
    Tunnel(Pin<Box<dyn Future<Output = ()>>>),
}

/// Content at hand.
#[derive(Default)]
pub(crate) enum BodyChunk {
    #[default]
    Empty,
    Bytes(Bytes),
    File(FileRange),
    /// A part of a file that was read from a disk, and what follows it there.
    Read(Box<(Bytes, FileRange)>),
}

/// What is to be sent next of a [`BodyChunk`].
pub(crate) enum ChunkPart {
    Bytes(Bytes),
    File(FileRange),
}

impl BodyChunk {
    /// Takes off what is sent next: up to `most` bytes, or all of a file, of which the caller puts back
    /// what it does not send.
    pub(crate) fn split(&mut self, most: usize) -> Option<ChunkPart> {
        match std::mem::take(self) {
            Self::Empty => None,
            Self::Bytes(mut bytes) => {
                let part = bytes.split_to(bytes.len().min(most));
                if !bytes.is_empty() {
                    *self = Self::Bytes(bytes);
                }
                Some(ChunkPart::Bytes(part))
            }
            Self::Read(mut read) => {
                let (bytes, rest) = &mut *read;
                let part = bytes.split_to(bytes.len().min(most));
                *self = match bytes.is_empty() {
                    true => Self::file(rest.clone()),
                    false => Self::Read(read),
                };
                Some(ChunkPart::Bytes(part))
            }
            Self::File(range) => Some(ChunkPart::File(range)),
        }
    }
}

type Observer = Box<dyn FnOnce(&Completion)>;

/// Who wants to know how an answer ends, and what is known of that.
pub(super) struct CompletionObservers {
    observers: Vec<Observer>,
    completion: Completion,
    arrived: Instant,
}

/// How many places are made at a time.
const GROWTH: usize = 4;

impl ServerStreams {
    /// The stream, if it is here.
    pub(super) fn get(&mut self, key: StreamKey) -> Option<&mut ServerStream> {
        let stream = self.0.get_mut(key.slot())?;
        (stream.key == Some(key)).then_some(stream)
    }

    /// Which stream is in a slot.
    pub(super) fn key(&self, slot: usize) -> Option<StreamKey> {
        self.0.get(slot)?.key
    }

    /// Makes a place for a stream.
    pub(super) fn enter(&mut self, key: StreamKey) -> &mut ServerStream {
        let slot = key.slot();
        if self.0.len() <= slot {
            // Few connections ever have many at once, and there may be many connections.
            self.0.reserve_exact(GROWTH);
            self.0.resize_with(slot + 1, ServerStream::default);
        }
        // The place is there now.
        #[expect(clippy::indexing_slicing)]
        let stream = &mut self.0[slot];
        stream.key = Some(key);
        stream
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, key: StreamKey) -> Option<ServerStream> {
        self.get(key).map(std::mem::take)
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.0.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        self.0.iter().filter_map(|stream| stream.key)
    }

    /// Gives back all memory, where there is no stream.
    pub(super) fn shrink(&mut self) {
        self.0 = Vec::new();
    }
}

impl BodyChunk {
    pub(crate) fn file(range: FileRange) -> Self {
        match range.len {
            0 => Self::Empty,
            _ => Self::File(range),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl From<Body> for BodyChunk {
    /// Content that is at hand as a whole: nothing of a stream.
    fn from(body: Body) -> Self {
        match body {
            Body::Bytes(bytes) if !bytes.is_empty() => Self::Bytes(bytes),
            Body::Sealed(sealed) if !sealed.bytes().is_empty() => Self::Bytes(sealed.into_bytes()),
            Body::File(range) => Self::file(range),
            _ => Self::Empty,
        }
    }
}

/// A range of a file without its first `bytes` bytes.
pub(crate) fn behind(range: &FileRange, bytes: u64) -> FileRange {
    FileRange {
        file: Arc::<File>::clone(&range.file),
        offset: range.offset.saturating_add(bytes),
        len: range.len.saturating_sub(bytes),
    }
}

impl CompletionObservers {
    /// Takes over who wants to know how `response` ends; none is the usual case.
    pub(super) fn of(response: &mut Response, arrived: Instant) -> Option<Box<Self>> {
        response.is_observed().then(|| {
            Box::new(Self {
                observers: response.take_observers(),
                completion: Completion {
                    status: StatusCode::OK,
                    body_bytes: 0,
                    bytes: 0,
                    duration: std::time::Duration::ZERO,
                    outcome: Outcome::Complete,
                    source: None,
                    cache: None,
                },
                arrived,
            })
        })
    }

    pub(super) fn sent_head(&mut self, status: StatusCode, bytes: u64) {
        self.completion.status = status;
        self.completion.bytes += bytes;
    }

    /// Counts content, and the frames around it.
    pub(super) fn sent(&mut self, body_bytes: u64, framing_bytes: u64) {
        self.completion.body_bytes += body_bytes;
        self.completion.bytes += body_bytes + framing_bytes;
    }

    /// Tells how the answer ended.
    pub(super) fn tell(mut self, outcome: Outcome) {
        self.completion.outcome = outcome;
        self.completion.duration = self.arrived.elapsed();
        for observer in self.observers {
            observer(&self.completion);
        }
    }
}
