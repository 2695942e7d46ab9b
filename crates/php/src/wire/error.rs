//! What a worker can get wrong on the wire.

use std::fmt;

/// A worker broke the wire: a faulty runtime file, or something else than a worker. The connection is
/// of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// A type that no frame of a worker has.
    UnknownType(u8),
    /// Reserved bits or flags are set: a newer runtime file than this server knows.
    Reserved(u8),
    /// A frame that may hold so many bytes is longer.
    TooLong {
        /// The type of the frame.
        kind: u8,
        /// Its bytes, as its header has them.
        len: u64,
        /// The most that are read.
        max: u64,
    },
    /// A frame ends before what it has to hold, or goes on behind it.
    Malformed(u8),
    /// A status that is none (RFC 9110 section 15), or an interim one.
    Status(u16),
    /// A frame that may not come now, such as a chunk of no response.
    OutOfOrder(u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(kind) => write!(f, "a frame of the unknown type {kind}"),
            Self::Reserved(kind) => write!(
                f,
                "a frame of type {kind} has reserved bits set: the runtime file is of another version"
            ),
            Self::TooLong { kind, len, max } => write!(
                f,
                "a frame of type {kind} has {len} bytes where at most {max} are taken"
            ),
            Self::Malformed(kind) => {
                write!(f, "a frame of type {kind} does not hold what it has to")
            }
            Self::Status(status) => write!(f, "{status} is no status of an answer"),
            Self::OutOfOrder(kind) => write!(f, "a frame of type {kind} was not to come now"),
        }
    }
}

impl std::error::Error for WireError {}
