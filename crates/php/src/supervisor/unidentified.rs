//! Connections that have not sent their first message: how many there may be.
//!
//! Any local user may connect, as PHP may run under any user. So that nobody keeps a worker from connecting,
//! nothing ever waits for a place: the user (SO_PEERCRED) with the most such connections loses his oldest.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// How many connections there may be that have not said who they are.
const MOST: usize = 64;

/// Connections that have not said who they are, the oldest first.
#[derive(Debug, Default)]
pub(super) struct UnidentifiedConnections {
    known: VecDeque<UnidentifiedConnection>,
    last: u64,
}

#[derive(Debug)]
struct UnidentifiedConnection {
    id: u64,
    user: Option<u32>,
    /// Dropped, its connection is closed.
    _stays: oneshot::Sender<()>,
}

/// A connection among those that have not said who they are.
#[derive(Debug)]
pub(super) struct UnidentifiedEntry {
    pub(super) id: u64,
    /// Ready when it has to go.
    pub(super) evicted: oneshot::Receiver<()>,
}

impl UnidentifiedConnections {
    /// Takes in a connection of a user, if that is known. Another may have to go for it.
    pub(super) fn enter(&mut self, user: Option<u32>) -> UnidentifiedEntry {
        if self.known.len() >= MOST {
            self.evict();
        }
        self.last += 1;
        let (stays, evicted) = oneshot::channel();
        self.known.push_back(UnidentifiedConnection {
            id: self.last,
            user,
            _stays: stays,
        });
        UnidentifiedEntry {
            id: self.last,
            evicted,
        }
    }

    /// Lets go of a connection that has said who it is, or is gone.
    pub(super) fn leave(&mut self, id: u64) {
        if let Ok(place) = self.known.binary_search_by_key(&id, |known| known.id) {
            self.known.remove(place);
        }
    }

    /// Closes the oldest connection of the user who has the most.
    fn evict(&mut self) {
        let of = |user| self.known.iter().filter(|one| one.user == user).count();
        // Of those that are alike the last is taken.
        let oldest_first = self.known.iter().enumerate().rev();
        let place = oldest_first.max_by_key(|(_, one)| of(one.user));
        if let Some((place, _)) = place {
            self.known.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(entry: &mut UnidentifiedEntry) -> bool {
        entry.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_user_with_the_most_connections_loses_his_oldest_and_nobody_else_any() {
        let mut unidentified = UnidentifiedConnections::default();
        let mut own = unidentified.enter(Some(33));
        let mut others: Vec<_> = (0..MOST - 1)
            .map(|_| unidentified.enter(Some(1000)))
            .collect();
        assert!(!others.iter_mut().any(is_evicted));
        let mut later = unidentified.enter(Some(33));
        assert!(is_evicted(&mut others[0]) && !is_evicted(&mut others[1]));
        for _ in 0..10 * MOST {
            others.push(unidentified.enter(Some(1000)));
        }
        assert!(!is_evicted(&mut own) && !is_evicted(&mut later));
        assert_eq!(unidentified.known.len(), MOST);
        let staying = others
            .iter_mut()
            .filter_map(|entry| (!is_evicted(entry)).then_some(entry.id));
        assert_eq!(staying.count(), MOST - 2);
    }

    #[test]
    fn who_leaves_makes_room() {
        let mut unidentified = UnidentifiedConnections::default();
        let mut entries: Vec<_> = (0..MOST).map(|_| unidentified.enter(None)).collect();
        unidentified.leave(entries[5].id);
        unidentified.leave(entries[5].id);
        unidentified.enter(None);
        assert!(!is_evicted(&mut entries[0]));
        unidentified.enter(None);
        assert!(is_evicted(&mut entries[0]));
    }
}
