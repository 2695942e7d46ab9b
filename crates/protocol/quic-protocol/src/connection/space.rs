//! The packet number spaces of a connection (RFC 9000 section 12.3).

use std::time::Instant;

use rustls::quic::Keys;

use crate::assembler::Assembler;
use crate::packet::Space;
use crate::recovery::SentPackets;
use crate::streams::RetransmitBuffer;

use super::received::ReceivedPackets;
use super::record::SentFrames;

/// A packet number space, with the CRYPTO data of its encryption level.
pub(crate) struct NumberSpace {
    pub(crate) received: ReceivedPackets,
    pub(crate) sent: SentPackets<SentFrames>,
    pub(crate) crypto_received: Assembler,
    pub(crate) crypto_sent: RetransmitBuffer,
    pub(crate) largest_acknowledged: Option<u64>,
    /// When the next packet is lost.
    pub(crate) next_loss_time: Option<Instant>,
    /// Packets to send although the congestion window is full (RFC 9002 section 6.2.4).
    pub(crate) probes: u8,
}

impl NumberSpace {
    pub(crate) fn new() -> Self {
        Self {
            received: ReceivedPackets::default(),
            sent: SentPackets::new(),
            crypto_received: Assembler::default(),
            crypto_sent: RetransmitBuffer::default(),
            largest_acknowledged: None,
            next_loss_time: None,
            probes: 0,
        }
    }
}

/// An encryption level of the handshake.
pub(crate) struct HandshakeSpace {
    pub(crate) keys: Keys,
    pub(crate) space: NumberSpace,
}

/// The spaces. Those of the handshake are gone when their keys are discarded.
pub(crate) struct Spaces {
    // In boxes: they are gone after the first round trips, and a server has many idle connections.
    pub(crate) initial: Option<Box<HandshakeSpace>>,
    pub(crate) handshake: Option<Box<HandshakeSpace>>,
    pub(crate) data: NumberSpace,
}

impl Spaces {
    #[inline]
    pub(crate) fn get(&self, space: Space) -> Option<&NumberSpace> {
        match space {
            Space::Initial => self.initial.as_ref().map(|level| &level.space),
            Space::Handshake => self.handshake.as_ref().map(|level| &level.space),
            Space::Data => Some(&self.data),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, space: Space) -> Option<&mut NumberSpace> {
        match space {
            Space::Initial => self.initial.as_mut().map(|level| &mut level.space),
            Space::Handshake => self.handshake.as_mut().map(|level| &mut level.space),
            Space::Data => Some(&mut self.data),
        }
    }

    /// The bytes of all packets that are neither acknowledged nor lost.
    #[inline]
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        let of = |level: &Option<Box<HandshakeSpace>>| {
            level
                .as_ref()
                .map_or(0, |level| level.space.sent.bytes_in_flight())
        };
        self.data.sent.bytes_in_flight() + of(&self.initial) + of(&self.handshake)
    }

    /// Whether only that of Application Data is left.
    #[inline]
    pub(crate) fn is_handshake_over(&self) -> bool {
        self.initial.is_none() && self.handshake.is_none()
    }
}
