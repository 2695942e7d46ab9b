//! Rooms: a message for all sockets that are in one, on whatever worker they live.
//!
//! Each worker knows its own sockets. A message is encoded once, and what crosses threads is a
//! reference to its bytes. With the feature `redis` they are also those of other machines.

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

use crate::codec::{Compression, Message, Prepared};
use tokio::sync::mpsc;

use super::Sender;
#[cfg(feature = "redis")]
use super::redis::Bridge;
use super::state::{Refused, Shared};

/// Rooms by name, shared by all workers: clones are the same rooms.
///
/// A room is there while a socket is in it. A socket leaves its rooms when its connection ends.
#[derive(Clone)]
pub struct Rooms(Arc<Inner>);

/// What becomes of a message to a socket for which too much waits to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowReceivers {
    /// The socket misses this message.
    Skip,
    /// The socket is closed with 1013: a client that comes back knows that it missed something.
    #[default]
    Close,
}

pub(super) struct Inner {
    /// Unlike that of other rooms.
    id: u64,
    slow: SlowReceivers,
    compression: Option<Compression>,
    /// Where workers with sockets get their messages. Replaced as a whole, which is rare.
    mailboxes: RwLock<Arc<[Mailbox]>>,
    /// The way to other machines.
    #[cfg(feature = "redis")]
    bridge: OnceLock<Bridge>,
}

/// The way to one worker.
#[derive(Clone)]
struct Mailbox {
    worker: u64,
    sender: mpsc::Sender<Parcel>,
}

/// A message on its way to a worker.
#[derive(Clone)]
struct Parcel {
    room: Arc<str>,
    message: Prepared,
    /// The socket that does not get it.
    except: Option<u64>,
}

/// Parcels that wait for a worker, past which who publishes waits.
const MAILBOX: usize = 1024;

thread_local! {
    /// What this worker has of each set of rooms.
    static LOCALS: RefCell<HashMap<u64, Rc<Local>>> = RefCell::default();
}

/// The sockets of one worker.
pub(super) struct Local {
    worker: u64,
    slow: SlowReceivers,
    rooms: RefCell<HashMap<Rc<str>, Vec<Member>>>,
}

struct Member {
    id: u64,
    socket: Weak<Shared>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self::new(SlowReceivers::default(), Some(Compression::default()))
    }
}

impl Rooms {
    /// Rooms without sockets. Messages are compressed, once, if that is given; sockets that cannot
    /// take that form get the plain one.
    pub fn new(slow: SlowReceivers, compression: Option<Compression>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            slow,
            compression,
            mailboxes: RwLock::new(Arc::new([])),
            #[cfg(feature = "redis")]
            bridge: OnceLock::new(),
        }))
    }

    /// Makes these the rooms of all machines that have rooms with this name through the same Redis, by its
    /// pub/sub. `url` is as `redis://[user][:password@]host[:port]`, `rediss://` with TLS, or
    /// `redis+unix:///path`.
    ///
    /// Sockets of this process get their messages as ever, whatever becomes of Redis. Those of other machines
    /// get each at most once: what is published while there is no connection waits for it, up to some thousand
    /// messages, and what was under way when it broke is lost. Lost connections are made again, at ever longer
    /// intervals up to five seconds.
    ///
    /// # Errors
    /// The address is none, or the rooms are shared already.
    #[cfg(feature = "redis")]
    pub fn through_redis(self, url: &str, name: &str) -> io::Result<Self> {
        let bridge = Bridge::open(url, name, Arc::downgrade(&self.0))?;
        match self.0.bridge.set(bridge) {
            Ok(()) => Ok(self),
            Err(_) => Err(io::Error::other(
                "the rooms are shared through Redis already",
            )),
        }
    }

    /// Whether there is a connection through which messages reach other machines.
    #[cfg(feature = "redis")]
    pub fn is_shared(&self) -> bool {
        self.0.bridge.get().is_some_and(Bridge::is_connected)
    }

    /// Puts a socket of this worker into a room. In it already, it stays there once.
    pub fn join(&self, room: &str, socket: &Sender) {
        if !socket.is_closed() {
            self.local_or_new().add(room, socket.shared());
        }
    }

    /// Takes a socket of this worker out of a room; tells whether it was there.
    pub fn leave(&self, room: &str, socket: &Sender) -> bool {
        let Some(local) = self.local() else {
            return false;
        };
        let mut rooms = socket.shared().rooms.borrow_mut();
        rooms.retain(|(known, name)| known.as_ptr() != Rc::as_ptr(&local) || **name != *room);
        drop(rooms);
        local.remove(room, socket.id())
    }

    /// Sends a message to all sockets of a room, from any thread. It has left when this returns, for
    /// other workers: waits only if one of them has a thousand messages to send already.
    pub async fn publish(&self, room: &str, message: impl Into<Message>) {
        self.send(room, message.into(), None).await;
    }

    /// Likewise, but not to this socket: what a client said is for the others.
    pub async fn publish_from(&self, socket: &Sender, room: &str, message: impl Into<Message>) {
        self.send(room, message.into(), Some(socket.id())).await;
    }

    async fn send(&self, room: &str, message: Message, except: Option<u64>) {
        #[cfg(feature = "redis")]
        if let Some(bridge) = self.0.bridge.get() {
            bridge.publish(room, &message);
        }
        let message = Prepared::new(&message, self.0.compression.as_ref());
        self.spread(room, message, except).await;
    }

    /// Sends a message to the sockets of this process.
    pub(super) async fn spread(&self, room: &str, message: Prepared, except: Option<u64>) {
        let local = self.local();
        if let Some(local) = &local {
            local.deliver(room, &message, except);
        }
        let here = local.map(|local| local.worker);
        let mailboxes = self.mailboxes();
        let mut others = mailboxes
            .iter()
            .filter(|mailbox| Some(mailbox.worker) != here)
            .peekable();
        if others.peek().is_none() {
            return;
        }
        let parcel = Parcel {
            room: room.into(),
            message,
            except,
        };
        for mailbox in others {
            if mailbox.sender.send(parcel.clone()).await.is_err() {
                self.forget(mailbox.worker);
            }
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn of(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    #[cfg(feature = "redis")]
    pub(super) fn compression(&self) -> Option<&Compression> {
        self.0.compression.as_ref()
    }

    /// How many sockets of this worker are in a room.
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

    fn forget(&self, worker: u64) {
        self.change_mailboxes(|mailboxes| mailboxes.retain(|known| known.worker != worker));
    }

    fn local(&self) -> Option<Rc<Local>> {
        LOCALS.with_borrow(|locals| locals.get(&self.0.id).cloned())
    }

    /// What this worker has of the rooms. With the first socket it gets a mailbox, and a task that
    /// empties it until the rooms are gone.
    fn local_or_new(&self) -> Rc<Local> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if let Some(local) = self.local() {
            return local;
        }
        let local = Rc::new(Local {
            worker: NEXT.fetch_add(1, Ordering::Relaxed),
            slow: self.0.slow,
            rooms: RefCell::default(),
        });
        let (sender, mut mailbox) = mpsc::channel::<Parcel>(MAILBOX);
        self.change_mailboxes(|mailboxes| {
            mailboxes.push(Mailbox {
                worker: local.worker,
                sender,
            });
        });
        LOCALS.with_borrow_mut(|locals| locals.insert(self.0.id, Rc::clone(&local)));
        let known = Known(self.0.id);
        let receiving = Rc::clone(&local);
        tokio::task::spawn_local(async move {
            let _known = known;
            while let Some(parcel) = mailbox.recv().await {
                receiving.deliver(&parcel.room, &parcel.message, parcel.except);
            }
        });
        local
    }
}

/// Forgets what a worker has of rooms when nothing empties its mailbox any more.
struct Known(u64);

impl Drop for Known {
    fn drop(&mut self) {
        // The thread may be at its end.
        let _ = LOCALS.try_with(|locals| locals.borrow_mut().remove(&self.0));
    }
}

impl Local {
    fn add(self: &Rc<Self>, room: &str, socket: &Rc<Shared>) {
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
        let known = (Rc::downgrade(self), name);
        socket.rooms.borrow_mut().push(known);
    }

    /// Takes a socket out of a room, and the room away if it was the last.
    pub(super) fn remove(&self, room: &str, id: u64) -> bool {
        let mut rooms = self.rooms.borrow_mut();
        let Some(members) = rooms.get_mut(room) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| member.id != id);
        let was_there = members.len() < before;
        if members.is_empty() {
            rooms.remove(room);
        }
        was_there
    }

    fn deliver(&self, room: &str, message: &Prepared, except: Option<u64>) {
        let rooms = self.rooms.borrow();
        let Some(members) = rooms.get(room) else {
            return;
        };
        for member in members.iter().filter(|member| Some(member.id) != except) {
            let Some(socket) = member.socket.upgrade() else {
                continue;
            };
            let sent = socket.with_room(|connection| connection.send_prepared(message));
            if sent == Err(Refused::Full) && self.slow == SlowReceivers::Close {
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
