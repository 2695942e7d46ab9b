//! The keys of 1-RTT packets and their updates (RFC 9001 section 6).

use rustls::quic::{HeaderProtectionKey, Keys, PacketKey, PacketKeySet, Secrets};

use crate::error::{TransportError, TransportErrorCode};
use crate::packet::{Packet, Unprotected};

/// The most packets with one key, which is the limit of AES-GCM (RFC 9001 section 6.6).
// With full packets, a key lasts for a minute and a half at 1 Gbit/s.
const MAX_PACKETS: u64 = 1 << 23;

/// The keys of 1-RTT packets.
pub(crate) struct OneRttKeys {
    pub(crate) local_header: Box<dyn HeaderProtectionKey>,
    pub(crate) remote_header: Box<dyn HeaderProtectionKey>,
    pub(crate) local: Box<dyn PacketKey>,
    remote: Box<dyn PacketKey>,
    /// The keys after the next update, once a packet seems to need them.
    next: Option<PacketKeySet>,
    secrets: Secrets,
    pub(crate) phase: bool,
    previous: Option<PreviousKey>,
    /// Packets that were sent with the current key.
    sent: u64,
    /// The first packet number that was sent with the current key.
    first_sent: u64,
    /// Whether the peer has acknowledged a packet with the current key.
    is_confirmed: bool,
    /// Packets that could not be decrypted, with any key.
    failures: u64,
}

/// The key before the last update.
struct PreviousKey {
    key: Box<dyn PacketKey>,
    /// The smallest packet number that was received with the current key.
    end: Option<u64>,
}

/// A packet that was decrypted.
pub(crate) struct Decrypted<'a> {
    pub(crate) payload: &'a [u8],
    /// Whether it is the first one with a new key: the previous one is discarded some time after.
    pub(crate) is_first_with_key: bool,
}

impl OneRttKeys {
    pub(crate) fn new(keys: Keys, secrets: Secrets) -> Self {
        Self {
            local_header: keys.local.header,
            remote_header: keys.remote.header,
            local: keys.local.packet,
            remote: keys.remote.packet,
            next: None,
            secrets,
            phase: false,
            previous: None,
            sent: 0,
            first_sent: 0,
            is_confirmed: false,
            failures: 0,
        }
    }

    /// Decrypts a packet; `None` if it is not authentic. `expected` follows the largest number that was received, and
    /// `next_number` the largest that was sent.
    pub(crate) fn decrypt<'a>(
        &mut self,
        packet: &'a mut Packet<'_>,
        unprotected: Unprotected,
        number: u64,
        (expected, next_number): (u64, u64),
    ) -> Result<Option<Decrypted<'a>>, TransportError> {
        let mut is_first_with_key = false;
        let is_current = unprotected.key_phase() == self.phase;
        let previous = self
            .previous
            .as_mut()
            .filter(|previous| previous.end.is_none_or(|end| number < end));
        if let Some(previous) = previous {
            if !is_current {
                let Some(payload) = packet.decrypt(&*previous.key, unprotected, number) else {
                    return self.fail();
                };
                return Ok(Some(Decrypted {
                    payload,
                    is_first_with_key,
                }));
            }
            // The peer has followed an update of this end.
            is_first_with_key = previous.end.is_none();
        } else if !is_current {
            return self.decrypt_with_next(packet, unprotected, number, (expected, next_number));
        }
        let Some(payload) = packet.decrypt(&*self.remote, unprotected, number) else {
            return self.fail();
        };
        if is_first_with_key && let Some(previous) = &mut self.previous {
            previous.end = Some(number);
        }
        Ok(Some(Decrypted {
            payload,
            is_first_with_key,
        }))
    }

    /// Decrypts a packet with which the peer updates its key (section 6.2).
    fn decrypt_with_next<'a>(
        &mut self,
        packet: &'a mut Packet<'_>,
        unprotected: Unprotected,
        number: u64,
        (expected, next_number): (u64, u64),
    ) -> Result<Option<Decrypted<'a>>, TransportError> {
        let next = self
            .next
            // They are kept if the packet is forged, so that flipped bits do not make this end derive keys for each
            // packet.
            .get_or_insert_with(|| self.secrets.next_packet_keys());
        let Some(payload) = packet.decrypt(&*next.remote, unprotected, number) else {
            return self.fail();
        };
        // The peer may update only after it has got an acknowledgement with its current key.
        // After the decryption: a forged packet must not end the connection.
        let is_updating = self
            .previous
            .as_ref()
            .is_some_and(|previous| previous.end.is_none());
        // A later packet had the old key (section 6.4).
        if is_updating || number < expected {
            return Err(TransportError::new(
                TransportErrorCode::KEY_UPDATE_ERROR,
                "the key was updated out of order",
            ));
        }
        self.advance(next_number, Some(number));
        Ok(Some(Decrypted {
            payload,
            is_first_with_key: true,
        }))
    }

    /// Updates the keys, if that is allowed now (section 6.1). Returns whether it is.
    pub(crate) fn update(&mut self, next_number: u64) -> bool {
        // An update before the peer has acknowledged the last one could leave the ends two phases apart, which one bit
        // cannot tell.
        let is_allowed = self.previous.is_none() && self.is_confirmed;
        if is_allowed {
            self.advance(next_number, None);
        }
        is_allowed
    }

    fn advance(&mut self, next_number: u64, end: Option<u64>) {
        let next = self
            .next
            .take()
            .unwrap_or_else(|| self.secrets.next_packet_keys());
        self.local = next.local;
        let key = std::mem::replace(&mut self.remote, next.remote);
        self.previous = Some(PreviousKey { key, end });
        self.phase = !self.phase;
        self.sent = 0;
        self.first_sent = next_number;
        self.is_confirmed = false;
    }

    /// Discards the key before the last update.
    pub(crate) fn discard_previous(&mut self) {
        self.previous = None;
    }

    /// The peer has acknowledged this packet.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, largest: u64) {
        self.is_confirmed |= largest >= self.first_sent && self.sent > 0;
    }

    /// Counts a packet that is sent.
    ///
    /// # Errors
    /// The key is used up, and the peer does not let this end update it (section 6.6).
    #[inline]
    pub(crate) fn count_sent(&mut self, number: u64) -> Result<(), TransportError> {
        self.sent += 1;
        let most = MAX_PACKETS.min(self.local.confidentiality_limit());
        if self.sent > most / 2 && !self.update(number + 1) && self.sent >= most {
            return Err(aead_limit());
        }
        Ok(())
    }

    fn fail<T>(&mut self) -> Result<Option<T>, TransportError> {
        self.failures += 1;
        if self.failures >= self.remote.integrity_limit() {
            Err(aead_limit())
        } else {
            Ok(None)
        }
    }
}

fn aead_limit() -> TransportError {
    TransportError::new(
        TransportErrorCode::AEAD_LIMIT_REACHED,
        "the keys are used up",
    )
}
