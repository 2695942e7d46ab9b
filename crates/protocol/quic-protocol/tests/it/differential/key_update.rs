//! When quinn-proto may update its keys.
//!
//! quinn-proto 0.11 follows an update of the peer, and updates its keys again before the peer has acknowledged a packet with
//! the first ones, which RFC 9001 section 6.1 forbids: the peer, which has seen no packet of the phase between, cannot read
//! anything any more.

use std::collections::HashSet;

use apus_quic_protocol::Side;

use super::super::harness::network::Datagram;

/// An update of our keys until our end has a packet with which quinn-proto has followed it.
#[derive(Debug)]
pub(crate) struct KeyUpdate {
    ours: Side,
    /// What our end has sent since the update, and after one of these has arrived, what quinn-proto has sent since.
    datagrams: HashSet<Vec<u8>>,
    is_followed: bool,
}

impl KeyUpdate {
    pub(crate) fn new(ours: Side) -> Self {
        Self {
            ours,
            datagrams: HashSet::new(),
            is_followed: false,
        }
    }

    pub(crate) fn on_sent(&mut self, datagram: &Datagram) {
        let sender = if self.is_followed {
            !self.ours
        } else {
            self.ours
        };
        if datagram.sender == sender {
            self.datagrams.insert(datagram.bytes.clone());
        }
    }

    /// Returns whether the update is over. A datagram that was changed on its way counts for nothing.
    pub(crate) fn on_arrival(&mut self, datagram: &Datagram) -> bool {
        if !self.datagrams.contains(&datagram.bytes) {
            return false;
        }
        self.datagrams.clear();
        std::mem::replace(&mut self.is_followed, true)
    }
}
