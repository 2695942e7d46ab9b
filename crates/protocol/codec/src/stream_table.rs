//! The open streams of a connection, each in a slot.

/// An identifier of a stream.
pub trait StreamId: Copy + Eq + Ord {
    /// A number that identifies no stream.
    const NONE: Self;
}

/// HTTP/2, where the stream 0 is the connection (RFC 9113 section 5.1.1).
impl StreamId for u32 {
    const NONE: Self = 0;
}

/// HTTP/3, where identifiers have 62 bits (RFC 9000 section 2.1).
impl StreamId for u64 {
    const NONE: Self = Self::MAX;
}

/// Identifies a stream while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey<Id> {
    slot: u16,
    id: Id,
}

impl<Id: StreamId> StreamKey<Id> {
    #[cfg(test)]
    pub(crate) fn new(slot: u16, id: Id) -> Self {
        Self { slot, id }
    }

    /// A small number that is unique among the open streams of the connection.
    #[inline]
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }

    /// The stream identifier.
    #[inline]
    pub fn id(self) -> Id {
        self.id
    }
}

/// The open streams, each in a slot.
#[derive(Debug)]
pub struct StreamTable<Id, S> {
    /// The identifier of each slot's stream, [`StreamId::NONE`] if the slot is free. It is a separate vector
    /// because every frame searches it.
    ids: Vec<Id>,
    entries: Vec<S>,
    free: Vec<u16>,
}

/// How many slots are allocated at a time.
const GROWTH: usize = 4;

impl<Id, S> Default for StreamTable<Id, S> {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<Id: StreamId, S> StreamTable<Id, S> {
    /// How many streams are open.
    #[inline]
    pub fn open_count(&self) -> usize {
        self.ids.len().saturating_sub(self.free.len())
    }

    /// Adds a stream, which must not be open already.
    pub fn insert(&mut self, id: Id, stream: S) -> StreamKey<Id> {
        if let Some(slot) = self.free.pop() {
            let at = usize::from(slot);
            if let (Some(known), Some(entry)) = (self.ids.get_mut(at), self.entries.get_mut(at)) {
                (*known, *entry) = (id, stream);
            }
            return StreamKey { slot, id };
        }
        let slot = u16::try_from(self.ids.len()).unwrap_or(u16::MAX);
        // Doubling would waste memory: there may be many connections, and few have many streams.
        if self.ids.len() == self.ids.capacity() {
            self.ids.reserve_exact(GROWTH);
            self.entries.reserve_exact(GROWTH);
        }
        self.ids.push(id);
        self.entries.push(stream);
        StreamKey { slot, id }
    }

    /// The open stream with this identifier.
    #[inline]
    pub fn find(&self, id: Id) -> Option<StreamKey<Id>> {
        // A search of a few dense words is faster than a hash map for the streams that browsers have open, and no peer
        // can make it slow: the number of streams is limited.
        let slot = self.ids.iter().position(|known| *known == id)?;
        let slot = u16::try_from(slot).ok()?;
        (id != Id::NONE).then_some(StreamKey { slot, id })
    }

    /// The state of an open stream.
    #[inline]
    pub fn get(&self, key: StreamKey<Id>) -> Option<&S> {
        let slot = key.slot();
        self.entries
            .get(slot)
            // A later stream may have the slot by now: the identifier tells a stale key from a valid one.
            .filter(|_| self.ids.get(slot) == Some(&key.id))
    }

    /// The state of an open stream.
    #[inline]
    pub fn get_mut(&mut self, key: StreamKey<Id>) -> Option<&mut S> {
        let slot = key.slot();
        let is_same = self.ids.get(slot) == Some(&key.id);
        self.entries.get_mut(slot).filter(|_| is_same)
    }

    /// Frees the slot of a stream.
    pub fn remove(&mut self, key: StreamKey<Id>) {
        if let Some(known) = self.ids.get_mut(key.slot())
            && *known == key.id
        {
            *known = Id::NONE;
            self.free.push(key.slot);
        }
    }

    /// The open streams.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (StreamKey<Id>, &mut S)> {
        let keys = self.ids.iter().zip(0_u16..);
        keys.zip(&mut self.entries)
            .filter(|((id, _), _)| **id != Id::NONE)
            .map(|((id, slot), stream)| (StreamKey { slot, id: *id }, stream))
    }

    /// Frees memory if no stream is open.
    pub fn shrink(&mut self) {
        if self.open_count() == 0 {
            *self = Self::default();
        }
    }
}
