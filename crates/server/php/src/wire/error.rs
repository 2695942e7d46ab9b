//! Violations of the wire protocol by a worker.

use std::fmt;

/// A violation of the wire protocol: the runtime file has a bug, or the peer is not a worker. The connection must be
/// closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The type of a frame is unknown.
    UnknownType(u8),
    /// Reserved bits or flags are set, as by a newer runtime file.
    Reserved(u8),
    /// A frame is longer than the limit.
    TooLong {
        /// The type of the frame.
        kind: u8,
        /// The length in its header.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// The payload of a frame is invalid.
    Malformed(u8),
    /// The status is invalid (RFC 9110 section 15), or an interim one.
    Status(u16),
    /// A frame is not allowed in this state, such as a CHUNK without a response.
    OutOfOrder(u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(kind) => write!(f, "a frame has the unknown type {kind}"),
            Self::Reserved(kind) => write!(
                f,
                "a frame of type {kind} has reserved bits set: the runtime file is of another version"
            ),
            Self::TooLong { kind, len, max } => write!(
                f,
                "a frame of type {kind} has {len} bytes; the limit is {max}"
            ),
            Self::Malformed(kind) => {
                write!(f, "the payload of a frame of type {kind} is invalid")
            }
            Self::Status(status) => write!(f, "{status} is not a valid status of a response"),
            Self::OutOfOrder(kind) => write!(f, "a frame of type {kind} is not allowed here"),
        }
    }
}

impl std::error::Error for WireError {}
