//! `History`: the last lines of each room.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Line, What};

/// The number of lines that are kept of a room.
const LINES: usize = 50;
/// The number of rooms that are kept. Above it, the room with the oldest last line is forgotten.
const ROOMS: usize = 1000;

/// The last lines of each room. Clones share them.
#[derive(Clone, Default)]
pub(super) struct History(Arc<Mutex<Rooms>>);

#[derive(Default)]
struct Rooms {
    rooms: HashMap<String, Room>,
    /// The number of lines in all rooms.
    number: u64,
}

#[derive(Default)]
struct Room {
    lines: VecDeque<Line>,
    /// The number of its last line.
    last: u64,
}

impl History {
    /// The last lines of a room.
    pub(super) fn of(&self, room: &str) -> Vec<Line> {
        let rooms = &self.rooms().rooms;
        rooms
            .get(room)
            .map_or_else(Vec::new, |room| room.lines.iter().cloned().collect())
    }

    /// Adds a line.
    pub(super) fn add(&self, room: &str, name: &str, what: What) -> Line {
        let mut all = self.rooms();
        all.number += 1;
        let line = Line {
            number: all.number,
            name: name.to_owned(),
            what,
        };
        if !all.rooms.contains_key(room) && all.rooms.len() >= ROOMS {
            let quietest = all.rooms.iter().min_by_key(|(_, room)| room.last);
            if let Some(name) = quietest.map(|(name, _)| name.clone()) {
                all.rooms.remove(&name);
            }
        }
        let room = all.rooms.entry(room.to_owned()).or_default();
        room.last = line.number;
        room.lines.push_back(line.clone());
        if room.lines.len() > LINES {
            room.lines.pop_front();
        }
        line
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_room_the_last_lines_are_kept_and_of_rooms_those_that_were_busy_last() {
        let history = History::default();
        for n in 0..LINES + 5 {
            history.add("a", "Ada", What::Said(n.to_string()));
        }
        let lines = history.of("a");
        assert_eq!(lines.len(), LINES);
        assert!(matches!(&lines[0].what, What::Said(text) if text == "5"));
        for n in 1..ROOMS {
            history.add(&n.to_string(), "Ada", What::Joined);
        }
        history.add("a", "Ada", What::Left);
        history.add("one more", "Ada", What::Joined);
        assert!(history.of("1").is_empty());
        assert_eq!(history.of("a").len(), LINES);
        assert_eq!(history.of("one more").len(), 1);
    }
}
