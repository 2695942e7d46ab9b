//! A fuzz target of the decoding of QUIC: packets, frames and transport parameters.

use apus_quic_protocol::fuzzing;

/// A byte that says what follows: a datagram, with connection IDs of this length in its short headers, the frames of a
/// packet, or transport parameters.
pub fn quic_decoding(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    match kind % 3 {
        0 => assert!(fuzzing::packets_are_within(
            &mut rest.to_vec(),
            usize::from(kind / 3 % 21)
        )),
        1 => assert!(fuzzing::frames_are_within(rest)),
        _ => assert!(fuzzing::transport_parameters_are_kept(rest)),
    }
}
