//! Connection IDs (RFC 9000 section 5.1) that name the endpoint that issued them.
//!
//! | bytes | |
//! | --- | --- |
//! | 0 to 7 | random |
//! | 8 and 9 | the number of the endpoint, masked by a product of the first four bytes |
//! | 10 and 11 | a tag over all before it |
//!
//! The mask is so simple that a classic BPF program can remove it (see [`crate::steering`]). It hides that two
//! connection IDs are of one endpoint from those who look at packets, not from those who do cryptanalysis. The tag
//! tells our connection IDs from those that clients choose, so that packets for unknown ones cost nothing.

use std::sync::Arc;

use apus_quic_protocol::{ConnectionId, ConnectionIdGenerator};
use aws_lc_rs::{hmac, rand};

/// The length of our connection IDs in bytes.
pub(crate) const LENGTH: usize = 12;
/// Where the masked number is.
pub(crate) const NUMBER_AT: usize = 8;
const TAG_AT: usize = 10;

/// The number of an endpoint, which no other endpoint of the process has at the same time.
pub(crate) type EndpointNumber = u16;

/// The keys of mask and tag.
pub(crate) struct ConnectionIdKey {
    multiplier: u32,
    tag: hmac::Key,
}

impl ConnectionIdKey {
    pub(crate) fn new(mask: [u8; 32], tag: hmac::Key) -> Self {
        let [a, b, c, d, ..] = mask;
        Self {
            // An even factor would leave a constant bit in the product.
            multiplier: u32::from_be_bytes([a, b, c, d]) | 1,
            tag,
        }
    }

    /// The factor of the mask, for the BPF program.
    pub(crate) fn multiplier(&self) -> u32 {
        self.multiplier
    }

    /// A number of 16 bits that follows from the first four bytes of a connection ID.
    pub(crate) fn scramble(&self, id: &[u8]) -> u16 {
        let first = id.first_chunk().copied().unwrap_or_default();
        (u32::from_be_bytes(first).wrapping_mul(self.multiplier) >> 16) as u16
    }

    /// The endpoint that a connection ID of ours names. One that a client chose names any.
    pub(crate) fn endpoint(&self, id: &[u8]) -> Option<EndpointNumber> {
        if id.len() != LENGTH {
            return None;
        }
        let masked = id.get(NUMBER_AT..)?.first_chunk().copied()?;
        Some(u16::from_be_bytes(masked) ^ self.scramble(id))
    }

    /// Whether an endpoint with this key issued the connection ID. A wrong one passes once in 65,536 times.
    pub(crate) fn is_ours(&self, id: &[u8]) -> bool {
        id.len() == LENGTH && id.get(TAG_AT..) == Some(&self.tag(id.get(..TAG_AT).unwrap_or(id)))
    }

    fn tag(&self, before: &[u8]) -> [u8; 2] {
        let signature = hmac::sign(&self.tag, before);
        signature
            .as_ref()
            .first_chunk()
            .copied()
            .unwrap_or_default()
    }

    /// The connection ID of an endpoint with these random bytes.
    fn issue(&self, endpoint: EndpointNumber, random: [u8; NUMBER_AT]) -> ConnectionId {
        let number = (endpoint ^ self.scramble(&random)).to_be_bytes();
        let mut id = [0; LENGTH];
        let (before, tag) = id.split_at_mut(TAG_AT);
        let (nonce, masked) = before.split_at_mut(NUMBER_AT);
        nonce.copy_from_slice(&random);
        masked.copy_from_slice(&number);
        tag.copy_from_slice(&self.tag(before));
        ConnectionId::new(&id)
    }
}

/// The destination connection ID of a packet for us: from the field of a long header (RFC 8999 section 5.1), or
/// from the bytes behind the first byte of a short one.
pub(crate) fn destination(packet: &[u8]) -> Option<&[u8]> {
    let (first, rest) = packet.split_first()?;
    if !is_long_header(*first) {
        return rest.get(..LENGTH);
    }
    let (length, rest) = rest.get(4..)?.split_first()?;
    rest.get(..usize::from(*length))
}

/// Whether a packet with this first byte has a long header.
pub(crate) fn is_long_header(first: u8) -> bool {
    first & 0x80 != 0
}

/// Issues the connection IDs of an endpoint.
pub(crate) struct EndpointConnectionIds {
    pub(crate) key: Arc<ConnectionIdKey>,
    pub(crate) endpoint: EndpointNumber,
}

impl ConnectionIdGenerator for EndpointConnectionIds {
    fn generate(&mut self) -> ConnectionId {
        let mut random = [0; NUMBER_AT];
        if rand::fill(&mut random).is_err() {
            // The library aborts the process rather than return an error; with zeros, connections would be refused.
            tracing::error!("no random bytes for a connection ID");
        }
        self.key.issue(self.endpoint, random)
    }

    fn is_valid(&self, id: &[u8]) -> bool {
        self.key.is_ours(id)
    }

    fn length(&self) -> usize {
        LENGTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ConnectionIdKey {
        ConnectionIdKey::new([7; 32], hmac::Key::new(hmac::HMAC_SHA256, &[9; 32]))
    }

    #[test]
    fn an_id_names_its_endpoint_and_is_recognised() {
        for endpoint in [0, 1, 255, 256, u16::MAX] {
            for seed in 0..=255 {
                let id = key().issue(endpoint, [seed; NUMBER_AT]);
                assert_eq!(key().endpoint(&id), Some(endpoint));
                assert!(key().is_ours(&id));
            }
        }
    }

    #[test]
    fn a_change_of_any_byte_is_recognised() {
        let id = key().issue(3, [5; NUMBER_AT]);
        for at in 0..LENGTH {
            let mut changed = id.to_vec();
            changed[at] ^= 1;
            assert!(!key().is_ours(&changed), "byte {at}");
        }
    }

    #[test]
    fn only_ids_of_our_length_can_be_ours() {
        let id = key().issue(3, [5; NUMBER_AT]).to_vec();
        let longer = [&id[..], &[0]].concat();
        for other in [&id[..LENGTH - 1], &longer, &[]] {
            assert!(!key().is_ours(other));
            assert_eq!(key().endpoint(other), None);
        }
    }

    #[test]
    fn ids_of_one_endpoint_have_different_masked_numbers() {
        let numbers: std::collections::HashSet<_> = (0..=255)
            .map(|seed| key().issue(3, [seed; NUMBER_AT])[NUMBER_AT..TAG_AT].to_vec())
            .collect();
        assert!(numbers.len() > 250);
    }

    #[test]
    fn the_destination_is_read_from_long_and_short_headers() {
        let mut long = vec![0xc0, 0, 0, 0, 1, 8];
        long.extend([1, 2, 3, 4, 5, 6, 7, 8, 0]);
        assert_eq!(destination(&long), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        for length in 0..14 {
            assert_eq!(destination(&long[..length]), None);
        }
        let short: Vec<u8> = (0x40..0x40 + 13).collect();
        assert_eq!(destination(&short), Some(&short[1..]));
        assert_eq!(destination(&short[..12]), None);
    }
}
