//! The negotiation of permessage-deflate (RFC 7692 section 7.1; RFC 6455 section 9.1).

use std::fmt;

use apus_http::list;

/// What this end wants of compression.
///
/// A context that is kept compresses short messages better, as each may refer to those before it. It
/// costs a quarter of a megabyte a connection where it sends, 40 KiB where it receives, and what is
/// sent to many has to be compressed for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// From 1, fast, to 9, small.
    pub level: u32,
    /// Messages of fewer bytes are sent as they are.
    pub min_length: usize,
    /// Whether the context of what is sent is kept from one message to the next.
    pub keep_sent_context: bool,
    /// Whether the peer may keep its context.
    pub keep_received_context: bool,
}

impl Default for Compression {
    /// Level 3 for messages of at least 256 bytes, without contexts.
    fn default() -> Self {
        Self {
            level: 3,
            min_length: 256,
            keep_sent_context: false,
            keep_received_context: false,
        }
    }
}

/// How the messages of one direction may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The size of the window as a power of two.
    pub(super) bits: u8,
    /// Whether a message may refer to those before it.
    pub(super) keeps_context: bool,
}

impl Window {
    /// What allows one compressed form of a message for many connections.
    pub(super) const SHARED: Self = Self {
        bits: MAX_BITS,
        keeps_context: false,
    };
}

const MAX_BITS: u8 = 15;
/// zlib cannot compress with less.
const MIN_BITS: u8 = 9;
const NAME: &[u8] = b"permessage-deflate";

/// What both ends settled on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    pub(super) sends: Window,
    pub(super) receives: Window,
    pub(super) level: u32,
    pub(super) min_length: usize,
}

/// A server answered an offer with something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAnswer;

impl fmt::Display for InvalidAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server uses extensions that it was not offered")
    }
}

impl std::error::Error for InvalidAnswer {}

impl Compression {
    /// Takes the first offer of a client that is possible. `offers` are the values of
    /// `Sec-WebSocket-Extensions`; gives what to answer in that field.
    pub fn accept<'a>(
        &self,
        offers: impl Iterator<Item = &'a [u8]>,
    ) -> Option<(Agreement, String)> {
        offers
            .flat_map(list::quoted_members)
            .filter_map(Parameters::parse)
            .find_map(|offer| self.accept_one(&offer))
    }

    fn accept_one(&self, offer: &Parameters) -> Option<(Agreement, String)> {
        let sends = Window {
            bits: match offer.server_bits {
                Bits::Absent => MAX_BITS,
                Bits::Given(bits @ MIN_BITS..) => bits,
                Bits::Given(_) | Bits::Open => return None,
            },
            keeps_context: self.keep_sent_context && !offer.server_alone,
        };
        let receives = Window {
            bits: MAX_BITS,
            keeps_context: self.keep_received_context && !offer.client_alone,
        };
        let mut answer = String::from("permessage-deflate");
        if !sends.keeps_context {
            answer.push_str("; server_no_context_takeover");
        }
        if !receives.keeps_context {
            answer.push_str("; client_no_context_takeover");
        }
        if offer.server_bits != Bits::Absent {
            answer.push_str("; server_max_window_bits=");
            answer.push_str(&sends.bits.to_string());
        }
        Some((self.agreement(sends, receives), answer))
    }

    /// What a client offers in `Sec-WebSocket-Extensions`.
    pub fn offer(&self) -> String {
        let mut offer = String::from("permessage-deflate; client_max_window_bits");
        if !self.keep_sent_context {
            offer.push_str("; client_no_context_takeover");
        }
        if !self.keep_received_context {
            offer.push_str("; server_no_context_takeover");
        }
        offer
    }

    /// What a server made of [`Compression::offer`]. `answers` are the values of its
    /// `Sec-WebSocket-Extensions`; `None` if it does not compress.
    ///
    /// # Errors
    /// The answer does not fit the offer. The connection must not be used (RFC 6455 section 4.1).
    pub fn agreed<'a>(
        &self,
        answers: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Agreement>, InvalidAnswer> {
        let mut members = answers.flat_map(list::quoted_members);
        let Some(answer) = members.next() else {
            return Ok(None);
        };
        let answer = Parameters::parse(answer).ok_or(InvalidAnswer)?;
        if members.next().is_some() || (!self.keep_received_context && !answer.server_alone) {
            return Err(InvalidAnswer);
        }
        let sends = Window {
            bits: match answer.client_bits {
                Bits::Absent => MAX_BITS,
                Bits::Given(bits @ MIN_BITS..) => bits,
                Bits::Given(_) | Bits::Open => return Err(InvalidAnswer),
            },
            keeps_context: self.keep_sent_context && !answer.client_alone,
        };
        let receives = Window {
            bits: match answer.server_bits {
                Bits::Absent => MAX_BITS,
                Bits::Given(bits) => bits,
                Bits::Open => return Err(InvalidAnswer),
            },
            keeps_context: !answer.server_alone,
        };
        Ok(Some(self.agreement(sends, receives)))
    }

    fn agreement(&self, sends: Window, receives: Window) -> Agreement {
        Agreement {
            sends,
            receives,
            level: self.level,
            min_length: self.min_length,
        }
    }
}

/// A `*_max_window_bits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Bits {
    #[default]
    Absent,
    /// Without a value, as a client may offer.
    Open,
    Given(u8),
}

/// The parameters of one permessage-deflate.
#[derive(Debug, Default)]
struct Parameters {
    server_alone: bool,
    client_alone: bool,
    server_bits: Bits,
    client_bits: Bits,
}

impl Parameters {
    /// Reads an extension with its parameters; `None` if it is another, or has a parameter that is
    /// unknown, twice there, or has an invalid value (RFC 7692 section 7.1).
    fn parse(extension: &[u8]) -> Option<Self> {
        let (name, parameters) = list::parameters(extension);
        if name != NAME {
            return None;
        }
        let mut known = Self::default();
        for part in parameters {
            let (name, value) = match part.iter().position(|byte| *byte == b'=') {
                Some(at) => {
                    let (name, value) = part.split_at_checked(at)?;
                    (
                        name.trim_ascii(),
                        Some(unquoted(value.get(1..)?.trim_ascii())),
                    )
                }
                None => (part, None),
            };
            match (name, value) {
                (b"server_no_context_takeover", None) if !known.server_alone => {
                    known.server_alone = true;
                }
                (b"client_no_context_takeover", None) if !known.client_alone => {
                    known.client_alone = true;
                }
                (b"server_max_window_bits", Some(value)) if known.server_bits == Bits::Absent => {
                    known.server_bits = Bits::Given(bits(value)?);
                }
                (b"client_max_window_bits", value) if known.client_bits == Bits::Absent => {
                    known.client_bits = match value {
                        Some(value) => Bits::Given(bits(value)?),
                        None => Bits::Open,
                    };
                }
                _ => return None,
            }
        }
        Some(known)
    }
}

/// A number from 8 to 15 without leading zeros.
fn bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit.saturating_sub(b'0')),
        [b'1', digit @ b'0'..=b'5'] => Some(digit.saturating_sub(b'0').saturating_add(10)),
        _ => None,
    }
}

/// The value without quotes around it.
fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}
