//! The open streams of a connection (RFC 9113 section 5.1).

use super::frame;
use super::priority::Priority;

/// A stream, as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    slot: u16,
    id: u32,
}

impl StreamKey {
    #[cfg(test)]
    pub(super) fn new(slot: u16, id: u32) -> Self {
        Self { slot, id }
    }

    /// A small number that no other open stream of the connection has.
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }

    /// The stream identifier.
    pub fn id(self) -> u32 {
        self.id
    }
}

/// What is known of one open stream: 64 bytes.
#[derive(Debug)]
pub(super) struct Stream {
    /// What the peer lets us send.
    pub(super) send_window: i32,
    /// What we let the peer send.
    pub(super) receive_window: i32,
    /// Content that came and that its reader has not used.
    pub(super) unread: u32,
    /// Content that was used and not yet given back to the window.
    pub(super) unannounced: u32,
    /// What is left of the content that was announced by `content-length`.
    pub(super) content_left: Option<u64>,
    pub(super) priority: Priority,
    pub(super) receiving: Receiving,
    pub(super) sending: Sending,
    pub(super) turn: Turn,
    pub(super) request: RequestKind,
}

impl Stream {
    /// Gives back content that was used, or padding, once it is worth a frame: `target` is the size
    /// of the window.
    pub(super) fn give_back(&mut self, id: u32, bytes: u32, target: u32, out: &mut Vec<u8>) {
        self.unannounced = self.unannounced.saturating_add(bytes);
        if self.unannounced >= target / 2 && self.receiving == Receiving::Content {
            let increment = std::mem::take(&mut self.unannounced);
            let more = i32::try_from(increment).unwrap_or(i32::MAX);
            self.receive_window = self.receive_window.saturating_add(more);
            frame::window_update(id, increment, out);
        }
    }
}

/// How far the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// A head has to come (at a client).
    Head,
    /// Content or trailers may come.
    Content,
    /// Content may come, and nobody wants it.
    Discarded,
    /// All came.
    Ended,
}

/// How far we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// A head has to be sent.
    Head,
    /// Content or trailers may be sent.
    Content,
    /// All was sent.
    Ended,
}

/// Whether the stream wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has nothing at hand.
    None,
    /// It stands in the schedule.
    Queued,
    /// It waits for its window.
    Stalled,
}

/// What the method means for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Usual,
    Head,
    Connect,
    ExtendedConnect,
}

/// The open streams, each in a slot.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The identifier of each slot's stream, 0 if it is free. Apart from the rest, since it is
    /// searched for each frame.
    ids: Vec<u32>,
    entries: Vec<Stream>,
    free: Vec<u16>,
}

/// How many slots are made at a time.
const GROWTH: usize = 4;

impl Streams {
    pub(super) fn open(&self) -> usize {
        self.ids.len().saturating_sub(self.free.len())
    }

    pub(super) fn insert(&mut self, id: u32, stream: Stream) -> StreamKey {
        if let Some(slot) = self.free.pop() {
            let at = usize::from(slot);
            if let (Some(known), Some(entry)) = (self.ids.get_mut(at), self.entries.get_mut(at)) {
                (*known, *entry) = (id, stream);
            }
            return StreamKey { slot, id };
        }
        let slot = u16::try_from(self.ids.len()).unwrap_or(u16::MAX);
        // Few connections ever have many at once, and there may be many connections.
        if self.ids.len() == self.ids.capacity() {
            self.ids.reserve_exact(GROWTH);
            self.entries.reserve_exact(GROWTH);
        }
        self.ids.push(id);
        self.entries.push(stream);
        StreamKey { slot, id }
    }

    /// The open stream with this identifier.
    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        let slot = self.ids.iter().position(|known| *known == id)?;
        let slot = u16::try_from(slot).ok()?;
        (id != 0).then_some(StreamKey { slot, id })
    }

    pub(super) fn get(&self, key: StreamKey) -> Option<&Stream> {
        let slot = key.slot();
        self.entries
            .get(slot)
            .filter(|_| self.ids.get(slot) == Some(&key.id))
    }

    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let slot = key.slot();
        let is_same = self.ids.get(slot) == Some(&key.id);
        self.entries.get_mut(slot).filter(|_| is_same)
    }

    /// Frees the slot of a stream.
    pub(super) fn remove(&mut self, key: StreamKey) {
        if let Some(known) = self.ids.get_mut(key.slot())
            && *known == key.id
        {
            *known = 0;
            self.free.push(key.slot);
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamKey, &mut Stream)> {
        let keys = self.ids.iter().zip(0_u16..);
        keys.zip(&mut self.entries)
            .filter(|((id, _), _)| **id != 0)
            .map(|((id, slot), stream)| (StreamKey { slot, id: *id }, stream))
    }

    /// Gives back room when no stream is open.
    pub(super) fn shrink(&mut self) {
        if self.open() == 0 {
            *self = Self::default();
        }
    }
}

/// Streams that are closed since not long ago, told apart by who closed them (section 5.1, "closed").
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Reset by us: what the peer sent before it knew is ignored.
    reset: Last<128>,
    /// Ended by both, or reset by the peer: what comes on them is an error of the stream.
    ended: Last<8>,
}

impl Forgotten {
    pub(super) fn add(&mut self, id: u32) {
        self.reset.add(id);
    }

    pub(super) fn note_end(&mut self, id: u32) {
        self.ended.add(id);
    }

    pub(super) fn holds(&self, id: u32) -> bool {
        self.reset.ids.contains(&id)
    }

    pub(super) fn ended(&self, id: u32) -> bool {
        self.ended.ids.contains(&id)
    }
}

/// The last numbers that were added.
#[derive(Debug, Default)]
struct Last<const KEPT: usize> {
    ids: Vec<u32>,
    next: usize,
}

impl<const KEPT: usize> Last<KEPT> {
    fn add(&mut self, id: u32) {
        if self.ids.len() < KEPT {
            self.ids.push(id);
            return;
        }
        if let Some(oldest) = self.ids.get_mut(self.next) {
            *oldest = id;
        }
        self.next = match self.next.wrapping_add(1) {
            next if next < KEPT => next,
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_fits_one_cache_line() {
        assert!(size_of::<Stream>() <= 64);
    }

    #[test]
    fn remembers_the_last_streams_that_were_reset() {
        let mut forgotten = Forgotten::default();
        (0..200).for_each(|id| forgotten.add(id));
        assert!(forgotten.holds(199) && forgotten.holds(72) && !forgotten.holds(71));
    }
}
