//! The commands of workers, for sockets and queues that the server has.

use std::time::Duration;

use bytes::{Buf, Bytes};

use super::flag;

/// A command of a worker to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PhpCommand {
    /// Publishes a message to the subscribers of a channel.
    Publish {
        /// The channel.
        channel: Bytes,
        /// The format of the message.
        format: MessageFormat,
        /// The message.
        message: Bytes,
    },
    /// Queues a task.
    Task {
        /// The name of the task.
        name: Bytes,
        /// The delay before it runs.
        delay: Duration,
        /// The argument of the task.
        payload: Bytes,
    },
    /// Adds a socket to a room. An empty name means the socket of the current event.
    Join {
        /// The room.
        room: Bytes,
        /// The socket.
        socket: Bytes,
    },
    /// Removes a socket from a room.
    Leave {
        /// The room.
        room: Bytes,
        /// The socket.
        socket: Bytes,
    },
    /// Closes a socket.
    Close {
        /// The socket.
        socket: Bytes,
        /// A code of RFC 6455 section 7.4.
        code: u16,
        /// The reason.
        reason: Bytes,
    },
    /// Sends a message to one socket.
    Send {
        /// The socket.
        socket: Bytes,
        /// The format of the message.
        format: MessageFormat,
        /// The message.
        message: Bytes,
    },
    /// Sets data that every later event of a socket includes.
    Keep {
        /// The socket.
        socket: Bytes,
        /// The data.
        data: Bytes,
    },
}

/// The format of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageFormat {
    /// Text.
    Text,
    /// Binary data.
    Binary,
    /// An event of `text/event-stream` with its empty line, which is not sent to WebSockets.
    EventStream,
}

/// The maximum length of the data of a socket.
const MAX_DATA: usize = 64 * 1024;

/// The maximum length of the name of a channel, room, task or timer.
const MAX_NAME: usize = 128;

impl PhpCommand {
    /// Reads the payload of a COMMAND frame.
    pub(super) fn read(flags: u8, mut payload: Bytes) -> Option<Self> {
        let kind = payload.try_get_u8().ok()?;
        let name_len = usize::try_from(payload.try_get_u32_le().ok()?).ok()?;
        if name_len > payload.len() {
            return None;
        }
        let name = payload.split_to(name_len);
        let format = match flags {
            0 => MessageFormat::Text,
            flag::BINARY if matches!(kind, 1 | 6) => MessageFormat::Binary,
            flag::EVENT_STREAM if kind == 1 => MessageFormat::EventStream,
            _ => return None,
        };
        match kind {
            1..=4 if !is_channel(&name) => return None,
            3 | 4 if !is_socket(&payload) => return None,
            5..=7 if !is_socket(&name) => return None,
            _ => {}
        }
        Some(match kind {
            1 => Self::Publish {
                channel: name,
                format,
                message: payload,
            },
            2 => Self::Task {
                name,
                delay: Duration::from_millis(payload.try_get_u32_le().ok()?.into()),
                payload,
            },
            3 => Self::Join {
                room: name,
                socket: payload,
            },
            4 => Self::Leave {
                room: name,
                socket: payload,
            },
            5 => Self::Close {
                socket: name,
                code: payload.try_get_u16_le().ok()?,
                reason: payload,
            },
            6 => Self::Send {
                socket: name,
                format,
                message: payload,
            },
            7 if payload.len() <= MAX_DATA => Self::Keep {
                socket: name,
                data: payload,
            },
            _ => return None,
        })
    }
}

fn is_socket(name: &[u8]) -> bool {
    name.is_empty() || is_name(name, 64, b"_-")
}

/// Whether `name` has letters, digits and `others`, up to a length of `max`.
fn is_name(name: &[u8], max: usize, others: &[u8]) -> bool {
    (1..=max).contains(&name.len())
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || others.contains(byte))
}

/// Whether `name` is a valid name of a channel, a room, a task or a timer.
pub(crate) fn is_channel(name: &[u8]) -> bool {
    is_name(name, MAX_NAME, b"._:/@-")
}
