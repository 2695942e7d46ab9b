//! Rooms on several machines: what is published on one is published through a channel of Redis to the others.
//!
//! One thread of its own listens and tells, with two connections, so that workers wait for nothing. What a
//! machine says itself comes back to it and is passed over: its own sockets have it already.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::codec::{ByteString, Message, Prepared};
use aws_lc_rs::rand;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_core::Stream;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{Client, RedisError};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, sleep, timeout};

use super::rooms::{Inner, Rooms};

/// Messages that wait for Redis, past which more are dropped.
const WAITING: usize = 4096;
/// How many of them are told at once.
const AT_ONCE: usize = 256;
/// How often a connection is asked whether it is one, and for how long.
const PING: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before another connection is tried: twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What rooms have of Redis.
pub(super) struct Bridge {
    /// Unlike that of other machines and processes.
    name: u64,
    outgoing: mpsc::Sender<Bytes>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_connected: AtomicBool,
    /// Whether it was said that messages are dropped, since the last connection.
    has_told: AtomicBool,
}

impl Bridge {
    /// Begins to listen for others.
    ///
    /// # Errors
    /// The address is none, or no thread can be had.
    pub(super) fn open(url: &str, channel: &str, rooms: Weak<Inner>) -> io::Result<Self> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let client = Client::open(url).map_err(invalid)?;
        let mut name = [0; 8];
        rand::fill(&mut name).map_err(|_| io::Error::other("the system has no random numbers"))?;
        let (outgoing, waiting) = mpsc::channel(WAITING);
        let bridge = Self {
            name: u64::from_be_bytes(name),
            outgoing,
            state: Arc::default(),
        };
        let mut link = Link {
            client,
            channel: format!("apus:rooms:{channel}"),
            name: bridge.name,
            rooms,
            waiting,
            state: Arc::clone(&bridge.state),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("apus-rooms".into())
            .spawn(move || runtime.block_on(link.run()))?;
        Ok(bridge)
    }

    /// Tells the other machines, without waiting.
    pub(super) fn publish(&self, room: &str, message: &Message) {
        let parcel = Parcel {
            from: self.name,
            room,
            message,
        };
        if self.outgoing.try_send(parcel.encode()).is_err()
            && !self.state.has_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("messages for rooms of other machines are dropped: Redis takes none");
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.is_connected.load(Ordering::Relaxed)
    }
}

/// What runs on the thread.
struct Link {
    client: Client,
    channel: String,
    name: u64,
    rooms: Weak<Inner>,
    waiting: mpsc::Receiver<Bytes>,
    state: Arc<State>,
}

/// Why a connection ended.
enum End {
    /// The rooms are gone.
    Unused,
    Lost(RedisError),
}

impl From<RedisError> for End {
    fn from(error: RedisError) -> Self {
        Self::Lost(error)
    }
}

impl Link {
    async fn run(&mut self) {
        let mut wait = FIRST_WAIT;
        loop {
            let connected = self.connect().await;
            let end = match connected {
                Ok((sending, asking, listening)) => {
                    self.state.is_connected.store(true, Ordering::Relaxed);
                    self.state.has_told.store(false, Ordering::Relaxed);
                    tracing::info!(channel = self.channel, "rooms are shared through Redis");
                    wait = FIRST_WAIT;
                    let end = self.exchange(sending, asking, listening).await;
                    self.state.is_connected.store(false, Ordering::Relaxed);
                    end
                }
                Err(error) => End::Lost(error),
            };
            match end {
                End::Lost(error) if self.rooms.strong_count() > 0 => {
                    tracing::warn!(%error, retry_in = ?wait, "rooms are not shared: no connection to Redis");
                }
                _ => return,
            }
            // Machines that lost the same Redis do not all come back at once.
            sleep(wait / 2 + jitter(wait / 2)).await;
            wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        }
    }

    async fn connect(
        &self,
    ) -> Result<(MultiplexedConnection, PubSubSink, PubSubStream), RedisError> {
        let listening = async {
            let mut listening = self.client.get_async_pubsub().await?;
            listening.subscribe(&self.channel).await?;
            Ok(listening.split())
        };
        let (asking, listening) = in_time(listening).await?;
        let sending = in_time(self.client.get_multiplexed_async_connection()).await?;
        Ok((sending, asking, listening))
    }

    /// Listens and tells until there is no connection, or nobody to do it for.
    async fn exchange(
        &mut self,
        mut sending: MultiplexedConnection,
        mut asking: PubSubSink,
        mut listening: PubSubStream,
    ) -> End {
        let mut ping = tokio::time::interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::new();
        loop {
            let done = tokio::select! {
                heard = next(&mut listening) => match heard {
                    Some(message) => {
                        self.deliver(Bytes::copy_from_slice(message.get_payload_bytes())).await;
                        Ok(())
                    }
                    None => Err(closed()),
                },
                count = self.waiting.recv_many(&mut batch, AT_ONCE) => match count {
                    0 => return End::Unused,
                    // What fails is not told again: some of it may have been heard.
                    _ => {
                        let mut pipe = redis::pipe();
                        for parcel in batch.drain(..) {
                            pipe.publish(&self.channel, &*parcel).ignore();
                        }
                        in_time(pipe.exec_async(&mut sending)).await
                    }
                },
                _ = ping.tick() => in_time(asking.ping::<redis::Value>()).await.map(drop),
            };
            if let Err(error) = done {
                return End::Lost(error);
            }
        }
    }

    /// Gives a message of another machine to the sockets of this one.
    async fn deliver(&self, payload: Bytes) {
        let Some((from, room, message)) = decode(payload) else {
            tracing::debug!(channel = self.channel, "a message that is none of ours");
            return;
        };
        if from != self.name
            && let Some(inner) = self.rooms.upgrade()
        {
            let rooms = Rooms::of(inner);
            let message = Prepared::new(&message, rooms.compression());
            rooms.spread(&room, message, None).await;
        }
    }
}

/// A message on its way to other machines.
struct Parcel<'a> {
    from: u64,
    room: &'a str,
    message: &'a Message,
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;

impl Parcel<'_> {
    /// Who says it in eight bytes, its type in one, the length of the room's name in four, the name, and the
    /// content.
    fn encode(&self) -> Bytes {
        let content = self.message.as_bytes();
        let mut out = BytesMut::with_capacity(13 + self.room.len() + content.len());
        out.put_u64(self.from);
        out.put_u8(match self.message {
            Message::Text(_) => TEXT,
            Message::Binary(_) => BINARY,
        });
        // Whoever joins a room has its name in memory; four gigabytes of it would have come over a socket.
        out.put_u32(u32::try_from(self.room.len()).unwrap_or(u32::MAX));
        out.put_slice(self.room.as_bytes());
        out.put_slice(content);
        out.freeze()
    }
}

fn decode(mut payload: Bytes) -> Option<(u64, ByteString, Message)> {
    let from = payload.try_get_u64().ok()?;
    let kind = payload.try_get_u8().ok()?;
    let len = usize::try_from(payload.try_get_u32().ok()?).ok()?;
    let room = (len <= payload.len()).then(|| payload.split_to(len))?;
    let room = ByteString::try_from(room).ok()?;
    let message = match kind {
        TEXT => Message::Text(ByteString::try_from(payload).ok()?),
        BINARY => Message::Binary(payload),
        _ => return None,
    };
    Some((from, room, message))
}

async fn next(listening: &mut PubSubStream) -> Option<redis::Msg> {
    let mut listening = pin!(listening);
    poll_fn(|cx| listening.as_mut().poll_next(cx)).await
}

/// Fails what Redis does not answer.
async fn in_time<T>(asked: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    match timeout(PATIENCE, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

fn closed() -> RedisError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

/// Some time up to this long.
fn jitter(longest: Duration) -> Duration {
    let mut random = [0];
    // Without random numbers everybody waits as long.
    let _ = rand::fill(&mut random);
    longest.mul_f32(f32::from(random[0]) / 255.0)
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge")
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_is_what_it_was() {
        for message in [
            Message::from("Grüße"),
            Message::from(vec![0xff, 0]),
            Message::from(""),
        ] {
            for room in ["", "Zürich"] {
                let parcel = Parcel {
                    from: 7,
                    room,
                    message: &message,
                };
                let decoded = decode(parcel.encode());
                assert_eq!(decoded, Some((7, room.into(), message.clone())));
            }
        }
    }

    #[test]
    fn what_others_say_on_the_channel_is_no_parcel() {
        let parcel = Parcel {
            from: 7,
            room: "room",
            message: &"text".into(),
        };
        let whole = parcel.encode();
        for len in 0..13 + 4 {
            assert_eq!(decode(whole.slice(..len)), None, "{len}");
        }
        for (at, wrong) in [(8, 3), (12, 200), (13, 0xff), (17, 0xff)] {
            let mut changed = whole.to_vec();
            changed[at] = wrong;
            assert_eq!(decode(changed.into()), None, "{at}");
        }
    }
}
