//! Schedules streams by priority (RFC 9218 section 10).

use std::collections::{BTreeSet, VecDeque};

use crate::priority::{Priority, SendOrder};
use crate::stream_table::{StreamId, StreamKey};

/// The streams that have data to send and an open window.
///
/// The most urgent streams are sent first. Among streams of equal urgency, interleaved streams send one
/// frame each in turn; sequential streams are sent one after the other and share one turn.
#[derive(Debug)]
pub struct Schedule<Id> {
    levels: [UrgencyLevel<Id>; 8],
    /// A bit for each level that is not empty.
    occupied: u8,
}

#[derive(Debug)]
struct UrgencyLevel<Id> {
    interleaved: VecDeque<StreamKey<Id>>,
    /// Ordered by stream identifier, which is the order of requests.
    sequential: BTreeSet<(Id, StreamKey<Id>)>,
    /// Whether the next turn belongs to the sequential streams.
    sequential_next: bool,
}

impl<Id> Default for Schedule<Id> {
    fn default() -> Self {
        Self {
            levels: Default::default(),
            occupied: 0,
        }
    }
}

impl<Id> Default for UrgencyLevel<Id> {
    fn default() -> Self {
        Self {
            interleaved: VecDeque::new(),
            sequential: BTreeSet::new(),
            sequential_next: false,
        }
    }
}

impl<Id: StreamId> Schedule<Id> {
    /// Adds a stream, which must not be scheduled already.
    pub fn insert(&mut self, stream: StreamKey<Id>, priority: Priority) {
        let Some(level) = self.levels.get_mut(usize::from(priority.urgency)) else {
            return;
        };
        match priority.order {
            SendOrder::Interleaved => level.interleaved.push_back(stream),
            SendOrder::Sequential => {
                level.sequential.insert((stream.id(), stream));
            }
        }
        self.occupied |= bit(priority.urgency);
    }

    /// Removes a stream that was added with this priority.
    pub fn remove(&mut self, stream: StreamKey<Id>, priority: Priority) {
        let Some(level) = self.levels.get_mut(usize::from(priority.urgency)) else {
            return;
        };
        match priority.order {
            SendOrder::Interleaved => level.interleaved.retain(|other| *other != stream),
            SendOrder::Sequential => {
                level.sequential.remove(&(stream.id(), stream));
            }
        }
        if level.is_empty() {
            self.occupied &= !bit(priority.urgency);
        }
    }

    /// Removes and returns the next stream.
    pub fn pop(&mut self) -> Option<StreamKey<Id>> {
        let urgency = u8::try_from(self.occupied.trailing_zeros()).unwrap_or(u8::MAX);
        let level = self.levels.get_mut(usize::from(urgency))?;
        // The two kinds take turns, so that a client that marks some responses as incremental starves neither.
        let sequential =
            !level.sequential.is_empty() && (level.sequential_next || level.interleaved.is_empty());
        level.sequential_next = !sequential;
        let stream = if sequential {
            level.sequential.pop_first().map(|(_, stream)| stream)
        } else {
            level.interleaved.pop_front()
        };
        if level.is_empty() {
            self.occupied &= !bit(urgency);
        }
        stream
    }

    /// Whether no stream is scheduled.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Frees the memory of empty queues.
    pub fn shrink(&mut self) {
        for level in &mut self.levels {
            if level.interleaved.is_empty() {
                level.interleaved = VecDeque::new();
            }
        }
    }
}

impl<Id> UrgencyLevel<Id> {
    fn is_empty(&self) -> bool {
        self.interleaved.is_empty() && self.sequential.is_empty()
    }
}

fn bit(urgency: u8) -> u8 {
    1_u8.checked_shl(urgency.into()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u32) -> StreamKey<u32> {
        StreamKey::new(u16::try_from(id).unwrap(), id)
    }

    fn order(streams: &[(u32, &str)], turns: usize) -> Vec<u32> {
        let mut schedule = Schedule::default();
        let priority = |id| {
            let (_, value) = streams.iter().find(|(stream, _)| *stream == id).unwrap();
            Priority::parse(value.as_bytes())
        };
        for (id, _) in streams {
            schedule.insert(key(*id), priority(*id));
        }
        (0..turns)
            .map_while(|_| {
                let stream = schedule.pop()?;
                schedule.insert(stream, priority(stream.id()));
                Some(stream.id())
            })
            .collect()
    }

    #[test]
    fn sends_the_most_urgent_streams_first() {
        assert_eq!(order(&[(1, "u=7"), (3, "u=0"), (5, "u=3")], 3), [3, 3, 3]);
        let mut schedule = Schedule::default();
        for (id, value) in [(1, "u=7"), (3, "u=0"), (5, "u=3,i")] {
            schedule.insert(key(id), Priority::parse(value.as_bytes()));
        }
        let order: Vec<_> = std::iter::from_fn(|| schedule.pop())
            .map(StreamKey::id)
            .collect();
        assert_eq!(order, [3, 5, 1]);
        assert_eq!(schedule.occupied, 0);
    }

    #[test]
    fn interleaves_incremental_streams_and_finishes_the_others_in_order() {
        assert_eq!(
            order(&[(1, "i"), (3, "i"), (5, "i")], 6),
            [1, 3, 5, 1, 3, 5]
        );
        assert_eq!(order(&[(5, ""), (1, ""), (3, "")], 3), [1, 1, 1]);
        assert_eq!(order(&[(1, ""), (3, ""), (5, "i")], 6), [5, 1, 5, 1, 5, 1]);
    }

    #[test]
    fn removes_streams() {
        let mut schedule = Schedule::default();
        let (a, b) = (Priority::parse(b"i"), Priority::parse(b""));
        schedule.insert(key(1), a);
        schedule.insert(key(3), b);
        schedule.remove(key(1), a);
        assert_eq!(schedule.pop(), Some(key(3)));
        schedule.insert(key(3), b);
        schedule.remove(key(3), b);
        assert_eq!((schedule.pop(), schedule.occupied), (None, 0));
    }
}
