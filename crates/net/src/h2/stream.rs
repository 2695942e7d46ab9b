//! The state of each open stream of a connection with a client, in a table by the stream's slot.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Instant;

use apus_codec::h2::StreamKey;
use apus_http::{Body, BodyStream, Completion, FileRange, Response, ResponseOutcome, StatusCode};
use bytes::Bytes;

use super::request_body::Http2RequestBody;

/// The streams of a connection, by their slots.
#[derive(Default)]
pub(super) struct ServerStreams(Vec<ServerStream>);

/// One stream, or a free slot.
#[derive(Default)]
pub(super) struct ServerStream {
    key: Option<StreamKey>,
    pub(super) kind: StreamKind,
    pub(super) work: StreamWork,
    pub(super) next: BodyChunk,
    /// The source of the data behind `next`.
    pub(super) source: Option<Box<dyn BodyStream>>,
    /// Bytes that `source` still has to produce, if the head has a length.
    pub(super) left: Option<u64>,
    pub(super) request_body: Option<Box<Http2RequestBody>>,
    pub(super) observed: Option<Box<CompletionObservers>>,
    /// The tick at which it last received or sent data.
    pub(super) moved_at: u32,
}

/// The kind of a request.
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

/// The future that a stream waits for.
#[derive(Default)]
pub(super) enum StreamWork {
    #[default]
    None,
    /// The response of the service.
    Response(Pin<Box<dyn Future<Output = Response>>>),
    /// A read of a part of a file from its disk.
    Reading(Pin<Box<dyn Future<Output = io::Result<Bytes>>>>),
    /// The tunnel.
    Tunnel(Pin<Box<dyn Future<Output = ()>>>),
}

/// Data to send.
#[derive(Default)]
pub(crate) enum BodyChunk {
    #[default]
    Empty,
    Bytes(Bytes),
    File(FileRange),
    /// A part of a file that was read from a disk, and the rest of the file.
    Read(Box<(Bytes, FileRange)>),
}

/// The next part of a [`BodyChunk`] to send.
pub(crate) enum ChunkPart {
    Bytes(Bytes),
    File(FileRange),
}

impl BodyChunk {
    /// Takes the next part to send: up to `most` bytes, or a whole file, of which the caller puts back the
    /// rest.
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

/// The observers of a response's completion, and its data so far.
pub(super) struct CompletionObservers {
    observers: Vec<Observer>,
    completion: Completion,
    arrived: Instant,
}

/// How many slots are added at a time.
const GROWTH: usize = 4;

impl ServerStreams {
    /// The stream, if it is in its slot.
    pub(super) fn get(&mut self, key: StreamKey) -> Option<&mut ServerStream> {
        let stream = self.0.get_mut(key.slot())?;
        (stream.key == Some(key)).then_some(stream)
    }

    /// The stream in a slot.
    pub(super) fn key(&self, slot: usize) -> Option<StreamKey> {
        self.0.get(slot)?.key
    }

    /// Enters a stream.
    pub(super) fn enter(&mut self, key: StreamKey) -> &mut ServerStream {
        let slot = key.slot();
        if self.0.len() <= slot {
            // Few connections ever have many streams at once, and there may be many connections.
            self.0.reserve_exact(GROWTH);
            self.0.resize_with(slot + 1, ServerStream::default);
        }
        // The slot exists now.
        #[expect(clippy::indexing_slicing)]
        let stream = &mut self.0[slot];
        stream.key = Some(key);
        stream
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, key: StreamKey) -> Option<ServerStream> {
        self.get(key).map(std::mem::take)
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        self.0.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        self.0.iter().filter_map(|stream| stream.key)
    }

    /// Releases all memory, while there is no stream.
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
    /// The data of a body that is available as a whole: none of a stream.
    fn from(body: Body) -> Self {
        match body {
            Body::Bytes(bytes) if !bytes.is_empty() => Self::Bytes(bytes),
            Body::Sealed(sealed) if !sealed.bytes().is_empty() => Self::Bytes(sealed.into_bytes()),
            Body::File(range) => Self::file(range),
            _ => Self::Empty,
        }
    }
}

impl CompletionObservers {
    /// Takes the observers of `response`; mostly there are none.
    pub(super) fn of(response: &mut Response, arrived: Instant) -> Option<Box<Self>> {
        response.is_observed().then(|| {
            Box::new(Self {
                observers: response.take_observers(),
                completion: Completion {
                    status: StatusCode::OK,
                    body_bytes: 0,
                    bytes: 0,
                    duration: std::time::Duration::ZERO,
                    outcome: ResponseOutcome::Complete,
                    origin: None,
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

    /// Counts data, and its framing.
    pub(super) fn sent(&mut self, body_bytes: u64, framing_bytes: u64) {
        self.completion.body_bytes += body_bytes;
        self.completion.bytes += body_bytes + framing_bytes;
    }

    /// Reports how the response ended.
    pub(super) fn notify(mut self, outcome: ResponseOutcome) {
        self.completion.outcome = outcome;
        self.completion.duration = self.arrived.elapsed();
        for observer in self.observers {
            observer(&self.completion);
        }
    }
}
