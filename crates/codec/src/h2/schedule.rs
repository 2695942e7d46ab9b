//! Whose turn it is to send (RFC 9218 section 10).

use std::collections::{BTreeSet, VecDeque};

use super::StreamKey;
use super::priority::{Priority, Sharing};

/// The streams that have content at hand and room in their windows.
///
/// The most urgent go first. Among those that are as urgent, the ones that interleave take turns
/// of a frame each; the ones that do not are sent one after the other, and take a turn together.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    levels: [Level; 8],
    /// A bit for each level that is not empty.
    occupied: u8,
}

#[derive(Debug, Default)]
struct Level {
    interleaved: VecDeque<StreamKey>,
    /// In the order of stream identifiers, which is the order of requests.
    sequential: BTreeSet<(u32, StreamKey)>,
    /// Whether the next turn is of the sequential ones.
    sequential_next: bool,
}

impl Schedule {
    /// Enters a stream, which must not be in.
    pub(super) fn enter(&mut self, stream: StreamKey, priority: Priority) {
        let Some(level) = self.levels.get_mut(usize::from(priority.urgency)) else {
            return;
        };
        match priority.sharing {
            Sharing::Interleaved => level.interleaved.push_back(stream),
            Sharing::Sequential => {
                level.sequential.insert((stream.id(), stream));
            }
        }
        self.occupied |= bit(priority.urgency);
    }

    /// Takes a stream out that was entered with this priority.
    pub(super) fn leave(&mut self, stream: StreamKey, priority: Priority) {
        let Some(level) = self.levels.get_mut(usize::from(priority.urgency)) else {
            return;
        };
        match priority.sharing {
            Sharing::Interleaved => level.interleaved.retain(|other| *other != stream),
            Sharing::Sequential => {
                level.sequential.remove(&(stream.id(), stream));
            }
        }
        if level.is_empty() {
            self.occupied &= !bit(priority.urgency);
        }
    }

    /// Takes out the stream whose turn it is.
    pub(super) fn next(&mut self) -> Option<StreamKey> {
        let urgency = u8::try_from(self.occupied.trailing_zeros()).unwrap_or(u8::MAX);
        let level = self.levels.get_mut(usize::from(urgency))?;
        let sequential =
            !level.sequential.is_empty() && (level.sequential_next || level.interleaved.is_empty());
        level.sequential_next = !sequential;
        let stream = match sequential {
            true => level.sequential.pop_first().map(|(_, stream)| stream),
            false => level.interleaved.pop_front(),
        };
        if level.is_empty() {
            self.occupied &= !bit(urgency);
        }
        stream
    }

    /// Whether no stream is in.
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Gives back the room of queues that are empty.
    pub(super) fn shrink(&mut self) {
        for level in &mut self.levels {
            if level.interleaved.is_empty() {
                level.interleaved = VecDeque::new();
            }
        }
    }
}

impl Level {
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

    fn key(id: u32) -> StreamKey {
        StreamKey::new(u16::try_from(id).unwrap(), id)
    }

    fn order(streams: &[(u32, &str)], turns: usize) -> Vec<u32> {
        let mut schedule = Schedule::default();
        let priority = |id| {
            let (_, value) = streams.iter().find(|(stream, _)| *stream == id).unwrap();
            Priority::parse(value.as_bytes())
        };
        for (id, _) in streams {
            schedule.enter(key(*id), priority(*id));
        }
        (0..turns)
            .map_while(|_| {
                let stream = schedule.next()?;
                schedule.enter(stream, priority(stream.id()));
                Some(stream.id())
            })
            .collect()
    }

    #[test]
    fn sends_the_most_urgent_first() {
        assert_eq!(order(&[(1, "u=7"), (3, "u=0"), (5, "u=3")], 3), [3, 3, 3]);
        let mut schedule = Schedule::default();
        for (id, value) in [(1, "u=7"), (3, "u=0"), (5, "u=3,i")] {
            schedule.enter(key(id), Priority::parse(value.as_bytes()));
        }
        let order: Vec<_> = std::iter::from_fn(|| schedule.next())
            .map(StreamKey::id)
            .collect();
        assert_eq!(order, [3, 5, 1]);
        assert_eq!(schedule.occupied, 0);
    }

    #[test]
    fn interleaves_what_is_incremental_and_finishes_what_is_not() {
        assert_eq!(
            order(&[(1, "i"), (3, "i"), (5, "i")], 6),
            [1, 3, 5, 1, 3, 5]
        );
        assert_eq!(order(&[(5, ""), (1, ""), (3, "")], 3), [1, 1, 1]);
        assert_eq!(order(&[(1, ""), (3, ""), (5, "i")], 6), [5, 1, 5, 1, 5, 1]);
    }

    #[test]
    fn forgets_who_leaves() {
        let mut schedule = Schedule::default();
        let (a, b) = (Priority::parse(b"i"), Priority::parse(b""));
        schedule.enter(key(1), a);
        schedule.enter(key(3), b);
        schedule.leave(key(1), a);
        assert_eq!(schedule.next(), Some(key(3)));
        schedule.enter(key(3), b);
        schedule.leave(key(3), b);
        assert_eq!((schedule.next(), schedule.occupied), (None, 0));
    }
}
