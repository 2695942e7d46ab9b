//! The memory of the WebSockets of a worker, and which of them is closed when there is too little.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use apus_net::TunnelLimits;

/// The bytes of a socket that are not counted, so that a socket with a short message costs nothing here.
const FREE: usize = 4096;

thread_local! {
    static OF_WORKER: RefCell<SocketMemory> = RefCell::default();
}

/// The sockets of a thread that take much memory.
#[derive(Default)]
struct SocketMemory {
    /// The sockets that take more than [`FREE`].
    sockets: HashMap<u64, CountedSocket>,
    /// The sum of their bytes.
    total: usize,
    /// The bytes of kept contexts of compression.
    contexts: usize,
}

struct CountedSocket {
    bytes: usize,
    socket: Weak<dyn MemoryOwner>,
}

/// A socket whose memory is counted.
pub(super) trait MemoryOwner {
    /// Unique in the process.
    fn id(&self) -> u64;

    /// The bytes that are counted.
    fn counted(&self) -> &Cell<usize>;

    /// Closes the connection, and releases its memory.
    fn evict(&self);
}

/// Notes how much memory a socket takes now. While all sockets of the worker take more than their budget, the one
/// that takes most is closed: so nobody who holds much can keep others from sending their messages. A socket that is
/// alone is bounded by its own settings.
pub(super) fn note<S: MemoryOwner + 'static>(socket: &Rc<S>, bytes: usize) {
    let counted = socket.counted().get();
    if bytes == counted || (bytes <= FREE && counted == 0) {
        return;
    }
    let evicted = OF_WORKER.with_borrow_mut(|memory| {
        memory.set(socket, bytes);
        memory.exceeding()
    });
    for socket in evicted {
        socket.evict();
    }
}

/// Forgets a socket that ends.
pub(super) fn forget(id: u64, counted: usize) {
    if counted > 0 {
        // The table is gone if the thread is ending.
        let _ = OF_WORKER.try_with(|memory| memory.borrow_mut().remove(id));
    }
}

impl SocketMemory {
    fn set<S: MemoryOwner + 'static>(&mut self, socket: &Rc<S>, bytes: usize) {
        let id = socket.id();
        self.remove(id);
        let counted = if bytes > FREE { bytes } else { 0 };
        socket.counted().set(counted);
        if counted > 0 {
            self.total = self.total.saturating_add(counted);
            let socket: Weak<S> = Rc::downgrade(socket);
            self.sockets.insert(id, CountedSocket { bytes, socket });
        }
    }

    fn remove(&mut self, id: u64) -> Option<CountedSocket> {
        let removed = self.sockets.remove(&id)?;
        self.total = self.total.saturating_sub(removed.bytes);
        Some(removed)
    }

    /// Removes the sockets that have to be closed, so that the others are within the budget.
    fn exceeding(&mut self) -> Vec<Rc<dyn MemoryOwner>> {
        let limit = TunnelLimits::of_worker().websocket_memory;
        let mut evicted = Vec::new();
        while self.total.saturating_add(self.contexts) > limit
            && self.sockets.len() > 1
            && let Some(id) = self.largest()
            && let Some(counted) = self.remove(id)
        {
            evicted.extend(counted.socket.upgrade());
        }
        evicted
    }

    fn largest(&self) -> Option<u64> {
        let sockets = self.sockets.iter();
        sockets
            .max_by_key(|(_, counted)| counted.bytes)
            .map(|(id, _)| *id)
    }
}

/// Memory for the contexts of compression of one socket, until this is dropped.
#[derive(Debug)]
pub(super) struct ContextMemory(usize);

impl ContextMemory {
    /// Takes memory for contexts, of which there is at most half of the budget.
    pub(super) fn take(bytes: usize) -> Option<Self> {
        OF_WORKER.with_borrow_mut(|memory| {
            let limit = TunnelLimits::of_worker().websocket_memory / 2;
            let contexts = memory.contexts.saturating_add(bytes);
            (contexts <= limit).then(|| {
                memory.contexts = contexts;
                Self(bytes)
            })
        })
    }
}

impl Drop for ContextMemory {
    fn drop(&mut self) {
        // The table is gone if the thread is ending.
        let _ = OF_WORKER.try_with(|memory| {
            let mut memory = memory.borrow_mut();
            memory.contexts = memory.contexts.saturating_sub(self.0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{DisconnectReason, SharedSocket};
    use super::*;
    use crate::WebSocketSettings;
    use crate::codec::{CodecSettings, WebSocketConnection};

    fn socket() -> Rc<SharedSocket> {
        SharedSocket::new(
            WebSocketConnection::server(&CodecSettings::default()),
            WebSocketSettings::default(),
            None,
        )
    }

    fn is_evicted(socket: &SharedSocket) -> bool {
        socket.state.borrow().disconnect_reason == Some(DisconnectReason::Evicted)
    }

    fn total() -> usize {
        OF_WORKER.with_borrow(|memory| memory.total)
    }

    /// The budget of a thread without a worker.
    const LIMIT: usize = 64 << 20;

    #[test]
    fn the_socket_that_takes_most_is_closed_for_the_others() {
        let sockets: Vec<_> = (0..5).map(|_| socket()).collect();
        for (socket, bytes) in sockets.iter().zip([10, 30, 20]) {
            note(socket, bytes << 20);
        }
        // What is exactly the limit is allowed.
        note(&sockets[3], LIMIT - total());
        assert!(!sockets.iter().any(|socket| is_evicted(socket)));
        note(&sockets[4], FREE);
        assert_eq!(total(), LIMIT);
        note(&sockets[4], FREE + 1);
        let evicted: Vec<_> = sockets.iter().map(|socket| is_evicted(socket)).collect();
        assert_eq!(evicted, [false, true, false, false, false]);
        assert_eq!(total(), LIMIT - (30 << 20) + FREE + 1);
        drop(sockets);
        assert_eq!(total(), 0);
    }

    #[test]
    fn a_socket_that_is_alone_is_bounded_by_its_settings_only() {
        let (alone, other) = (socket(), socket());
        note(&alone, 2 * LIMIT);
        assert!(!is_evicted(&alone));
        note(&other, FREE);
        assert!(!is_evicted(&alone));
        note(&other, FREE + 1);
        assert!(is_evicted(&alone) && !is_evicted(&other));
    }

    #[test]
    fn contexts_take_at_most_half_of_the_budget() {
        let contexts: Vec<_> = (0..8)
            .map(|_| ContextMemory::take(LIMIT / 16).unwrap())
            .collect();
        assert!(ContextMemory::take(1).is_none());
        let (socket, other) = (socket(), socket());
        note(&other, FREE + 1);
        note(&socket, LIMIT / 2 - (FREE + 1));
        assert!(!is_evicted(&socket));
        note(&socket, LIMIT / 2);
        assert!(is_evicted(&socket));
        drop(contexts);
        assert!(ContextMemory::take(LIMIT / 2).is_some());
    }
}
