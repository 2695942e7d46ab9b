//! The negotiation of permessage-deflate (RFC 7692 section 7.1; RFC 6455 section 9.1).

use std::fmt;

use apus_http::list;

/// The compression settings of one end.
///
/// A kept context compresses short messages better, as each may refer to previous ones. It costs 256 KiB for
/// each connection where it sends and 40 KiB where it receives, and a message to many connections has to be
/// compressed for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The compression level, from 1 (fastest) to 9 (smallest).
    pub level: u32,
    /// The length in bytes below which messages are sent uncompressed.
    pub min_length: usize,
    /// Whether the context of sent messages is kept from one message to the next.
    pub keep_sent_context: bool,
    /// Whether the peer may keep the context of its messages.
    pub keep_received_context: bool,
}

impl Default for Compression {
    /// Level 3 for messages of at least 256 bytes, without kept contexts.
    fn default() -> Self {
        Self {
            level: 3,
            min_length: 256,
            keep_sent_context: false,
            keep_received_context: false,
        }
    }
}

/// The compression window of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The size of the window as a power of two.
    pub(super) bits: u8,
    /// Whether a message may refer to previous ones.
    pub(super) keeps_context: bool,
}

impl Window {
    /// The window for which a message can be compressed once for many connections.
    pub(super) const SHARED: Self = Self {
        bits: MAX_BITS,
        keeps_context: false,
    };
}

const MAX_BITS: u8 = 15;
/// The minimum with which zlib can compress.
const MIN_BITS: u8 = 9;
const NAME: &[u8] = b"permessage-deflate";

/// The memory of a compressor and of a decompressor whose context is kept, in bytes.
const COMPRESSOR: usize = 256 << 10;
const DECOMPRESSOR: usize = 40 << 10;

/// The negotiated parameters of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateConfig {
    pub(super) sends: Window,
    pub(super) receives: Window,
    pub(super) level: u32,
    pub(super) min_length: usize,
}

/// The extensions in a server's response were not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidExtensionResponse;

impl fmt::Display for InvalidExtensionResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server uses extensions that it was not offered")
    }
}

impl std::error::Error for InvalidExtensionResponse {}

impl DeflateConfig {
    /// The bytes of memory that a connection takes for contexts which are kept from one message to the next.
    pub fn context_memory(&self) -> usize {
        let sends = if self.sends.keeps_context {
            COMPRESSOR
        } else {
            0
        };
        let receives = if self.receives.keeps_context {
            DECOMPRESSOR
        } else {
            0
        };
        sends.saturating_add(receives)
    }
}

impl Compression {
    /// The same settings, without contexts that are kept.
    #[must_use]
    pub fn without_contexts(mut self) -> Self {
        (self.keep_sent_context, self.keep_received_context) = (false, false);
        self
    }

    /// Accepts the first offer of a client that is supported. `offers` are the values of
    /// `Sec-WebSocket-Extensions`; returns the value of that field in the response, too.
    pub fn accept<'a>(
        &self,
        offers: impl Iterator<Item = &'a [u8]>,
    ) -> Option<(DeflateConfig, String)> {
        offers
            .flat_map(list::quoted_members)
            .filter_map(DeflateParameters::parse)
            .find_map(|offer| self.accept_one(&offer))
    }

    fn accept_one(&self, offer: &DeflateParameters) -> Option<(DeflateConfig, String)> {
        let sends = Window {
            bits: match offer.server_bits {
                WindowBits::Absent => MAX_BITS,
                WindowBits::Given(bits @ MIN_BITS..) => bits,
                WindowBits::Given(_) | WindowBits::Open => return None,
            },
            keeps_context: self.keep_sent_context && !offer.server_no_context_takeover,
        };
        let receives = Window {
            bits: MAX_BITS,
            keeps_context: self.keep_received_context && !offer.client_no_context_takeover,
        };
        let mut response = String::from("permessage-deflate");
        if !sends.keeps_context {
            response.push_str("; server_no_context_takeover");
        }
        if !receives.keeps_context {
            response.push_str("; client_no_context_takeover");
        }
        if offer.server_bits != WindowBits::Absent {
            response.push_str("; server_max_window_bits=");
            response.push_str(&sends.bits.to_string());
        }
        Some((self.config(sends, receives), response))
    }

    /// The offer of a client in `Sec-WebSocket-Extensions`.
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

    /// Reads a server's response to [`Compression::offer`]. `values` come from its
    /// `Sec-WebSocket-Extensions`; `None` if it does not compress.
    ///
    /// # Errors
    /// The response does not match the offer. The connection must not be used (RFC 6455 section 4.1).
    pub fn read_response<'a>(
        &self,
        values: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<DeflateConfig>, InvalidExtensionResponse> {
        let mut members = values.flat_map(list::quoted_members);
        let Some(response) = members.next() else {
            return Ok(None);
        };
        let response = DeflateParameters::parse(response).ok_or(InvalidExtensionResponse)?;
        let is_unwanted = !self.keep_received_context && !response.server_no_context_takeover;
        if members.next().is_some() || is_unwanted {
            return Err(InvalidExtensionResponse);
        }
        let sends = Window {
            bits: match response.client_bits {
                WindowBits::Absent => MAX_BITS,
                WindowBits::Given(bits @ MIN_BITS..) => bits,
                WindowBits::Given(_) | WindowBits::Open => return Err(InvalidExtensionResponse),
            },
            keeps_context: self.keep_sent_context && !response.client_no_context_takeover,
        };
        let receives = Window {
            bits: match response.server_bits {
                WindowBits::Absent => MAX_BITS,
                WindowBits::Given(bits) => bits,
                WindowBits::Open => return Err(InvalidExtensionResponse),
            },
            keeps_context: !response.server_no_context_takeover,
        };
        Ok(Some(self.config(sends, receives)))
    }

    fn config(&self, sends: Window, receives: Window) -> DeflateConfig {
        DeflateConfig {
            sends,
            receives,
            level: self.level,
            min_length: self.min_length,
        }
    }
}

/// The value of a `*_max_window_bits` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WindowBits {
    #[default]
    Absent,
    /// The parameter without a value, as a client may offer it.
    Open,
    Given(u8),
}

/// The parameters of one permessage-deflate.
#[derive(Debug, Default)]
struct DeflateParameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_bits: WindowBits,
    client_bits: WindowBits,
}

impl DeflateParameters {
    /// Parses an extension with its parameters; `None` if it is another one, or a parameter is unknown,
    /// repeated or invalid (RFC 7692 section 7.1).
    fn parse(extension: &[u8]) -> Option<Self> {
        let (name, parameters) = list::parameters(extension);
        if name != NAME {
            return None;
        }
        let mut parsed = Self::default();
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
                (b"server_no_context_takeover", None) if !parsed.server_no_context_takeover => {
                    parsed.server_no_context_takeover = true;
                }
                (b"client_no_context_takeover", None) if !parsed.client_no_context_takeover => {
                    parsed.client_no_context_takeover = true;
                }
                (b"server_max_window_bits", Some(value))
                    if parsed.server_bits == WindowBits::Absent =>
                {
                    parsed.server_bits = WindowBits::Given(bits(value)?);
                }
                (b"client_max_window_bits", value) if parsed.client_bits == WindowBits::Absent => {
                    parsed.client_bits = match value {
                        Some(value) => WindowBits::Given(bits(value)?),
                        None => WindowBits::Open,
                    };
                }
                _ => return None,
            }
        }
        Some(parsed)
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
