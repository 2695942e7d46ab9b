//! Rooms: publishing a message to all sockets that joined a room, on all workers.
//!
//! Each worker has a table of its own sockets. A message is encoded once, and threads share its bytes. With the
//! feature `redis`, a message also reaches the sockets of other machines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
#[cfg(feature = "redis")]
use std::io;
use std::rc::{Rc, Weak};
#[cfg(feature = "redis")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::codec::{Compression, Message, PreparedMessage};
use tokio::sync::mpsc;

use super::Sender;
#[cfg(feature = "redis")]
use super::redis::RedisLink;
use super::state::{SendError, SharedSocket};

/// Rooms by name, shared by all workers: clones are the same rooms.
///
/// A room exists while a socket is in it. A socket leaves its rooms when its connection ends.
#[derive(Clone)]
pub struct Rooms(Arc<RoomsShared>);

/// What happens to a message for a socket whose send buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowReceivers {
    /// The socket misses this message.
    Skip,
    /// The socket is closed with 1013: a client that reconnects knows that it missed messages.
    #[default]
    Close,
}

pub(super) struct RoomsShared {
    /// Unique in the process.
    id: u64,
    slow: SlowReceivers,
    compression: Option<Compression>,
    /// The mailboxes of the workers that have sockets. A change, which is rare, replaces the slice.
    mailboxes: RwLock<Arc<[Mailbox]>>,
    /// The connection to the rooms of other machines.
    #[cfg(feature = "redis")]
    redis: OnceLock<RedisLink>,
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

impl Default for Rooms {
    fn default() -> Self {
        Self::new(SlowReceivers::default(), Some(Compression::default()))
    }
}

impl Rooms {
    /// Rooms without sockets. With `compression` a message is compressed once; sockets that negotiated other
    /// parameters get the uncompressed message.
    pub fn new(slow: SlowReceivers, compression: Option<Compression>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(RoomsShared {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            slow,
            compression,
            mailboxes: RwLock::new(Arc::new([])),
            #[cfg(feature = "redis")]
            redis: OnceLock::new(),
        }))
    }

    /// Shares these rooms with all machines that use this name and the same Redis, by its pub/sub.
    ///
    /// Messages to sockets of this process do not depend on Redis. Other machines get each message at most
    /// once: messages that are published without a connection are queued, up to some thousand, and those in
    /// flight when the connection fails are lost. Lost connections are retried with growing delays of up to
    /// five seconds.
    ///
    /// # Errors
    /// The rooms are shared already, or a thread cannot be started.
    #[cfg(feature = "redis")]
    pub fn through_redis(self, redis: &apus_redis::Redis, name: &str) -> io::Result<Self> {
        let link = RedisLink::open(redis, name, Arc::downgrade(&self.0))?;
        match self.0.redis.set(link) {
            Ok(()) => Ok(self),
            Err(_) => Err(io::Error::other(
                "the rooms are shared through Redis already",
            )),
        }
    }

    /// Whether there is a connection through which messages reach other machines.
    #[cfg(feature = "redis")]
    pub fn is_shared(&self) -> bool {
        self.0.redis.get().is_some_and(RedisLink::is_connected)
    }

    /// Adds a socket of this worker to a room. Joining twice has no effect.
    pub fn join(&self, room: &str, socket: &Sender) {
        if !socket.is_closed() {
            self.local_or_new().add(room, socket.shared());
        }
    }

    /// Removes a socket of this worker from a room; returns whether it was in it.
    pub fn leave(&self, room: &str, socket: &Sender) -> bool {
        let Some(local) = self.local() else {
            return false;
        };
        let mut joined = socket.shared().rooms.borrow_mut();
        joined.retain(|(rooms, name)| rooms.as_ptr() != Rc::as_ptr(&local) || **name != *room);
        drop(joined);
        local.remove(room, socket.id())
    }

    /// Sends a message to all sockets of a room, from any thread. When it returns, the message is queued for
    /// all workers; it waits only while the mailbox of a worker is full.
    pub async fn publish(&self, room: &str, message: impl Into<Message>) {
        self.send(room, message.into(), None).await;
    }

    /// Sends a message to all sockets of a room but this one.
    pub async fn publish_from(&self, socket: &Sender, room: &str, message: impl Into<Message>) {
        self.send(room, message.into(), Some(socket.id())).await;
    }

    async fn send(&self, room: &str, message: Message, except: Option<u64>) {
        #[cfg(feature = "redis")]
        if let Some(redis) = self.0.redis.get() {
            redis.publish(room, &message);
        }
        let message = PreparedMessage::new(&message, self.0.compression.as_ref());
        self.deliver_locally(room, message, except).await;
    }

    /// Sends a message to the sockets of this process.
    pub(super) async fn deliver_locally(
        &self,
        room: &str,
        message: PreparedMessage,
        except: Option<u64>,
    ) {
        let local = self.local();
        if let Some(local) = &local {
            local.deliver(room, &message, except);
        }
        let this_worker = local.map(|local| local.worker);
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

    #[cfg(feature = "redis")]
    pub(super) fn from_shared(shared: Arc<RoomsShared>) -> Self {
        Self(shared)
    }

    #[cfg(feature = "redis")]
    pub(super) fn compression(&self) -> Option<&Compression> {
        self.0.compression.as_ref()
    }

    /// The number of sockets of this worker in a room.
    pub fn members_here(&self, room: &str) -> usize {
        self.local().map_or(0, |local| {
            local.rooms.borrow().get(room).map_or(0, Vec::len)
        })
    }

    fn mailboxes(&self) -> Arc<[Mailbox]> {
        let mailboxes = self.0.mailboxes.read();
        Arc::clone(&mailboxes.unwrap_or_else(PoisonError::into_inner))
    }

    fn change_mailboxes(&self, change: impl FnOnce(&mut Vec<Mailbox>)) {
        let mailboxes = self.0.mailboxes.write();
        let mut mailboxes = mailboxes.unwrap_or_else(PoisonError::into_inner);
        let mut changed = mailboxes.to_vec();
        change(&mut changed);
        *mailboxes = changed.into();
    }

    fn remove_mailbox(&self, worker: u64) {
        self.change_mailboxes(|mailboxes| mailboxes.retain(|mailbox| mailbox.worker != worker));
    }

    fn local(&self) -> Option<Rc<WorkerRooms>> {
        WORKER_ROOMS.with_borrow(|locals| locals.get(&self.0.id).cloned())
    }

    /// The rooms of this worker. The first socket creates them, with a mailbox and a task that delivers its
    /// messages until the rooms are dropped.
    fn local_or_new(&self) -> Rc<WorkerRooms> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if let Some(local) = self.local() {
            return local;
        }
        let local = Rc::new(WorkerRooms {
            worker: NEXT.fetch_add(1, Ordering::Relaxed),
            slow: self.0.slow,
            rooms: RefCell::default(),
        });
        let (sender, mut mailbox) = mpsc::channel::<RoomMessage>(MAILBOX_CAPACITY);
        self.change_mailboxes(|mailboxes| {
            mailboxes.push(Mailbox {
                worker: local.worker,
                sender,
            });
        });
        WORKER_ROOMS.with_borrow_mut(|locals| locals.insert(self.0.id, Rc::clone(&local)));
        let guard = WorkerRoomsGuard(self.0.id);
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

impl WorkerRooms {
    fn add(self: &Rc<Self>, room: &str, socket: &Rc<SharedSocket>) {
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
        let joined = (Rc::downgrade(self), name);
        socket.rooms.borrow_mut().push(joined);
    }

    /// Removes a socket from a room, and the room with its last socket.
    pub(super) fn remove(&self, room: &str, id: u64) -> bool {
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

    fn deliver(&self, room: &str, message: &PreparedMessage, except: Option<u64>) {
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

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms")
            .field("slow", &self.0.slow)
            .field("workers", &self.mailboxes().len())
            .finish_non_exhaustive()
    }
}
