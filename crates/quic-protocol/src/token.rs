//! Tokens by which clients prove their addresses (RFC 9000 sections 8.1.2 and 8.1.3).

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;

use crate::connection_id::ConnectionId;
use crate::packet::TAG;
use crate::varint::Reader;
use crate::version::QuicVersion;

/// How long the token of a Retry packet is valid: the time of some round trips.
const RETRY_LIFETIME: Duration = Duration::from_secs(15);
/// How long the token of a NEW_TOKEN frame is valid.
const NEW_TOKEN_LIFETIME: Duration = Duration::from_secs(14 * 24 * 3600);
/// A clock may be slow by this.
const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// The types of tokens.
const RETRY: u8 = 0;
const NEW_TOKEN: u8 = 1;

/// The key of tokens, and which of them were used. Endpoints that share it accept the tokens of one another.
pub struct TokenKey {
    key: LessSafeKey,
    used: Mutex<UsedTokens>,
}

/// What a token proves that this end has issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedToken {
    /// That of a Retry packet, in response to a packet with this destination.
    Retry { original_destination: ConnectionId },
    /// That of a Retry packet, for another address or too old: the client cannot get another one.
    InvalidRetry,
    /// That of a NEW_TOKEN frame.
    NewToken,
}

impl TokenKey {
    /// The key with these bytes; `None` if the cryptographic library fails.
    pub fn new(key: &[u8; 32]) -> Option<Self> {
        Some(Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?),
            used: Mutex::default(),
        })
    }

    /// The token of a Retry packet (section 8.1.2).
    pub(crate) fn retry(
        &self,
        version: QuicVersion,
        time: SystemTime,
        address: SocketAddr,
        original_destination: &ConnectionId,
    ) -> Option<Vec<u8>> {
        let mut contents = vec![RETRY];
        write_address(address.ip(), &mut contents);
        contents.extend_from_slice(&address.port().to_be_bytes());
        contents.extend_from_slice(&seconds(time).to_be_bytes());
        contents.extend_from_slice(original_destination);
        self.seal(version, contents)
    }

    /// The token of a NEW_TOKEN frame (section 8.1.3), which does not depend on the port.
    pub(crate) fn new_token(
        &self,
        version: QuicVersion,
        time: SystemTime,
        address: IpAddr,
    ) -> Option<Vec<u8>> {
        let mut contents = vec![NEW_TOKEN];
        write_address(address, &mut contents);
        contents.extend_from_slice(&seconds(time).to_be_bytes());
        self.seal(version, contents)
    }

    /// What a token proves for a client at this address; `None` if it proves nothing: it is none of ours, of another
    /// version (RFC 9369 section 5), or that of a NEW_TOKEN frame which is too old, for another address, or was used before.
    pub(crate) fn open(
        &self,
        version: QuicVersion,
        time: SystemTime,
        address: SocketAddr,
        token: &[u8],
    ) -> Option<OpenedToken> {
        let (nonce, sealed) = token.split_first_chunk::<NONCE_LEN>()?;
        let mut contents = sealed.to_vec();
        let nonce_of_key = Nonce::assume_unique_for_key(*nonce);
        let contents = self
            .key
            .open_in_place(nonce_of_key, of_version(version), &mut contents)
            .ok()?;
        let mut reader = Reader::new(contents);
        let kind = reader.byte()?;
        let is_for_ip = read_address(&mut reader)? == address.ip();
        let is_for_port = match kind {
            RETRY => u16::from_be_bytes(reader.array()?) == address.port(),
            _ => true,
        };
        let issued = Duration::from_secs(u64::from_be_bytes(reader.array()?));
        let lifetime = match kind {
            RETRY => RETRY_LIFETIME,
            _ => NEW_TOKEN_LIFETIME,
        };
        let age = (time + CLOCK_SKEW).duration_since(UNIX_EPOCH.checked_add(issued)?);
        let is_fresh = age.is_ok_and(|age| age <= lifetime + CLOCK_SKEW);
        if !is_for_ip || !is_for_port || !is_fresh {
            return (kind == RETRY).then_some(OpenedToken::InvalidRetry);
        }
        match kind {
            RETRY => Some(OpenedToken::Retry {
                original_destination: ConnectionId::checked(reader.rest())?,
            }),
            NEW_TOKEN => {
                let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
                used.insert(nonce, time).then_some(OpenedToken::NewToken)
            }
            _ => None,
        }
    }

    /// A token with these contents: a random nonce, the encrypted contents, and a tag.
    fn seal(&self, version: QuicVersion, mut contents: Vec<u8>) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut token = Vec::with_capacity(NONCE_LEN + contents.len() + TAG);
        token.extend_from_slice(&nonce);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, of_version(version), &mut contents)
            .ok()?;
        token.append(&mut contents);
        Some(token)
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey")
    }
}

/// Binds a token to a version.
fn of_version(version: QuicVersion) -> Aad<[u8; 4]> {
    Aad::from(version.number().to_be_bytes())
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn write_address(address: IpAddr, buffer: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            buffer.push(4);
            buffer.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            buffer.push(6);
            buffer.extend_from_slice(&address.octets());
        }
    }
}

fn read_address(reader: &mut Reader<'_>) -> Option<IpAddr> {
    match reader.byte()? {
        4 => Some(IpAddr::from(reader.array::<4>()?)),
        6 => Some(IpAddr::from(reader.array::<16>()?)),
        _ => None,
    }
}

/// The bits of a filter: 1 MiB. With a million tokens, one in 50 that was not used counts as used.
const FILTER_BITS: usize = 1 << 23;
/// The bits of a token in a filter.
const BITS_OF_A_TOKEN: usize = 4;

/// The tokens of NEW_TOKEN frames that were used in the last one to two lifetimes, as Bloom filters: one that was used is
/// always found, one that was not is found rarely. Then the client gets a Retry packet.
#[derive(Default)]
struct UsedTokens {
    /// Those since the start, and those of the lifetime before. They have no memory before the first token.
    current: Vec<u64>,
    previous: Vec<u64>,
    start: Option<SystemTime>,
}

impl UsedTokens {
    /// Adds the token with this nonce; `false` if it was used before.
    fn insert(&mut self, nonce: &[u8; NONCE_LEN], time: SystemTime) -> bool {
        let start = *self.start.get_or_insert(time);
        let age = time.duration_since(start).unwrap_or_default();
        if age >= NEW_TOKEN_LIFETIME {
            self.previous = match age < NEW_TOKEN_LIFETIME * 2 {
                true => std::mem::take(&mut self.current),
                false => Vec::new(),
            };
            self.current = Vec::new();
            self.start = Some(time);
        }
        self.current.resize(FILTER_BITS / 64, 0);
        // The nonce is random: its bytes are hashes. 4 indices of 23 bits are taken from 12 bytes.
        let mut is_known = [true; 2];
        for index in 0..BITS_OF_A_TOKEN {
            let bytes = nonce.get(index * 3..).and_then(<[u8]>::first_chunk::<3>);
            let [a, b, c] = bytes.copied().unwrap_or_default();
            let bit = u32::from_be_bytes([0, a, b, c]) as usize % FILTER_BITS;
            let mask = 1 << (bit % 64);
            if let Some(word) = self.current.get_mut(bit / 64) {
                is_known[0] &= *word & mask != 0;
                *word |= mask;
            }
            is_known[1] &= self
                .previous
                .get(bit / 64)
                .is_some_and(|word| word & mask != 0);
        }
        is_known == [false; 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7);

    const V1: QuicVersion = QuicVersion::V1;

    fn key(byte: u8) -> TokenKey {
        TokenKey::new(&[byte; 32]).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds)
    }

    #[test]
    fn a_token_is_of_one_version() {
        let id = ConnectionId::new(&[1, 2, 3]);
        let tokens = [
            key(1).retry(V1, at(0), ADDRESS, &id).unwrap(),
            key(1).new_token(V1, at(0), ADDRESS.ip()).unwrap(),
        ];
        for token in tokens {
            assert_eq!(key(1).open(QuicVersion::V2, at(0), ADDRESS, &token), None);
            assert!(key(1).open(V1, at(0), ADDRESS, &token).is_some());
        }
    }

    #[test]
    fn the_token_of_a_retry_packet_is_for_an_address_and_a_moment() {
        let id = ConnectionId::new(&[1, 2, 3]);
        let token = key(1).retry(V1, at(0), ADDRESS, &id).unwrap();
        let valid = Some(OpenedToken::Retry {
            original_destination: id,
        });
        let invalid = Some(OpenedToken::InvalidRetry);
        for (seconds, expected) in [(0, valid), (15, valid), (16, invalid)] {
            assert_eq!(key(1).open(V1, at(seconds), ADDRESS, &token), expected);
        }
        let other_port = SocketAddr::new(ADDRESS.ip(), 8);
        assert_eq!(key(1).open(V1, at(0), other_port, &token), invalid);
        assert_eq!(key(2).open(V1, at(0), ADDRESS, &token), None);
    }

    #[test]
    fn the_token_for_another_connection_is_accepted_once() {
        let token = key(1).new_token(V1, at(0), ADDRESS.ip()).unwrap();
        let shared = key(1);
        let other_port = SocketAddr::new(ADDRESS.ip(), 8);
        assert_eq!(
            shared.open(V1, at(1), other_port, &token),
            Some(OpenedToken::NewToken)
        );
        assert_eq!(shared.open(V1, at(2), other_port, &token), None);
        let lifetime = NEW_TOKEN_LIFETIME.as_secs();
        for (seconds, is_valid) in [(lifetime, true), (lifetime + 1, false)] {
            let opened = key(1).open(V1, at(seconds), ADDRESS, &token);
            assert_eq!(opened.is_some(), is_valid);
        }
        let other = SocketAddr::new(std::net::Ipv4Addr::new(127, 0, 0, 2).into(), 7);
        assert_eq!(key(1).open(V1, at(1), other, &token), None);
    }

    #[test]
    fn a_used_token_is_known_into_the_next_lifetime() {
        let mut used = UsedTokens::default();
        let lifetime = NEW_TOKEN_LIFETIME.as_secs();
        assert!(used.insert(&[1; NONCE_LEN], at(0)));
        assert!(used.insert(&[2; NONCE_LEN], at(lifetime)));
        assert!(!used.insert(&[1; NONCE_LEN], at(lifetime + 1)));
        assert!(!used.insert(&[2; NONCE_LEN], at(2 * lifetime)));
        assert!(used.insert(&[3; NONCE_LEN], at(9 * lifetime)));
        assert!(used.insert(&[2; NONCE_LEN], at(9 * lifetime)));
    }

    #[test]
    fn tokens_that_were_changed_are_invalid() {
        let token = key(1).new_token(V1, at(0), ADDRESS.ip()).unwrap();
        for at_byte in 0..token.len() {
            let mut changed = token.clone();
            changed[at_byte] ^= 1;
            assert_eq!(key(1).open(V1, at(0), ADDRESS, &changed), None);
            assert_eq!(key(1).open(V1, at(0), ADDRESS, &token[..at_byte]), None);
        }
    }
}
