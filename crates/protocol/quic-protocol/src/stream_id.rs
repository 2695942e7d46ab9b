//! Stream IDs, and the sides of a connection (RFC 9000 section 2.1).

use std::fmt;
use std::ops::Not;

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The end that opens the connection.
    Client,
    /// The end that accepts it.
    Server,
}

impl Side {
    /// Whether this is the client.
    #[inline]
    pub fn is_client(self) -> bool {
        self == Self::Client
    }

    /// Whether this is the server.
    #[inline]
    pub fn is_server(self) -> bool {
        self == Self::Server
    }
}

impl Not for Side {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl From<Side> for rustls::Side {
    fn from(side: Side) -> Self {
        match side {
            Side::Client => Self::Client,
            Side::Server => Self::Server,
        }
    }
}

/// Whether both ends of a stream send data, or only the one that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dir {
    /// Both ends send data.
    Bi,
    /// Only the end that opened the stream sends data.
    Uni,
}

impl Dir {
    /// Both of them.
    pub(crate) const ALL: [Self; 2] = [Self::Bi, Self::Uni];
}

/// The ID of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

impl StreamId {
    /// The stream of this kind with this index, counted from zero.
    #[inline]
    pub fn new(initiator: Side, direction: Dir, index: u64) -> Self {
        let initiator = u64::from(initiator == Side::Server);
        let direction = u64::from(direction == Dir::Uni) << 1;
        Self(index << 2 | direction | initiator)
    }

    /// The end that opened it.
    #[inline]
    pub fn initiator(self) -> Side {
        match self.0 & 1 {
            0 => Side::Client,
            _ => Side::Server,
        }
    }

    /// Whether both ends send data.
    #[inline]
    pub fn dir(self) -> Dir {
        match self.0 & 2 {
            0 => Dir::Bi,
            _ => Dir::Uni,
        }
    }

    /// Its place among the streams of its kind.
    #[inline]
    pub fn index(self) -> u64 {
        self.0 >> 2
    }
}

impl From<StreamId> for u64 {
    #[inline]
    fn from(id: StreamId) -> Self {
        id.0
    }
}

/// A number of at most 62 bits, as it stands in frames.
impl From<u64> for StreamId {
    #[inline]
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_initiator_direction_and_index() {
        let ids = [
            (Side::Client, Dir::Bi, 0),
            (Side::Server, Dir::Bi, 1),
            (Side::Client, Dir::Uni, 2),
            (Side::Server, Dir::Uni, 3),
        ];
        for (initiator, direction, first) in ids {
            for index in [0, 1, (1 << 60) - 1] {
                let id = StreamId::new(initiator, direction, index);
                assert_eq!(u64::from(id), first + 4 * index);
                assert_eq!(id.initiator(), initiator);
                assert_eq!(id.dir(), direction);
                assert_eq!(id.index(), index);
            }
        }
    }
}
