//! The wire protocol between Apus and resident PHP workers, without I/O, as in `php/WIRE.md`.
//!
//! A frame is a header of eight bytes in little endian (`u32` length of the payload, `u8` type, `u8` flags, `u16`
//! reserved), and its payload. The server writes one [`RequestFrame`] for a request or an event, and a
//! [`WireDecoder`] reads the frames of the worker's response. Most requests and responses are one frame each, which
//! takes one write and one read.

mod command;
mod decode;
mod encode;
mod error;

pub(crate) use command::is_channel;
pub use command::{MessageFormat, PhpCommand};
pub use decode::{
    Hello, LogLevel, ReadyFrame, WireDecoder, WireLimits, WorkerEvent, WorkerResponseEnd,
    WorkerResponseHead,
};
pub use encode::{
    BodyTransfer, FixedVariables, Oversized, RequestFrame, body_header, cancel, stop,
};
pub use error::WireError;

/// The maximum length of a body that is sent in the frame of its request.
pub const MAX_INLINE_BODY: u64 = 256 * 1024;

/// The maximum length of a frame's payload.
pub const MAX_PAYLOAD: u32 = 16 * 1024 * 1024;

/// The length of a frame's header.
pub const HEADER_LEN: usize = 8;

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
    pub(super) const INTERIM: u8 = 75;
}

/// Flags of frames.
mod flag {
    /// REQUEST: the body follows in BODY frames. RESPONSE: CHUNK frames follow. BODY and CHUNK: the last one.
    pub(super) const FIRST: u8 = 1;
    /// REQUEST: the method is HEAD.
    pub(super) const HEAD: u8 = 2;
    /// The end of a response: the worker continues to work, and sends READY when it is idle.
    pub(super) const CONTINUES_WORKING: u8 = 2;
    /// The end of a response: BYE follows.
    pub(super) const LEAVING: u8 = 4;
    /// The last CHUNK: the response is incomplete.
    pub(super) const TRUNCATED: u8 = 8;
    /// COMMAND: the message is binary.
    pub(super) const BINARY: u8 = 1;
    /// COMMAND: the message is an event of `text/event-stream`.
    pub(super) const EVENT_STREAM: u8 = 2;
}
