//! The limit on connections that have not sent their HELLO.
//!
//! All local users can connect, as PHP may run as any user. So that no user can keep workers from connecting, a
//! new connection never waits: at the limit, the user (SO_PEERCRED) with the most connections loses the oldest.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// The maximum number of unidentified connections.
const MAX_CONNECTIONS: usize = 64;

/// The connections without a HELLO, the oldest first.
#[derive(Debug, Default)]
pub(super) struct UnidentifiedConnections {
    connections: VecDeque<UnidentifiedConnection>,
    last_id: u64,
}

#[derive(Debug)]
struct UnidentifiedConnection {
    id: u64,
    user: Option<u32>,
    /// Closes the connection when it is dropped.
    _eviction: oneshot::Sender<()>,
}

/// The entry of an unidentified connection.
#[derive(Debug)]
pub(super) struct UnidentifiedEntry {
    pub(super) id: u64,
    /// Ready when the connection is to be closed.
    pub(super) evicted: oneshot::Receiver<()>,
}

impl UnidentifiedConnections {
    /// Adds a connection, of a user if that is known. At the limit, another one is closed.
    pub(super) fn enter(&mut self, user: Option<u32>) -> UnidentifiedEntry {
        if self.connections.len() >= MAX_CONNECTIONS {
            self.evict();
        }
        self.last_id += 1;
        let (eviction, evicted) = oneshot::channel();
        self.connections.push_back(UnidentifiedConnection {
            id: self.last_id,
            user,
            _eviction: eviction,
        });
        UnidentifiedEntry {
            id: self.last_id,
            evicted,
        }
    }

    /// Removes a connection that has sent its HELLO, or is closed.
    pub(super) fn leave(&mut self, id: u64) {
        if let Ok(index) = self.connections.binary_search_by_key(&id, |one| one.id) {
            self.connections.remove(index);
        }
    }

    /// Closes the oldest connection of the user with the most connections.
    fn evict(&mut self) {
        let of = |user| {
            self.connections
                .iter()
                .filter(|one| one.user == user)
                .count()
        };
        // `max_by_key` returns the last of equal elements.
        let newest_first = self.connections.iter().enumerate().rev();
        if let Some((index, _)) = newest_first.max_by_key(|(_, one)| of(one.user)) {
            self.connections.remove(index);
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
    fn the_user_with_the_most_connections_loses_the_oldest_and_others_lose_none() {
        let mut unidentified = UnidentifiedConnections::default();
        let mut own = unidentified.enter(Some(33));
        let mut others: Vec<_> = (0..MAX_CONNECTIONS - 1)
            .map(|_| unidentified.enter(Some(1000)))
            .collect();
        assert!(!others.iter_mut().any(is_evicted));
        let mut later = unidentified.enter(Some(33));
        assert!(is_evicted(&mut others[0]) && !is_evicted(&mut others[1]));
        for _ in 0..10 * MAX_CONNECTIONS {
            others.push(unidentified.enter(Some(1000)));
        }
        assert!(!is_evicted(&mut own) && !is_evicted(&mut later));
        assert_eq!(unidentified.connections.len(), MAX_CONNECTIONS);
        let staying = others
            .iter_mut()
            .filter_map(|entry| (!is_evicted(entry)).then_some(entry.id));
        assert_eq!(staying.count(), MAX_CONNECTIONS - 2);
    }

    #[test]
    fn a_removed_connection_makes_room() {
        let mut unidentified = UnidentifiedConnections::default();
        let mut entries: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| unidentified.enter(None))
            .collect();
        unidentified.leave(entries[5].id);
        unidentified.leave(entries[5].id);
        unidentified.enter(None);
        assert!(!is_evicted(&mut entries[0]));
        unidentified.enter(None);
        assert!(is_evicted(&mut entries[0]));
    }
}
