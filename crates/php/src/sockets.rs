//! The open WebSockets of an application, by their names, and their rooms.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::wire::Form;

/// What an application wants to be done with a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketOrder {
    /// A message is to be sent.
    Send(Form, Bytes),
    /// It is to be closed, with a code of RFC 6455 section 7.4 and a reason.
    Close(u16, Bytes),
}

/// What an application wants to be done with one WebSocket.
#[derive(Debug)]
pub struct SocketOrders(pub(crate) mpsc::Receiver<SocketOrder>);

impl SocketOrders {
    /// The next; `None` once there will be no more: the application ends, or the client reads too
    /// slowly.
    pub async fn next(&mut self) -> Option<SocketOrder> {
        self.0.recv().await
    }
}

/// The open WebSockets of one application and their rooms, shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    known: Mutex<Known>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    sockets: HashMap<Bytes, Entry>,
    rooms: HashMap<Bytes, HashSet<Bytes>>,
}

#[derive(Debug)]
struct Entry {
    orders: mpsc::Sender<SocketOrder>,
    data: Bytes,
    rooms: HashSet<Bytes>,
}

/// Orders that may wait for one socket. One whose client reads more slowly is closed.
const MAX_WAITING: usize = 256;

impl Sockets {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self) -> (Bytes, mpsc::Receiver<SocketOrder>) {
        let id = Bytes::from(format!("s{}", self.next.fetch_add(1, Relaxed) + 1));
        let (orders, receiver) = mpsc::channel(MAX_WAITING);
        let entry = Entry {
            orders,
            data: Bytes::new(),
            rooms: HashSet::new(),
        };
        self.known().sockets.insert(id.clone(), entry);
        (id, receiver)
    }

    pub(crate) fn data(&self, id: &[u8]) -> Bytes {
        let known = self.known();
        known
            .sockets
            .get(id)
            .map_or_else(Bytes::new, |entry| entry.data.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.known().sockets.len()
    }

    pub(crate) fn keep(&self, id: &[u8], data: Bytes) {
        if let Some(entry) = self.known().sockets.get_mut(id) {
            entry.data = data;
        }
    }

    pub(crate) fn join(&self, room: Bytes, id: Bytes) {
        let mut known = self.known();
        if let Some(entry) = known.sockets.get_mut(&id) {
            entry.rooms.insert(room.clone());
            known.rooms.entry(room).or_default().insert(id);
        }
    }

    pub(crate) fn leave(&self, room: &[u8], id: &[u8]) {
        let mut known = self.known();
        if let Some(entry) = known.sockets.get_mut(id) {
            entry.rooms.remove(room);
        }
        known.forget_member(room, id);
    }

    /// Has something done with one socket, if it is there.
    pub(crate) fn order(&self, id: &[u8], order: SocketOrder) {
        let mut known = self.known();
        let is_lost = known
            .sockets
            .get(id)
            .is_some_and(|entry| entry.orders.try_send(order).is_err());
        if is_lost {
            known.remove(id);
        }
    }

    /// Sends a message to all in a room.
    pub(crate) fn publish(&self, room: &[u8], form: Form, message: &Bytes) {
        if form == Form::EventStream {
            return;
        }
        let mut known = self.known();
        let Some(members) = known.rooms.get(room) else {
            return;
        };
        let lost: Vec<Bytes> = members
            .iter()
            .filter(|id| {
                let order = SocketOrder::Send(form, message.clone());
                known
                    .sockets
                    .get(*id)
                    .is_none_or(|entry| entry.orders.try_send(order).is_err())
            })
            .cloned()
            .collect();
        for id in lost {
            known.remove(&id);
        }
    }

    pub(crate) fn remove(&self, id: &[u8]) {
        self.known().remove(id);
    }

    /// Ends all.
    pub(crate) fn close(&self) {
        *self.known() = Known::default();
    }
}

impl Known {
    fn remove(&mut self, id: &[u8]) {
        if let Some(entry) = self.sockets.remove(id) {
            for room in &entry.rooms {
                self.forget_member(room, id);
            }
        }
    }

    fn forget_member(&mut self, room: &[u8], id: &[u8]) {
        if let Some(members) = self.rooms.get_mut(room) {
            members.remove(id);
            if members.is_empty() {
                self.rooms.remove(room);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_reach_their_members_and_end_with_the_last() {
        let sockets = Sockets::default();
        let ((one, mut first), (two, mut second)) = (sockets.add(), sockets.add());
        assert_ne!(one, two);
        let room = Bytes::from_static(b"lobby");
        sockets.join(room.clone(), one.clone());
        sockets.join(room.clone(), two.clone());
        sockets.join(room.clone(), "nobody".into());
        sockets.leave(&room, &two);
        sockets.publish(&room, Form::Text, &"hi".into());
        sockets.publish(&room, Form::EventStream, &"data: x\n\n".into());
        assert_eq!(
            first.try_recv(),
            Ok(SocketOrder::Send(Form::Text, "hi".into()))
        );
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        sockets.remove(&one);
        assert!(sockets.known().rooms.is_empty());
        assert_eq!(sockets.len(), 1);
    }

    #[test]
    fn a_socket_whose_client_reads_too_slowly_is_lost() {
        let sockets = Sockets::default();
        let (id, mut orders) = sockets.add();
        for _ in 0..=MAX_WAITING {
            sockets.order(&id, SocketOrder::Send(Form::Text, Bytes::new()));
        }
        assert_eq!(sockets.len(), 0);
        while orders.try_recv().is_ok() {}
        assert!(orders.is_closed());
    }

    #[test]
    fn what_is_kept_comes_with_later_events() {
        let sockets = Sockets::default();
        let (id, _orders) = sockets.add();
        assert_eq!(sockets.data(&id), "");
        sockets.keep(&id, "mine".into());
        assert_eq!(sockets.data(&id), "mine");
        sockets.close();
        assert_eq!(sockets.data(&id), "");
    }
}
