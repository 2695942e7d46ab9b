//! The wire between Apus and resident PHP workers, without I/O: `php/WIRE.md` says it in words.
//!
//! A frame is a header of eight bytes, little endian (`u32` length of what follows, `u8` type, `u8`
//! flags, `u16` reserved), and that much payload. The server writes one [`Message`] for a request or an
//! event and the worker answers it with frames that a [`Decoder`] reads. Common requests and answers
//! are one frame each, so one write and one read.

mod command;
mod decode;
mod encode;
mod error;

pub(crate) use command::is_channel;
pub use command::{Command, Form};
pub use decode::{Decoder, Ending, Event, Hello, Level, Limits, Ready, ResponseHead};
pub use encode::{Content, FixedVariables, Message, Oversized, body_header, cancel, stop};
pub use error::WireError;

/// Content up to this many bytes travels in the frame of its request.
pub const INLINE_CONTENT: u64 = 256 * 1024;

/// The most bytes that the payload of a frame may have.
pub const MAX_PAYLOAD: u32 = 16 * 1024 * 1024;

/// Bytes of a frame's header.
pub const HEADER: usize = 8;

/// Types of frames.
mod kind {
    pub(super) const REQUEST: u8 = 1;
    pub(super) const BODY: u8 = 2;
    pub(super) const CANCEL: u8 = 3;
    pub(super) const STOP: u8 = 5;
    pub(super) const EVENT: u8 = 6;
    pub(super) const HELLO: u8 = 65;
    pub(super) const READY: u8 = 66;
    pub(super) const RESPONSE: u8 = 67;
    pub(super) const CHUNK: u8 = 68;
    pub(super) const PULL: u8 = 69;
    pub(super) const PONG: u8 = 70;
    pub(super) const LOG: u8 = 71;
    pub(super) const COMMAND: u8 = 72;
    pub(super) const FAILED: u8 = 73;
    pub(super) const BYE: u8 = 74;
}

/// Flags of frames.
mod flag {
    /// REQUEST: the content follows in BODY frames. RESPONSE: more follows in CHUNK frames. BODY and
    /// CHUNK: the last one.
    pub(super) const FIRST: u8 = 1;
    /// REQUEST: the method is HEAD.
    pub(super) const HEAD: u8 = 2;
    /// The end of an answer: the worker goes on working, and says READY when it is free.
    pub(super) const WORKS_ON: u8 = 2;
    /// The end of an answer: BYE follows.
    pub(super) const LEAVES: u8 = 4;
    /// The last CHUNK: the answer broke off.
    pub(super) const BROKE_OFF: u8 = 8;
    /// A message of a COMMAND: it is binary.
    pub(super) const BINARY: u8 = 1;
    /// What a COMMAND publishes is an event as `text/event-stream` has it.
    pub(super) const EVENT_STREAM: u8 = 2;
}
