//! Rooms: publishing a message to all sockets that joined a room, on all workers.
//!
//! Each worker has a table of its own sockets. A message is encoded once, and threads share its bytes. With the
//! feature `redis`, a message also reaches the sockets of other machines.

use std::fmt;
#[cfg(feature = "redis")]
use std::io;
use std::rc::Rc;
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::sync::OnceLock;

use crate::codec::{Compression, Message};

use super::process_rooms::ProcessRooms;
#[cfg(feature = "redis")]
use super::redis::RedisLink;
use super::socket::Sender;
use super::state::RoomTable;
use apus_net::SlowReceivers;

/// Rooms by name, shared by all workers: clones are the same rooms.
///
/// A room exists while a socket is in it. A socket leaves its rooms when its connection ends.
#[derive(Clone)]
pub struct Rooms {
    process: Arc<ProcessRooms>,
    /// The connection to the rooms of other machines.
    #[cfg(feature = "redis")]
    redis: Arc<OnceLock<RedisLink>>,
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
        Self {
            process: Arc::new(ProcessRooms::new(slow, compression)),
            #[cfg(feature = "redis")]
            redis: Arc::default(),
        }
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
        let link = RedisLink::open(redis, name, Arc::downgrade(&self.process))?;
        match self.redis.set(link) {
            Ok(()) => Ok(self),
            Err(_) => Err(io::Error::other(
                "the rooms are shared through Redis already",
            )),
        }
    }

    /// Whether there is a connection through which messages reach other machines.
    #[cfg(feature = "redis")]
    pub fn is_shared(&self) -> bool {
        self.redis.get().is_some_and(RedisLink::is_connected)
    }

    /// Adds a socket of this worker to a room. Joining twice has no effect.
    pub fn join(&self, room: &str, socket: &Sender) {
        if !socket.is_closed() {
            self.process.local_or_new().add(room, socket.shared());
        }
    }

    /// Removes a socket of this worker from a room; returns whether it was in it.
    pub fn leave(&self, room: &str, socket: &Sender) -> bool {
        let Some(local) = self.process.local() else {
            return false;
        };
        let mut joined = socket.shared().rooms.borrow_mut();
        joined.retain(|membership| {
            let is_local = std::ptr::addr_eq(membership.table.as_ptr(), Rc::as_ptr(&local));
            !is_local || *membership.room != *room
        });
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
        if let Some(redis) = self.redis.get() {
            redis.publish(room, &message);
        }
        self.process.publish(room, &message, except).await;
    }

    /// The number of sockets of this worker in a room.
    pub fn members_here(&self, room: &str) -> usize {
        let local = self.process.local();
        local.map_or(0, |local| local.members(room))
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms")
            .field("slow", &self.process.slow())
            .field("workers", &self.process.workers())
            .finish_non_exhaustive()
    }
}
