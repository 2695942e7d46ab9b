//! What a worker has done here and not in PHP, because sockets and queues live here.

use std::time::Duration;

use bytes::{Buf, Bytes};

use super::flag;

/// Something that is done here and not in PHP.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// A message for all who listen to a channel.
    Publish {
        /// The channel.
        channel: Bytes,
        /// How it is to be sent.
        form: Form,
        /// The message.
        message: Bytes,
    },
    /// A task for later.
    Task {
        /// Its name.
        name: Bytes,
        /// How long it waits.
        delay: Duration,
        /// What it is given.
        payload: Bytes,
    },
    /// A socket is in a room from now on. An empty name of a socket is that of the event.
    Join {
        /// The room.
        room: Bytes,
        /// The socket.
        socket: Bytes,
    },
    /// It is in it no longer.
    Leave {
        /// The room.
        room: Bytes,
        /// The socket.
        socket: Bytes,
    },
    /// Ends a socket.
    Close {
        /// The socket.
        socket: Bytes,
        /// A code of RFC 6455 section 7.4.
        code: u16,
        /// Why.
        reason: Bytes,
    },
    /// A message for one socket.
    Send {
        /// The socket.
        socket: Bytes,
        /// How it is to be sent.
        form: Form,
        /// The message.
        message: Bytes,
    },
    /// What comes with every later event of a socket.
    Keep {
        /// The socket.
        socket: Bytes,
        /// What is kept.
        data: Bytes,
    },
}

/// How a message is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As text.
    Text,
    /// As bytes.
    Binary,
    /// It is an event as `text/event-stream` has it, with its empty line: not for WebSockets.
    EventStream,
}

/// The most that a socket keeps.
const MAX_KEPT: usize = 64 * 1024;

/// The longest name of a channel, room, task or timer.
const MAX_NAME: usize = 128;

impl Command {
    /// Reads the payload of a COMMAND frame.
    pub(super) fn read(flags: u8, mut payload: Bytes) -> Option<Self> {
        let kind = payload.try_get_u8().ok()?;
        let name_len = usize::try_from(payload.try_get_u32_le().ok()?).ok()?;
        if name_len > payload.len() {
            return None;
        }
        let name = payload.split_to(name_len);
        let form = match flags {
            0 => Form::Text,
            flag::BINARY if matches!(kind, 1 | 6) => Form::Binary,
            flag::EVENT_STREAM if kind == 1 => Form::EventStream,
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
                form,
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
                form,
                message: payload,
            },
            7 if payload.len() <= MAX_KEPT => Self::Keep {
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

/// Whether `name` is what channels, rooms, tasks, timers and sockets are called.
fn is_name(name: &[u8], max: usize, beside: &[u8]) -> bool {
    (1..=max).contains(&name.len())
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || beside.contains(byte))
}

/// Whether `name` can be that of a channel, a room, a task or a timer.
pub(crate) fn is_channel(name: &[u8]) -> bool {
    is_name(name, MAX_NAME, b"._:/@-")
}
