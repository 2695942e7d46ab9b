//! The state of each open stream of a connection with a client, in a table by the stream's slot.

use std::future::Future;
use std::io;
use std::pin::Pin;

use apus_codec::messages::RequestKind;
use std::time::Instant;

use apus_http::{BodyStream, Response};
use apus_transport::BodyChunk;
use bytes::Bytes;

use super::completion::CompletionObservers;
use super::protocol::SlotKey;
use super::request_body::StreamRequestBody;

/// The streams of a connection, by their slots.
pub(super) struct ServerStreams<K>(Vec<StreamSlot<K>>);

/// One slot, which is free without a key.
struct StreamSlot<K> {
    key: Option<K>,
    stream: ServerStream,
}

/// One stream.
#[derive(Default)]
pub(super) struct ServerStream {
    pub(super) kind: RequestKind,
    pub(super) work: StreamWork,
    pub(super) next: BodyChunk,
    /// The source of the data behind `next`.
    pub(super) source: Option<Box<dyn BodyStream>>,
    /// Bytes that `source` still has to produce, if the head has a length.
    pub(super) left: Option<u64>,
    pub(super) request_body: Option<Box<StreamRequestBody>>,
    pub(super) observed: Option<Box<CompletionObservers>>,
    /// When its head arrived.
    pub(super) arrived: Option<Instant>,
    /// The tick at which it last received or sent data.
    pub(super) moved_at: u32,
    /// The bytes of the body that were sent.
    pub(super) sent: u64,
    /// What was sent when the stream began to wait for the client, if it waits.
    pub(super) waiting: Option<SendProgress>,
}

/// How much was sent at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendProgress {
    /// The tick.
    pub(super) at: u32,
    /// The bytes of the stream that the client had taken.
    pub(super) taken: u64,
    /// The bytes of the whole connection.
    pub(super) of_connection: u64,
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

impl ServerStream {
    /// Whether the service has not responded yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.work, StreamWork::Response(_))
    }
}

/// How many slots are added at a time.
const GROWTH: usize = 4;

impl<K> Default for ServerStreams<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: SlotKey> ServerStreams<K> {
    /// The stream, if it is in its slot.
    pub(super) fn get(&mut self, key: K) -> Option<&mut ServerStream> {
        let slot = self.0.get_mut(key.slot())?;
        (slot.key == Some(key)).then_some(&mut slot.stream)
    }

    /// The stream in a slot.
    pub(super) fn key(&self, slot: usize) -> Option<K> {
        self.0.get(slot)?.key
    }

    /// Enters a stream.
    pub(super) fn enter(&mut self, key: K) -> &mut ServerStream {
        let index = key.slot();
        if self.0.len() <= index {
            // Few connections ever have many streams at once, and there may be many connections.
            self.0.reserve_exact(GROWTH);
            self.0.resize_with(index + 1, || StreamSlot {
                key: None,
                stream: ServerStream::default(),
            });
        }
        // The slot exists now.
        #[expect(clippy::indexing_slicing)]
        let slot = &mut self.0[index];
        slot.key = Some(key);
        &mut slot.stream
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, key: K) -> Option<ServerStream> {
        let slot = self.0.get_mut(key.slot())?;
        if slot.key != Some(key) {
            return None;
        }
        slot.key = None;
        Some(std::mem::take(&mut slot.stream))
    }

    /// The number of streams that are tunnels, or may become one.
    pub(super) fn tunnels(&self) -> usize {
        let open = self.0.iter().filter(|slot| slot.key.is_some());
        open.filter(|slot| slot.stream.kind.is_connect()).count()
    }

    /// The number of requests whose responses have not begun.
    pub(super) fn waiting(&self) -> usize {
        let open = self.0.iter().filter(|slot| slot.key.is_some());
        open.filter(|slot| slot.stream.is_waiting()).count()
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        self.0.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = K> {
        self.0.iter().filter_map(|slot| slot.key)
    }

    /// Releases all memory, while there is no stream.
    pub(super) fn shrink(&mut self) {
        self.0 = Vec::new();
    }
}
