//! The streams of one kind by their indices.

use std::collections::VecDeque;

/// Slots that may be closed before old streams are moved out of the way.
const MAX_CLOSED: usize = 64;

/// The streams of one initiator and direction, by their indices.
///
/// Those that were opened last are in a ring, so that finding one takes no search. A stream that stays open while many
/// after it are closed moves to a small list, so that the memory is bounded by the number of open streams.
#[derive(Debug)]
pub(crate) struct StreamsOfKind<T> {
    /// The index of the first slot.
    base: u64,
    slots: VecDeque<TableSlot<T>>,
    /// Streams with indices below `base`, in ascending order.
    old: Vec<(u64, TableSlot<T>)>,
    open: usize,
}

#[derive(Debug)]
enum TableSlot<T> {
    /// Opened, without state: the peer has opened a later one.
    Unused,
    Open(Box<T>),
    Closed,
}

impl<T> Default for StreamsOfKind<T> {
    fn default() -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            old: Vec::new(),
            open: 0,
        }
    }
}

impl<T> StreamsOfKind<T> {
    /// How many streams were opened: the next index.
    #[inline]
    pub(crate) fn opened(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Opens the next stream.
    pub(crate) fn open_next(&mut self) {
        // A stream that stays open, as a WebSocket does, would otherwise keep a slot for every request after it.
        while self.slots.len() > MAX_CLOSED + 4 * self.open {
            let index = self.base;
            match self.slots.pop_front() {
                Some(TableSlot::Closed) | None => {}
                Some(slot) => self.old.push((index, slot)),
            }
            self.base += 1;
        }
        self.slots.push_back(TableSlot::Unused);
        self.open += 1;
    }

    #[inline]
    fn slot(&mut self, index: u64) -> Option<&mut TableSlot<T>> {
        match index.checked_sub(self.base) {
            Some(place) => self.slots.get_mut(usize::try_from(place).ok()?),
            None => {
                let place = self.old.binary_search_by_key(&index, |(index, _)| *index);
                self.old.get_mut(place.ok()?).map(|(_, slot)| slot)
            }
        }
    }

    /// An open stream, with the state that `new` makes if it has none.
    #[inline]
    pub(crate) fn get_or_create(&mut self, index: u64, new: impl FnOnce() -> T) -> Option<&mut T> {
        let slot = self.slot(index)?;
        if let TableSlot::Unused = slot {
            *slot = TableSlot::Open(Box::new(new()));
        }
        match slot {
            TableSlot::Open(stream) => Some(stream),
            TableSlot::Unused | TableSlot::Closed => None,
        }
    }

    /// Forgets a stream.
    pub(crate) fn close(&mut self, index: u64) {
        let Some(slot) = self.slot(index) else {
            return;
        };
        if let TableSlot::Closed = std::mem::replace(slot, TableSlot::Closed) {
            return;
        }
        self.open -= 1;
        if index < self.base {
            self.old.retain(|(old, _)| *old != index);
        }
        while let Some(TableSlot::Closed) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        if self.open == 0 {
            self.slots.shrink_to(4);
            self.old.shrink_to(0);
        }
    }

    /// The states of all open streams that have one, with their indices.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let old = self.old.iter_mut().map(|(index, slot)| (*index, slot));
        let recent = (self.base..).zip(&mut self.slots);
        old.chain(recent).filter_map(|(index, slot)| match slot {
            TableSlot::Open(stream) => Some((index, &mut **stream)),
            TableSlot::Unused | TableSlot::Closed => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_until_they_are_closed() {
        let mut table = StreamsOfKind::default();
        for _ in 0..10 {
            table.open_next();
        }
        assert_eq!(table.opened(), 10);
        assert_eq!(table.get_or_create(3, || 30), Some(&mut 30));
        assert_eq!(table.get_or_create(3, || 31), Some(&mut 30));
        table.close(3);
        table.close(3);
        table.close(0);
        assert_eq!(table.get_or_create(3, || 31), None);
        assert_eq!(table.get_or_create(0, || 31), None);
        assert_eq!(table.get_or_create(10, || 31), None);
        assert_eq!(table.get_or_create(1, || 11), Some(&mut 11));
        assert_eq!(table.iter_mut().collect::<Vec<_>>(), [(1, &mut 11)]);
        assert_eq!(table.opened(), 10);
    }

    #[test]
    fn a_stream_that_stays_open_takes_no_memory_for_those_after_it() {
        let mut table = StreamsOfKind::default();
        for index in 0..100_000u64 {
            table.open_next();
            if index % 20_000 == 0 {
                table.get_or_create(index, || index);
            } else {
                table.close(index);
            }
        }
        assert!(table.slots.len() <= MAX_CLOSED + 4 * 5 + 1);
        for index in (0..100_000).step_by(20_000) {
            assert_eq!(table.get_or_create(index, || 1), Some(&mut index.clone()));
            table.close(index);
            assert_eq!(table.get_or_create(index, || 1), None);
        }
        assert!(table.old.is_empty());
        assert_eq!(table.opened(), 100_000);
    }
}
