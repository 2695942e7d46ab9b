//! The rooms of a process: a mailbox for each worker that has sockets in them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use apus_net::SlowReceivers;

use crate::codec::{Compression, Message, PreparedMessage};
use tokio::sync::mpsc;

use super::worker_rooms::WorkerRooms;

pub(super) struct ProcessRooms {
    /// Unique in the process.
    id: u64,
    slow: SlowReceivers,
    compression: Option<Compression>,
    /// The mailboxes of the workers that have sockets. A change, which is rare, replaces the slice.
    mailboxes: RwLock<Arc<[Mailbox]>>,
}

/// The queue of messages for one worker.
#[derive(Clone)]
struct Mailbox {
    worker: u64,
    sender: mpsc::Sender<RoomMessage>,
}

/// A message for the sockets of one worker.
#[derive(Clone)]
struct RoomMessage {
    room: Arc<str>,
    message: PreparedMessage,
    /// The socket that does not receive it.
    except: Option<u64>,
}

/// The number of messages in a mailbox at which publishing waits.
const MAILBOX_CAPACITY: usize = 1024;

thread_local! {
    /// The sockets of this worker in each set of rooms, by the id of the set.
    static WORKER_ROOMS: RefCell<HashMap<u64, Rc<WorkerRooms>>> = RefCell::default();
}

impl ProcessRooms {
    pub(super) fn new(slow: SlowReceivers, compression: Option<Compression>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            slow,
            compression,
            mailboxes: RwLock::new(Arc::new([])),
        }
    }

    pub(super) fn slow(&self) -> SlowReceivers {
        self.slow
    }

    /// The number of workers that have sockets.
    pub(super) fn workers(&self) -> usize {
        self.mailboxes().len()
    }

    /// Sends a message to the sockets of this process, except one.
    pub(super) async fn publish(&self, room: &str, message: &Message, except: Option<u64>) {
        let message = PreparedMessage::new(message, self.compression.as_ref());
        let local = self.local();
        if let Some(local) = &local {
            local.deliver(room, &message, except);
        }
        let this_worker = local.map(|local| local.worker());
        let mailboxes = self.mailboxes();
        let mut others = mailboxes
            .iter()
            .filter(|mailbox| Some(mailbox.worker) != this_worker)
            .peekable();
        if others.peek().is_none() {
            return;
        }
        let message = RoomMessage {
            room: room.into(),
            message,
            except,
        };
        for mailbox in others {
            if mailbox.sender.send(message.clone()).await.is_err() {
                self.remove_mailbox(mailbox.worker);
            }
        }
    }

    fn mailboxes(&self) -> Arc<[Mailbox]> {
        let mailboxes = self.mailboxes.read();
        Arc::clone(&mailboxes.unwrap_or_else(PoisonError::into_inner))
    }

    fn change_mailboxes(&self, change: impl FnOnce(&mut Vec<Mailbox>)) {
        let mailboxes = self.mailboxes.write();
        let mut mailboxes = mailboxes.unwrap_or_else(PoisonError::into_inner);
        let mut changed = mailboxes.to_vec();
        change(&mut changed);
        *mailboxes = changed.into();
    }

    fn remove_mailbox(&self, worker: u64) {
        self.change_mailboxes(|mailboxes| mailboxes.retain(|mailbox| mailbox.worker != worker));
    }

    /// The rooms of this worker, if it has sockets.
    pub(super) fn local(&self) -> Option<Rc<WorkerRooms>> {
        WORKER_ROOMS.with_borrow(|locals| locals.get(&self.id).cloned())
    }

    /// The rooms of this worker. The first socket creates them, with a mailbox and a task that delivers its
    /// messages until the rooms are dropped.
    pub(super) fn local_or_new(&self) -> Rc<WorkerRooms> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if let Some(local) = self.local() {
            return local;
        }
        let worker = NEXT.fetch_add(1, Ordering::Relaxed);
        let local = Rc::new(WorkerRooms::new(worker, self.slow));
        let (sender, mut mailbox) = mpsc::channel::<RoomMessage>(MAILBOX_CAPACITY);
        self.change_mailboxes(|mailboxes| mailboxes.push(Mailbox { worker, sender }));
        WORKER_ROOMS.with_borrow_mut(|locals| locals.insert(self.id, Rc::clone(&local)));
        let guard = WorkerRoomsGuard(self.id);
        let rooms = Rc::clone(&local);
        tokio::task::spawn_local(async move {
            let _guard = guard;
            while let Some(message) = mailbox.recv().await {
                rooms.deliver(&message.room, &message.message, message.except);
            }
        });
        local
    }
}

/// Removes the rooms of a worker when the task of its mailbox ends.
struct WorkerRoomsGuard(u64);

impl Drop for WorkerRoomsGuard {
    fn drop(&mut self) {
        // The thread may be ending, with its thread-local storage destroyed.
        let _ = WORKER_ROOMS.try_with(|locals| locals.borrow_mut().remove(&self.0));
    }
}
