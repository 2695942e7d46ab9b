//! Properties of what bytes of a peer are decoded to, for fuzz targets.

use crate::frame::QuicFrame;
use crate::packet::Packet;
use crate::stream_id::Side;
use crate::transport_parameters::TransportParameters;
use crate::varint::{self, Reader};

/// Whether the packets of a datagram are disjoint parts of it, in order, and their tokens and numbers are in them.
pub fn packets_are_within(datagram: &mut [u8], id_length: usize) -> bool {
    let mut rest = datagram;
    while !rest.is_empty() {
        let before = rest.len();
        let Ok((packet, after)) = Packet::parse(rest, id_length) else {
            return true;
        };
        let size = packet.bytes.len();
        let is_within = packet.number_at <= size
            && packet.token.start <= packet.token.end
            && packet.token.end <= size
            && size > 0
            && size + after.len() == before;
        if !is_within {
            return false;
        }
        rest = after;
    }
    true
}

/// Whether each frame of a packet takes bytes of it, and has no data but these; and whether the ranges of an ACK frame are
/// in order, with gaps between them.
pub fn frames_are_within(payload: &[u8]) -> bool {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        let before = reader.remaining();
        let Ok(frame) = QuicFrame::read(&mut reader) else {
            return true;
        };
        let size = before - reader.remaining();
        let is_within = match &frame {
            QuicFrame::Stream(stream) => stream.data.len() < size,
            QuicFrame::Crypto { data, .. } => data.len() < size,
            QuicFrame::NewToken(token) => !token.is_empty() && token.len() < size,
            QuicFrame::Close { reason, .. } => reason.len() < size,
            QuicFrame::Ack(ack) => {
                let mut end = u64::MAX;
                ack.largest <= varint::MAX
                    && ack.ranges().all(|range| {
                        let is_below = range.start() <= range.end() && *range.end() < end;
                        end = range.start().saturating_sub(1);
                        is_below
                    })
            }
            _ => size > 0,
        };
        if !is_within {
            return false;
        }
    }
    true
}

/// Whether valid transport parameters of either side are read again as they were written.
pub fn transport_parameters_are_kept(bytes: &[u8]) -> bool {
    [Side::Client, Side::Server].into_iter().all(|sender| {
        let Ok(mut parameters) = TransportParameters::read(sender, bytes) else {
            return true;
        };
        // This end never sends it.
        parameters.preferred = None;
        let mut written = Vec::new();
        parameters.write(&mut written);
        TransportParameters::read(sender, &written).is_ok_and(|again| again == parameters)
    })
}
