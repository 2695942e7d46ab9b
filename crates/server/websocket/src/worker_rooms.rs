//! The rooms of one worker, with its sockets.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use apus_net::SlowReceivers;

use crate::codec::PreparedMessage;

use super::state::{RoomMembership, RoomTable, SendError, SharedSocket};

/// The rooms with the sockets of one worker.
pub(super) struct WorkerRooms {
    worker: u64,
    slow: SlowReceivers,
    rooms: RefCell<HashMap<Rc<str>, Vec<Member>>>,
}

struct Member {
    id: u64,
    socket: Weak<SharedSocket>,
}

impl WorkerRooms {
    pub(super) fn new(worker: u64, slow: SlowReceivers) -> Self {
        Self {
            worker,
            slow,
            rooms: RefCell::default(),
        }
    }

    /// The number of the worker.
    pub(super) fn worker(&self) -> u64 {
        self.worker
    }

    pub(super) fn add(self: &Rc<Self>, room: &str, socket: &Rc<SharedSocket>) {
        let mut rooms = self.rooms.borrow_mut();
        let name = match rooms.get_key_value(room) {
            Some((_, members)) if members.iter().any(|member| member.id == socket.id) => return,
            Some((name, _)) => Rc::clone(name),
            None => room.into(),
        };
        rooms.entry(Rc::clone(&name)).or_default().push(Member {
            id: socket.id,
            socket: Rc::downgrade(socket),
        });
        let table: Weak<Self> = Rc::downgrade(self);
        let membership = RoomMembership { table, room: name };
        socket.rooms.borrow_mut().push(membership);
    }

    /// The number of sockets in a room.
    pub(super) fn members(&self, room: &str) -> usize {
        self.rooms.borrow().get(room).map_or(0, Vec::len)
    }

    pub(super) fn deliver(&self, room: &str, message: &PreparedMessage, except: Option<u64>) {
        let rooms = self.rooms.borrow();
        let Some(members) = rooms.get(room) else {
            return;
        };
        for member in members.iter().filter(|member| Some(member.id) != except) {
            let Some(socket) = member.socket.upgrade() else {
                continue;
            };
            let sent = socket.send_if_room(|connection| connection.send_prepared(message));
            if sent == Err(SendError::Full) && self.slow == SlowReceivers::Close {
                socket.close_slow();
            }
        }
    }
}

impl RoomTable for WorkerRooms {
    /// Removes a socket from a room, and the room with its last socket.
    fn remove(&self, room: &str, id: u64) -> bool {
        let mut rooms = self.rooms.borrow_mut();
        let Some(members) = rooms.get_mut(room) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| member.id != id);
        let was_member = members.len() < before;
        if members.is_empty() {
            rooms.remove(room);
        }
        was_member
    }
}
