//! Stream identifiers (RFC 9000 section 2.1) as the numbers of the codec, and as the type of QUIC.

use apus_quic::{Dir, Side, StreamId};

/// The identifier of QUIC.
pub fn stream_id(number: u64) -> StreamId {
    let side = match number & 0x1 {
        0 => Side::Client,
        _ => Side::Server,
    };
    let direction = match number & 0x2 {
        0 => Dir::Bi,
        _ => Dir::Uni,
    };
    StreamId::new(side, direction, number >> 2)
}

/// The number.
pub fn number_of(id: StreamId) -> u64 {
    let side = match id.initiator() {
        Side::Client => 0x0,
        Side::Server => 0x1,
    };
    let direction = match id.dir() {
        Dir::Bi => 0x0,
        Dir::Uni => 0x2,
    };
    id.index() << 2 | direction | side
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_identifiers_are_the_same() {
        for number in [0, 1, 2, 3, 4, 7, 0xffff_fffc, (1 << 62) - 1] {
            assert_eq!(number_of(stream_id(number)), number);
        }
    }
}
