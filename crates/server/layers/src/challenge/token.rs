//! Tickets, which ask a browser for an answer, and the clearances that it gets for one: signed texts, without a clock and without I/O.

use std::fmt;

use apus_tokens::{NoRandomness, hmac_sha256, is_equal_in_constant_time, random_bytes, sha256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How long a ticket can be answered, in milliseconds.
pub(super) const TICKET_LIFETIME: u64 = 120_000;

/// How much time has to pass before the refresh of the first level counts, in milliseconds. The page asks for a second.
pub(super) const REFRESH_DELAY: u64 = 900;

/// How far the clock of a server that shares the key may be ahead, in milliseconds.
const CLOCK_DIFFERENCE: u64 = 5_000;

/// What a browser has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChallengeLevel {
    /// Come again after a second with a cookie. It needs no JavaScript.
    Refresh = 1,
    /// Run a little script.
    Script = 2,
    /// Find a number with a rare digest.
    Work = 3,
}

impl ChallengeLevel {
    /// All, the lowest first.
    pub const ALL: [Self; 3] = [Self::Refresh, Self::Script, Self::Work];

    /// The level of a number from 1 to 3.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|level| *level as u64 == number)
    }
}

/// The keys of tickets and of clearances, both of one secret.
#[derive(Clone)]
pub struct ChallengeKey {
    tickets: [u8; 32],
    clearances: [u8; 32],
}

impl ChallengeKey {
    /// The keys of a secret, which should be random and of at least 32 bytes. Servers that share it accept the clearances of one another.
    pub fn new(secret: impl AsRef<[u8]>) -> Self {
        let secret = hmac_sha256(b"apus challenge", secret.as_ref());
        Self {
            tickets: hmac_sha256(&secret, b"tickets"),
            clearances: hmac_sha256(&secret, b"clearances"),
        }
    }

    /// Random keys: clearances are lost when the process ends.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> Result<Self, NoRandomness> {
        Ok(Self::new(random_bytes::<32>()?))
    }
}

impl fmt::Debug for ChallengeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChallengeKey(..)")
    }
}

/// Whom a ticket or a clearance is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientOfSite<'a> {
    pub(super) site: &'a str,
    /// The number of the network that is one client.
    pub(super) client: u128,
}

impl ClientOfSite<'_> {
    fn sign(&self, key: &[u8; 32], fields: &[u8]) -> [u8; 32] {
        // The client has a fixed length, the fields have one for each key, and the site is last: no two messages are the same.
        let message = [fields, &self.client.to_be_bytes(), self.site.as_bytes()].concat();
        hmac_sha256(key, &message)
    }
}

/// A question that a client can answer once, for two minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) level: ChallengeLevel,
    /// The zero bits that a digest needs at level 3.
    pub(super) bits: u8,
    /// Milliseconds since 1970.
    pub(super) issued: u64,
    /// Makes each ticket another one.
    nonce: [u8; 16],
}

/// The bytes of a ticket before its signature.
const TICKET_FIELDS: usize = 26;

impl Ticket {
    pub(super) fn new(level: ChallengeLevel, bits: u8, now: u64) -> Result<Self, NoRandomness> {
        Ok(Self {
            level,
            bits,
            issued: now,
            nonce: random_bytes()?,
        })
    }

    fn fields(&self) -> [u8; TICKET_FIELDS] {
        let mut fields = [0; TICKET_FIELDS];
        let parts = [self.level as u8, self.bits]
            .into_iter()
            .chain(self.issued.to_be_bytes())
            .chain(self.nonce);
        for (byte, part) in fields.iter_mut().zip(parts) {
            *byte = part;
        }
        fields
    }

    /// The text that the browser gets.
    pub(super) fn to_text(self, key: &ChallengeKey, client: ClientOfSite<'_>) -> String {
        let fields = self.fields();
        let signature = client.sign(&key.tickets, &fields);
        URL_SAFE_NO_PAD.encode([&fields[..], &signature].concat())
    }

    /// The ticket of a text, if it was made with this key for this client.
    pub(super) fn of_text(
        text: &[u8],
        key: &ChallengeKey,
        client: ClientOfSite<'_>,
    ) -> Option<Self> {
        let bytes: [u8; TICKET_FIELDS + 32] = decoded(text)?;
        let (fields, signature) = bytes.split_first_chunk::<TICKET_FIELDS>()?;
        if !is_equal_in_constant_time(&client.sign(&key.tickets, fields), signature) {
            return None;
        }
        let ([level, bits], rest) = fields.split_first_chunk()?;
        let (issued, nonce) = rest.split_first_chunk()?;
        Some(Self {
            level: ChallengeLevel::from_number(u64::from(*level))?,
            bits: *bits,
            issued: u64::from_be_bytes(*issued),
            nonce: nonce.try_into().ok()?,
        })
    }

    /// Its number among all tickets.
    pub(super) fn id(&self) -> u64 {
        let [id @ .., _, _, _, _, _, _, _, _] = self.nonce;
        u64::from_be_bytes(id)
    }

    /// Whether it can be answered at a time.
    pub(super) fn is_valid_at(&self, now: u64) -> bool {
        let end = self.issued.saturating_add(TICKET_LIFETIME);
        now <= end && self.issued <= now.saturating_add(CLOCK_DIFFERENCE)
    }
}

/// Whether an answer to the text of a ticket is right.
pub(super) fn is_answer(ticket: &Ticket, text: &[u8], answer: Option<&[u8]>, now: u64) -> bool {
    match (ticket.level, answer) {
        (ChallengeLevel::Refresh, None) => now >= ticket.issued.saturating_add(REFRESH_DELAY),
        (ChallengeLevel::Script, Some(answer)) => {
            format!("{:x}", script_answer(text)).as_bytes() == answer
        }
        (ChallengeLevel::Work, Some(answer)) => {
            let is_number =
                (1..=16).contains(&answer.len()) && answer.iter().all(u8::is_ascii_digit);
            is_number
                && zero_bits(&sha256(&[text, b":", answer].concat())) >= u32::from(ticket.bits)
        }
        _ => false,
    }
}

/// What the script of level 2 computes: the hash FNV-1a of 32 bits.
fn script_answer(text: &[u8]) -> u32 {
    text.iter().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// The zero bits at the beginning of a digest.
fn zero_bits(digest: &[u8; 32]) -> u32 {
    let (high, low) = digest.split_at(16);
    let number = |half: &[u8]| half.try_into().map_or(0, u128::from_be_bytes);
    match number(high).leading_zeros() {
        128 => number(low).leading_zeros().saturating_add(128),
        zeros => zeros,
    }
}

/// The proof that a client has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clearance {
    pub(super) level: ChallengeLevel,
    /// The last second since 1970 in which it is valid.
    pub(super) expires: u64,
}

/// The bytes of a clearance before its signature.
const CLEARANCE_FIELDS: usize = 9;

impl Clearance {
    pub(super) fn to_text(self, key: &ChallengeKey, client: ClientOfSite<'_>) -> String {
        let expires = self.expires.to_be_bytes();
        let fields = [&[self.level as u8][..], &expires].concat();
        let signature = client.sign(&key.clearances, &fields);
        URL_SAFE_NO_PAD.encode([&fields[..], &signature].concat())
    }

    /// The clearance of a text, if it was made with this key for this client and has not expired.
    pub(super) fn of_text(
        text: &[u8],
        key: &ChallengeKey,
        client: ClientOfSite<'_>,
        now: u64,
    ) -> Option<Self> {
        let bytes: [u8; CLEARANCE_FIELDS + 32] = decoded(text)?;
        let (fields, signature) = bytes.split_first_chunk::<CLEARANCE_FIELDS>()?;
        if !is_equal_in_constant_time(&client.sign(&key.clearances, fields), signature) {
            return None;
        }
        let (level, expires) = fields.split_first()?;
        let expires = u64::from_be_bytes(expires.try_into().ok()?);
        let level = ChallengeLevel::from_number(u64::from(*level))?;
        (now / 1000 <= expires).then_some(Self { level, expires })
    }
}

/// The bytes of a text of this length, and no other text for the same bytes.
fn decoded<const LENGTH: usize>(text: &[u8]) -> Option<[u8; LENGTH]> {
    // Longer ones are not decoded at all.
    if text.len()
        != LENGTH
            .div_ceil(3)
            .saturating_mul(4)
            .saturating_sub(padding(LENGTH))
    {
        return None;
    }
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// The characters of padding that Base64 of so many bytes would have.
const fn padding(bytes: usize) -> usize {
    match bytes % 3 {
        1 => 2,
        2 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    const CLIENT: ClientOfSite<'static> = ClientOfSite {
        site: "shop",
        client: 7,
    };

    fn key() -> ChallengeKey {
        ChallengeKey::new("a secret of at least thirty-two bytes")
    }

    /// The least answer to a ticket of level 3.
    fn solve(text: &str, bits: u8) -> String {
        let is_found = |answer: &String| {
            zero_bits(&sha256(format!("{text}:{answer}").as_bytes())) >= u32::from(bits)
        };
        (0..)
            .map(|number: u32| number.to_string())
            .find(is_found)
            .unwrap()
    }

    #[test]
    fn a_ticket_is_of_its_client_site_and_key_and_no_byte_of_it_can_be_changed() {
        let ticket = Ticket::new(ChallengeLevel::Work, 9, NOW).unwrap();
        let text = ticket.to_text(&key(), CLIENT);
        let read = |text: &str, client| Ticket::of_text(text.as_bytes(), &key(), client);
        assert_eq!(read(&text, CLIENT), Some(ticket));
        assert_eq!(
            read(
                &text,
                ClientOfSite {
                    client: 8,
                    ..CLIENT
                }
            ),
            None
        );
        assert_eq!(
            read(
                &text,
                ClientOfSite {
                    site: "blog",
                    ..CLIENT
                }
            ),
            None
        );
        let other = ChallengeKey::random().unwrap();
        assert_eq!(Ticket::of_text(text.as_bytes(), &other, CLIENT), None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(read(&changed, CLIENT), None, "{at}");
        }
        for text in [
            "",
            "AAAA",
            &text[1..],
            &format!("{text}A"),
            &format!("{text}=="),
        ] {
            assert_eq!(read(text, CLIENT), None, "{text}");
        }
    }

    #[test]
    fn a_ticket_can_be_answered_for_two_minutes() {
        let ticket = Ticket::new(ChallengeLevel::Refresh, 0, NOW).unwrap();
        for (time, is_valid) in [
            (NOW - CLOCK_DIFFERENCE - 1, false),
            (NOW - CLOCK_DIFFERENCE, true),
            (NOW, true),
            (NOW + TICKET_LIFETIME, true),
            (NOW + TICKET_LIFETIME + 1, false),
        ] {
            assert_eq!(ticket.is_valid_at(time), is_valid, "{time}");
        }
    }

    #[test]
    fn the_refresh_counts_after_its_delay_and_without_an_answer() {
        let ticket = Ticket::new(ChallengeLevel::Refresh, 0, NOW).unwrap();
        let is_right = |answer, time| is_answer(&ticket, b"text", answer, time);
        assert!(!is_right(None, NOW));
        assert!(!is_right(None, NOW + REFRESH_DELAY - 1));
        assert!(is_right(None, NOW + REFRESH_DELAY));
        assert!(!is_right(Some(b""), NOW + REFRESH_DELAY));
    }

    #[test]
    fn the_script_computes_a_hash_of_the_ticket() {
        // The test vectors of the authors of FNV.
        for (text, hash) in [
            ("", 0x811c_9dc5),
            ("a", 0xe40c_292c),
            ("foobar", 0xbf9c_f968),
        ] {
            assert_eq!(script_answer(text.as_bytes()), hash, "{text}");
        }
        let ticket = Ticket::new(ChallengeLevel::Script, 0, NOW).unwrap();
        assert!(is_answer(&ticket, b"foobar", Some(b"bf9cf968"), NOW));
        for wrong in [None, Some(&b""[..]), Some(b"bf9cf969"), Some(b"BF9CF968")] {
            assert!(!is_answer(&ticket, b"foobar", wrong, NOW));
        }
    }

    #[test]
    fn work_needs_the_zero_bits_of_the_ticket_and_not_one_less() {
        let mut digest = [0; 32];
        assert_eq!(zero_bits(&digest), 256);
        for bit in 0..256_usize {
            digest = [0; 32];
            digest[bit / 8] = 0x80 >> (bit % 8);
            assert_eq!(zero_bits(&digest), u32::try_from(bit).unwrap());
        }
        let ticket = Ticket::new(ChallengeLevel::Work, 8, NOW).unwrap();
        let text = ticket.to_text(&key(), CLIENT);
        let answer = solve(&text, 8);
        let is_right = |ticket: &Ticket, answer: &str| {
            is_answer(ticket, text.as_bytes(), Some(answer.as_bytes()), NOW)
        };
        let zeros = zero_bits(&sha256(format!("{text}:{answer}").as_bytes()));
        let with_bits = |bits: u32| Ticket {
            bits: u8::try_from(bits).unwrap(),
            ..ticket
        };
        assert!(is_right(&with_bits(zeros - 1), &answer));
        assert!(is_right(&with_bits(zeros), &answer));
        assert!(!is_right(&with_bits(zeros + 1), &answer));
        for wrong in ["", "-1", " 1", "1e3", "00000000000000000"] {
            assert!(!is_right(&with_bits(0), wrong), "{wrong}");
        }
        // The answer to one ticket is none to another.
        let other = Ticket::new(ChallengeLevel::Work, 40, NOW).unwrap();
        let other_text = other.to_text(&key(), CLIENT);
        assert!(!is_answer(
            &other,
            other_text.as_bytes(),
            Some(answer.as_bytes()),
            NOW
        ));
    }

    #[test]
    fn a_clearance_is_of_its_client_site_key_and_time_and_no_byte_of_it_can_be_changed() {
        let expires = NOW / 1000 + 60;
        let clearance = Clearance {
            level: ChallengeLevel::Script,
            expires,
        };
        let text = clearance.to_text(&key(), CLIENT);
        let read =
            |text: &str, client, now| Clearance::of_text(text.as_bytes(), &key(), client, now);
        for (time, is_valid) in [
            (NOW, true),
            (expires * 1000 + 999, true),
            (expires * 1000 + 1000, false),
        ] {
            let found = read(&text, CLIENT, time);
            assert_eq!(found, is_valid.then_some(clearance), "{time}");
        }
        assert_eq!(
            read(
                &text,
                ClientOfSite {
                    client: 8,
                    ..CLIENT
                },
                NOW
            ),
            None
        );
        assert_eq!(
            read(
                &text,
                ClientOfSite {
                    site: "sho",
                    ..CLIENT
                },
                NOW
            ),
            None
        );
        let other = ChallengeKey::new("another secret of at least thirty-two bytes");
        assert_eq!(
            Clearance::of_text(text.as_bytes(), &other, CLIENT, NOW),
            None
        );
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(read(&changed, CLIENT, NOW), None, "{at}");
        }
        // A ticket is no clearance.
        let ticket = Ticket::new(ChallengeLevel::Work, 0, NOW).unwrap();
        assert_eq!(read(&ticket.to_text(&key(), CLIENT), CLIENT, NOW), None);
    }
}
