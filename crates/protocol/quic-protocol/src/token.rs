//! Tokens by which clients prove their addresses (RFC 9000 sections 8.1.2 and 8.1.3).

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};

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
/// How long tokens are encrypted with one key, in seconds. Nonces are random: 2^32 of them are too many for one key, and each
/// packet that gets a Retry packet takes one.
const KEY_PERIOD: u64 = 24 * 3600;
/// The periods in which a token may have been encrypted, before the current one. It is valid for 14 of them.
const KEY_PERIODS: u8 = 15;
/// The types of tokens.
const RETRY: u8 = 0;
const NEW_TOKEN: u8 = 1;

/// The secret of tokens, and which of them were used. Endpoints that share it accept the tokens of one another.
///
/// The key that encrypts tokens follows from the secret and the day. Those of earlier days are accepted as long as their
/// tokens are valid.
pub struct TokenKey {
    secret: hmac::Key,
    used: Mutex<UsedTokens>,
}

/// What a token proves that this end has issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedToken {
    /// That of a Retry packet, in response to a packet with this destination.
    Retry { original_destination: ConnectionId },
    /// That of a Retry packet, for another address or too old: the client cannot get another one.
    InvalidRetry,
    /// That of a NEW_TOKEN frame, which was not used before: see [`TokenKey::consume`].
    NewToken { nonce: [u8; NONCE_LEN] },
}

impl TokenKey {
    /// The secret with these bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self {
            secret: hmac::Key::new(hmac::HMAC_SHA256, secret),
            used: Mutex::default(),
        }
    }

    /// The key of a period.
    fn key(&self, period: u64) -> Option<LessSafeKey> {
        let key = hmac::sign(&self.secret, &period.to_be_bytes());
        let key = UnboundKey::new(&AES_256_GCM, key.as_ref()).ok()?;
        Some(LessSafeKey::new(key))
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
        self.seal(version, time, contents)
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
        self.seal(version, time, contents)
    }

    /// What a token proves for a client at this address; `None` if it proves nothing: it is none of ours, of another
    /// version (RFC 9369 section 5), or that of a NEW_TOKEN frame which is too old, for another address, or was used before.
    /// It is not used by this: the packet that it came in may be forged.
    pub(crate) fn open(
        &self,
        version: QuicVersion,
        time: SystemTime,
        address: SocketAddr,
        token: &[u8],
    ) -> Option<OpenedToken> {
        let (mark, rest) = token.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut contents = sealed.to_vec();
        let nonce_of_key = Nonce::assume_unique_for_key(*nonce);
        // The kind of a token is under the encryption, so that an observer cannot tell clients that come back (section
        // 8.1.3).
        let contents = self
            .key(period_of_mark(*mark, time)?)?
            .open_in_place(nonce_of_key, of_version(version), &mut contents)
            .ok()?;
        let mut reader = Reader::new(contents);
        let kind = reader.byte()?;
        let is_for_ip = read_address(&mut reader)? == address.ip();
        let is_for_port = match kind {
            // The port is the same a round trip later. Days later it is not: NAT gives another one to each connection.
            RETRY => u16::from_be_bytes(reader.array()?) == address.port(),
            _ => true,
        };
        let issued = Duration::from_secs(u64::from_be_bytes(reader.array()?));
        let lifetime = match kind {
            RETRY => RETRY_LIFETIME,
            _ => NEW_TOKEN_LIFETIME,
        };
        // A token of the near future is valid: servers of one name share the secret, and their clocks differ.
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
                let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
                // A token that was used is no proof any more (section 8.1.4). The client is treated as one without a
                // token.
                (!used.contains(nonce)).then_some(OpenedToken::NewToken { nonce: *nonce })
            }
            _ => None,
        }
    }

    /// Uses the token of a NEW_TOKEN frame with this nonce, when a connection begins with it; `false` if it was used before.
    pub(crate) fn consume(&self, nonce: &[u8; NONCE_LEN], time: SystemTime) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.insert(nonce, time)
    }

    /// A token with these contents: the mark of its key, a random nonce, the encrypted contents, and a tag.
    fn seal(
        &self,
        version: QuicVersion,
        time: SystemTime,
        mut contents: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        // At random and not counted: several processes share the secret and nothing else.
        rand::fill(&mut nonce).ok()?;
        let period = seconds(time) / KEY_PERIOD;
        let mut token = Vec::with_capacity(1 + NONCE_LEN + contents.len() + TAG);
        token.push(mark_of_period(period));
        token.extend_from_slice(&nonce);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key(period)?
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

/// The mark by which a token names the period of its key.
fn mark_of_period(period: u64) -> u8 {
    period.to_be_bytes().last().copied().unwrap_or(0)
}

/// The period of a mark: the current one, one before it, or the next one if a clock was ahead.
fn period_of_mark(mark: u8, time: SystemTime) -> Option<u64> {
    let next = seconds(time) / KEY_PERIOD + 1;
    let age = mark_of_period(next).wrapping_sub(mark);
    if age <= KEY_PERIODS + 1 {
        next.checked_sub(age.into())
    } else {
        None
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
    /// Whether the token with this nonce was used.
    fn contains(&self, nonce: &[u8; NONCE_LEN]) -> bool {
        let is_in = |filter: &[u64]| {
            bits_of_nonce(nonce)
                .all(|(word, mask)| filter.get(word).is_some_and(|word| word & mask != 0))
        };
        is_in(&self.current) || is_in(&self.previous)
    }

    /// Adds the token with this nonce; `false` if it was used before.
    fn insert(&mut self, nonce: &[u8; NONCE_LEN], time: SystemTime) -> bool {
        let start = *self.start.get_or_insert(time);
        let age = time.duration_since(start).unwrap_or_default();
        if age >= NEW_TOKEN_LIFETIME {
            self.previous = if age < NEW_TOKEN_LIFETIME * 2 {
                std::mem::take(&mut self.current)
            } else {
                Vec::new()
            };
            self.current = Vec::new();
            self.start = Some(time);
        }
        let is_new = !self.contains(nonce);
        // Allocated with the first token: a server whose clients never come back keeps no megabyte for them.
        self.current.resize(FILTER_BITS / 64, 0);
        for (word, mask) in bits_of_nonce(nonce) {
            if let Some(word) = self.current.get_mut(word) {
                *word |= mask;
            }
        }
        is_new
    }
}

/// The words of a filter and their bits that belong to a nonce. It is random, so that its bytes are hashes: 4 indices of 23
/// bits are taken from 12 bytes.
fn bits_of_nonce(nonce: &[u8; NONCE_LEN]) -> impl Iterator<Item = (usize, u64)> + '_ {
    (0..BITS_OF_A_TOKEN).map(|index| {
        let bytes = nonce.get(index * 3..).and_then(<[u8]>::first_chunk::<3>);
        let [a, b, c] = bytes.copied().unwrap_or_default();
        let bit = u32::from_be_bytes([0, a, b, c]) as usize % FILTER_BITS;
        (bit / 64, 1 << (bit % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7);

    const V1: QuicVersion = QuicVersion::V1;

    fn key(byte: u8) -> TokenKey {
        TokenKey::new(&[byte; 32])
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
        let nonce = token[1..].first_chunk().unwrap();
        assert!(shared.consume(nonce, at(3)));
        assert!(!shared.consume(nonce, at(3)));
        assert_eq!(shared.open(V1, at(4), other_port, &token), None);
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

    /// Anybody who has seen a token could use it up by a packet that was not even decrypted.
    #[test]
    fn a_token_in_a_packet_that_begins_no_connection_stays_valid() {
        let shared = key(1);
        let token = shared.new_token(V1, at(0), ADDRESS.ip()).unwrap();
        for seconds in 1..3 {
            let opened = shared.open(V1, at(seconds), ADDRESS, &token);
            assert!(matches!(opened, Some(OpenedToken::NewToken { .. })));
        }
    }

    #[test]
    fn the_key_of_tokens_changes_each_day_and_the_ones_before_are_accepted() {
        let day = KEY_PERIOD;
        // The first second of a day.
        let start = day - 1_000_000_000 % day;
        let token = |seconds| key(1).new_token(V1, at(seconds), ADDRESS.ip()).unwrap();
        let key_bytes = |seconds| period_of_mark(token(seconds)[0], at(seconds));
        assert_eq!(key_bytes(start), key_bytes(start + day - 1));
        assert_ne!(key_bytes(start), key_bytes(start + day));
        assert_ne!(key_bytes(start), key_bytes(start - 1));
        let lifetime = NEW_TOKEN_LIFETIME.as_secs();
        // The last token of a day is valid on 15 days, and one of a clock that is ahead at once.
        for issued in [start, start + day - 1] {
            for (age, is_valid) in [
                (0, true),
                (day, true),
                (lifetime, true),
                (lifetime + 1, false),
            ] {
                let opened = key(1).open(V1, at(issued + age), ADDRESS, &token(issued));
                assert_eq!(opened.is_some(), is_valid, "{issued} {age}");
            }
        }
        let ahead = key(1).open(V1, at(start - 1), ADDRESS, &token(start));
        assert!(ahead.is_some());
        // 256 days later, the mark is the same again.
        let later = at(start + 256 * day);
        assert_eq!(key(1).open(V1, later, ADDRESS, &token(start)), None);
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
