//! A fuzz target of the QUIC transport against quinn-proto, with the ends and the network of the tests of
//! `apus-quic-protocol`.

#[path = "../../crates/protocol/quic-protocol/tests/it/differential/mod.rs"]
mod differential;
#[path = "../../crates/protocol/quic-protocol/tests/it/harness/mod.rs"]
#[expect(dead_code, reason = "the other tests of quic-protocol use the rest")]
mod harness;

/// The roles, the faults of a network, the limits of both ends, and what the applications do. Both ends see the same streams
/// and the same end of the connection.
pub fn quic_differential(data: &[u8]) {
    differential::run(data);
}
