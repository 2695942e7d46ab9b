//! The order in which streams are sent.

use std::collections::VecDeque;

use crate::stream_id::StreamId;

/// Priorities without streams whose memory is kept.
// HTTP has eight urgencies, of which a page uses two or three. Levels come and go with each stream, so a few are kept.
const EMPTY_LEVELS: usize = 4;

/// The streams that have something to send: by priority, and those of one priority in turns.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// The highest priority first.
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    priority: i32,
    streams: VecDeque<StreamId>,
}

impl SendQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.streams.is_empty())
    }

    /// The stream whose turn it is.
    #[inline]
    pub(crate) fn front(&self) -> Option<StreamId> {
        self.levels
            .iter()
            .find_map(|level| level.streams.front().copied())
    }

    /// Ends the turn of the first stream.
    #[inline]
    pub(crate) fn pop_front(&mut self) {
        if let Some(level) = self
            .levels
            .iter_mut()
            .find(|level| !level.streams.is_empty())
        {
            level.streams.pop_front();
        }
    }

    /// Adds a stream behind those of its priority.
    #[inline]
    pub(crate) fn push_back(&mut self, priority: i32, stream: StreamId) {
        self.level(priority).push_back(stream);
    }

    /// Adds a stream before those of its priority.
    pub(crate) fn push_front(&mut self, priority: i32, stream: StreamId) {
        self.level(priority).push_front(stream);
    }

    /// Removes a stream of this priority.
    pub(crate) fn remove(&mut self, priority: i32, stream: StreamId) {
        if let Some(level) = self
            .levels
            .iter_mut()
            .find(|level| level.priority == priority)
        {
            level.streams.retain(|queued| *queued != stream);
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the index was found or inserted just before"
    )]
    fn level(&mut self, priority: i32) -> &mut VecDeque<StreamId> {
        let found = self
            .levels
            .binary_search_by(|level| priority.cmp(&level.priority));
        let index = match found {
            Ok(index) => index,
            Err(_) => {
                if self.levels.len() > EMPTY_LEVELS {
                    self.levels.retain(|level| !level.streams.is_empty());
                }
                let index = self
                    .levels
                    .partition_point(|level| level.priority > priority);
                let streams = VecDeque::new();
                self.levels.insert(index, Level { priority, streams });
                index
            }
        };
        &mut self.levels[index].streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut SendQueue) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(stream) = queue.front() {
            order.push(stream.into());
            queue.pop_front();
        }
        order
    }

    #[test]
    fn higher_priorities_come_first_and_equal_ones_in_turns() {
        let mut queue = SendQueue::default();
        for (priority, stream) in [(0, 1), (-5, 2), (7, 3), (0, 4), (7, 5)] {
            queue.push_back(priority, stream.into());
        }
        queue.push_front(0, 6.into());
        queue.remove(7, 5.into());
        queue.remove(9, 1.into());
        assert!(!queue.is_empty());
        assert_eq!(drain(&mut queue), [3, 6, 1, 4, 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn priorities_without_streams_are_forgotten() {
        let mut queue = SendQueue::default();
        for priority in 0..1_000 {
            queue.push_back(priority, 1.into());
            queue.pop_front();
        }
        assert!(queue.levels.len() <= EMPTY_LEVELS + 1);
    }
}
