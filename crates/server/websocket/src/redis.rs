//! Rooms on several machines, connected by a pub/sub channel of Redis.
//!
//! A thread with two connections publishes and subscribes, so that workers never wait for Redis. A process
//! ignores its own messages that Redis sends back: its sockets have got them already.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::codec::{ByteString, Message};
use apus_redis::Redis;
use apus_redis::redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use apus_redis::redis::{self, Client, RedisError};
use apus_tokens::random_bytes;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, sleep, timeout};

use super::process_rooms::ProcessRooms;

/// The number of messages queued for Redis at which more are dropped.
const MAX_QUEUED: usize = 4096;
/// The number of messages that are published in one pipeline.
const MAX_BATCH: usize = 256;
/// How often a connection is checked with a ping.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long Redis may take to respond to a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before a connection is retried, which doubles each time.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The connection of rooms to Redis: a handle on its thread.
pub(super) struct RedisLink {
    /// The random id of this process among all that use the channel.
    process_id: u64,
    outgoing: mpsc::Sender<Bytes>,
    state: Arc<RedisLinkState>,
}

#[derive(Default)]
struct RedisLinkState {
    is_connected: AtomicBool,
    /// Whether dropped messages were logged since the last connection.
    has_warned: AtomicBool,
}

impl RedisLink {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn open(
        redis: &Redis,
        channel: &str,
        rooms: Weak<ProcessRooms>,
    ) -> io::Result<Self> {
        let (outgoing, queue) = mpsc::channel(MAX_QUEUED);
        let link = Self {
            process_id: u64::from_be_bytes(random_bytes()?),
            outgoing,
            state: Arc::default(),
        };
        let mut thread = RedisThread {
            client: redis.client().clone(),
            channel: format!("apus:rooms:{channel}"),
            process_id: link.process_id,
            rooms,
            queue,
            state: Arc::clone(&link.state),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("apus-rooms".into())
            .spawn(move || runtime.block_on(thread.run()))?;
        Ok(link)
    }

    /// Queues a message for the other machines, without waiting.
    pub(super) fn publish(&self, room: &str, message: &Message) {
        let message = RedisMessage {
            from: self.process_id,
            room,
            message,
        };
        if self.outgoing.try_send(message.encode()).is_err()
            && !self.state.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "messages for rooms of other machines are dropped: the queue for Redis is full"
            );
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.is_connected.load(Ordering::Relaxed)
    }
}

/// The state of the thread.
struct RedisThread {
    client: Client,
    channel: String,
    process_id: u64,
    rooms: Weak<ProcessRooms>,
    queue: mpsc::Receiver<Bytes>,
    state: Arc<RedisLinkState>,
}

/// Why a connection ended.
enum DisconnectCause {
    /// The rooms were dropped.
    Unused,
    Lost(RedisError),
}

impl From<RedisError> for DisconnectCause {
    fn from(error: RedisError) -> Self {
        Self::Lost(error)
    }
}

impl RedisThread {
    async fn run(&mut self) {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            let cause = match self.connect().await {
                Ok((publisher, subscription, messages)) => {
                    self.state.is_connected.store(true, Ordering::Relaxed);
                    self.state.has_warned.store(false, Ordering::Relaxed);
                    tracing::info!(channel = self.channel, "rooms are shared through Redis");
                    delay = MIN_RETRY_DELAY;
                    let cause = self.transfer(publisher, subscription, messages).await;
                    self.state.is_connected.store(false, Ordering::Relaxed);
                    cause
                }
                Err(error) => DisconnectCause::Lost(error),
            };
            match cause {
                DisconnectCause::Lost(error) if self.rooms.strong_count() > 0 => {
                    tracing::warn!(%error, retry_in = ?delay, "rooms are not shared: no connection to Redis");
                }
                _ => return,
            }
            // Jitter: machines that lost the same Redis do not all reconnect at once.
            sleep(delay / 2 + jitter(delay / 2)).await;
            delay = delay.saturating_mul(2).min(MAX_RETRY_DELAY);
        }
    }

    async fn connect(
        &self,
    ) -> Result<(MultiplexedConnection, PubSubSink, PubSubStream), RedisError> {
        let subscribe = async {
            let mut pubsub = self.client.get_async_pubsub().await?;
            pubsub.subscribe(&self.channel).await?;
            Ok(pubsub.split())
        };
        let (subscription, messages) = with_timeout(subscribe).await?;
        let publisher = with_timeout(self.client.get_multiplexed_async_connection()).await?;
        Ok((publisher, subscription, messages))
    }

    /// Publishes and delivers messages until the connection is lost or the rooms are dropped.
    async fn transfer(
        &mut self,
        mut publisher: MultiplexedConnection,
        mut subscription: PubSubSink,
        mut messages: PubSubStream,
    ) -> DisconnectCause {
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::new();
        loop {
            let result = tokio::select! {
                received = next(&mut messages) => match received {
                    Some(message) => {
                        self.deliver(Bytes::copy_from_slice(message.get_payload_bytes())).await;
                        Ok(())
                    }
                    None => Err(closed()),
                },
                count = self.queue.recv_many(&mut batch, MAX_BATCH) => match count {
                    0 => return DisconnectCause::Unused,
                    // A failed batch is not sent again: other machines may have received a part of it.
                    _ => {
                        let mut pipe = redis::pipe();
                        for message in batch.drain(..) {
                            pipe.publish(&self.channel, &*message).ignore();
                        }
                        with_timeout(pipe.exec_async(&mut publisher)).await
                    }
                },
                _ = ping.tick() => with_timeout(subscription.ping::<redis::Value>()).await.map(drop),
            };
            if let Err(error) = result {
                return DisconnectCause::Lost(error);
            }
        }
    }

    /// Delivers a message of another machine to the sockets of this one.
    async fn deliver(&self, payload: Bytes) {
        let Some((from, room, message)) = decode(payload) else {
            tracing::debug!(
                channel = self.channel,
                "ignored a message that Apus did not publish"
            );
            return;
        };
        if from != self.process_id
            && let Some(rooms) = self.rooms.upgrade()
        {
            rooms.publish(&room, &message, None).await;
        }
    }
}

/// A message to other machines, before it is encoded.
struct RedisMessage<'a> {
    from: u64,
    room: &'a str,
    message: &'a Message,
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;

impl RedisMessage<'_> {
    /// Eight bytes with the id of the sender, one with the type, four with the length of the room's name, the
    /// name, and the payload.
    fn encode(&self) -> Bytes {
        let payload = self.message.as_bytes();
        let mut out = BytesMut::with_capacity(13 + self.room.len() + payload.len());
        out.put_u64(self.from);
        out.put_u8(match self.message {
            Message::Text(_) => TEXT,
            Message::Binary(_) => BINARY,
        });
        // No application uses a name of four gigabytes.
        out.put_u32(u32::try_from(self.room.len()).unwrap_or(u32::MAX));
        out.put_slice(self.room.as_bytes());
        out.put_slice(payload);
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

async fn next(messages: &mut PubSubStream) -> Option<redis::Msg> {
    let mut messages = pin!(messages);
    poll_fn(|cx| messages.as_mut().poll_next(cx)).await
}

/// Fails a command to which Redis does not respond in time.
async fn with_timeout<T>(
    command: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match timeout(COMMAND_TIMEOUT, command).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

fn closed() -> RedisError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

/// A random duration of up to `max`.
fn jitter(max: Duration) -> Duration {
    // Without random numbers, the jitter is zero.
    let [random] = random_bytes().unwrap_or_default();
    max.mul_f32(f32::from(random) / 255.0)
}

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLink")
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoded_message_equals_the_encoded_one() {
        for message in [
            Message::from("Grüße"),
            Message::from(vec![0xff, 0]),
            Message::from(""),
        ] {
            for room in ["", "Zürich"] {
                let encoded = RedisMessage {
                    from: 7,
                    room,
                    message: &message,
                }
                .encode();
                let decoded = decode(encoded);
                assert_eq!(decoded, Some((7, room.into(), message.clone())));
            }
        }
    }

    #[test]
    fn decoding_rejects_messages_of_other_programs() {
        let message = RedisMessage {
            from: 7,
            room: "room",
            message: &"text".into(),
        };
        let whole = message.encode();
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
