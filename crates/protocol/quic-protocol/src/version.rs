//! Versions of QUIC and their negotiation (RFC 9368, RFC 9369).

use crate::varint::Reader;

/// A version of QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuicVersion {
    /// Version 1 (RFC 9000).
    #[default]
    V1,
    /// Version 2 (RFC 9369), which differs in its number, in the types of packets, and in what keys are derived from.
    V2,
}

impl QuicVersion {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// Its number in packets.
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 0x6b33_43cf,
        }
    }

    /// The version with this number.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.number() == number)
    }

    /// The version for TLS, which derives keys by it.
    pub const fn tls(self) -> rustls::quic::Version {
        match self {
            Self::V1 => rustls::quic::Version::V1,
            Self::V2 => rustls::quic::Version::V2,
        }
    }

    /// The key and the nonce of Retry packets (RFC 9001 section 5.8, RFC 9369 section 3.3.3).
    pub(crate) const fn retry_secrets(self) -> ([u8; 16], [u8; 12]) {
        match self {
            Self::V1 => (
                0xbe0c_690b_9f66_575a_1d76_6b54_e368_c84e_u128.to_be_bytes(),
                [
                    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
                ],
            ),
            Self::V2 => (
                0x8fb4_b01b_56ac_48e2_60fb_cbce_ad7c_cc92_u128.to_be_bytes(),
                [
                    0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a,
                ],
            ),
        }
    }
}

/// The transport parameter `version_information` (RFC 9368 section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionInformation {
    /// The number of the version that its sender uses.
    pub(crate) chosen: u32,
    /// The numbers of those that it supports; those of a client begin with the one that it prefers.
    pub(crate) available: Vec<u32>,
}

impl VersionInformation {
    /// That of an end that uses this version and supports these.
    pub(crate) fn new(chosen: QuicVersion, available: &[QuicVersion]) -> Self {
        let numbers = available.iter().map(|version| version.number());
        Self {
            chosen: chosen.number(),
            available: numbers.collect(),
        }
    }

    /// Reads a value; `None` if it is invalid (RFC 9368 section 4).
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let mut numbers = Vec::new();
        while !reader.is_empty() {
            numbers.push(u32::from_be_bytes(reader.array()?));
        }
        if numbers.contains(&0) {
            return None;
        }
        let (chosen, available) = numbers.split_first()?;
        Some(Self {
            chosen: *chosen,
            available: available.to_vec(),
        })
    }

    pub(crate) fn value(&self) -> Vec<u8> {
        let numbers = std::iter::once(&self.chosen).chain(&self.available);
        numbers.flat_map(|number| number.to_be_bytes()).collect()
    }

    /// The version with which a server responds to a client that began with this one: the supported one that the
    /// client prefers. All are compatible with one another (RFC 9369 section 4.1).
    pub(crate) fn select(&self, original: QuicVersion) -> QuicVersion {
        let mut supported = self.available.iter().copied();
        supported
            .find_map(QuicVersion::of_number)
            .unwrap_or(original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_information_is_whole_numbers_other_than_zero() {
        let information = VersionInformation::new(QuicVersion::V1, &QuicVersion::ALL);
        let value = information.value();
        assert_eq!(value.len(), 12);
        assert_eq!(VersionInformation::read(&value), Some(information));
        for value in [
            &value[..0],
            &value[..3],
            &value[..11],
            &[0; 4],
            &[0, 0, 0, 1, 0, 0, 0, 0],
        ] {
            assert_eq!(VersionInformation::read(value), None);
        }
    }

    #[test]
    fn a_server_takes_the_version_that_the_client_prefers() {
        let v2 = QuicVersion::V2.number();
        for (available, selected) in [
            (vec![], QuicVersion::V1),
            (vec![0x1a2a_3a4a, v2, 1], QuicVersion::V2),
            (vec![1, v2], QuicVersion::V1),
            (vec![7], QuicVersion::V1),
        ] {
            let information = VersionInformation {
                chosen: 1,
                available,
            };
            assert_eq!(information.select(QuicVersion::V1), selected);
        }
    }
}
