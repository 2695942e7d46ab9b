//! Frames and their heads (RFC 6455 section 5.2).

use bytes::{BufMut, Bytes, BytesMut};

use super::WebSocketProtocolError;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Whether it is the last frame of its message.
    pub(super) is_final: bool,
    /// Whether the message that begins with it is compressed (RFC 7692 section 6).
    pub(super) is_compressed: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<[u8; 4]>,
    /// The length of the payload in bytes.
    pub(super) len: u64,
}

const FINAL: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x30;
const MASKED: u8 = 0x80;

impl FrameHead {
    /// The maximum length of a head in bytes.
    pub(super) const MAX_LEN: usize = 14;
    /// The maximum length of a control frame's payload (RFC 6455 section 5.5).
    const MAX_CONTROL: u8 = 125;

    /// The head of an unfragmented frame.
    pub(super) fn whole(opcode: Opcode, len: usize) -> Self {
        Self {
            is_final: true,
            is_compressed: false,
            opcode,
            mask: None,
            len: len as u64,
        }
    }

    /// Parses the head at the front of `input`, and returns its length, too; `None` while it is incomplete.
    /// Errors are reported as early as possible.
    pub(super) fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, WebSocketProtocolError> {
        let Some((first, rest)) = input.split_first() else {
            return Ok(None);
        };
        if first & RESERVED != 0 {
            return Err(WebSocketProtocolError::ReservedBits);
        }
        let opcode = Opcode::of(first & 0x0f).ok_or(WebSocketProtocolError::ReservedOpcode)?;
        let is_final = first & FINAL != 0;
        if opcode.is_control() && !is_final {
            return Err(WebSocketProtocolError::FragmentedControl);
        }
        let Some((second, rest)) = rest.split_first() else {
            return Ok(None);
        };
        let short = second & !MASKED;
        if opcode.is_control() && short > Self::MAX_CONTROL {
            return Err(WebSocketProtocolError::LongControl);
        }
        let Some((len, rest)) = length(short, rest)? else {
            return Ok(None);
        };
        let (mask, rest) = match (second & MASKED, rest.split_first_chunk()) {
            (0, _) => (None, rest),
            (_, Some((key, rest))) => (Some(*key), rest),
            (_, None) => return Ok(None),
        };
        let head = Self {
            is_final,
            is_compressed: first & COMPRESSED != 0,
            opcode,
            mask,
            len,
        };
        Ok(Some((head, input.len().saturating_sub(rest.len()))))
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        let mut first = self.opcode.number();
        if self.is_final {
            first |= FINAL;
        }
        if self.is_compressed {
            first |= COMPRESSED;
        }
        out.put_u8(first);
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        match (u8::try_from(self.len), u16::try_from(self.len)) {
            (Ok(len @ 0..=125), _) => out.put_u8(masked | len),
            (_, Ok(len)) => {
                out.put_u8(masked | 126);
                out.put_u16(len);
            }
            _ => {
                out.put_u8(masked | 127);
                out.put_u64(self.len);
            }
        }
        if let Some(key) = self.mask {
            out.put_slice(&key);
        }
    }
}

/// The unmasked frame of a whole message.
pub(super) fn whole_frame(opcode: Opcode, is_compressed: bool, payload: &[u8]) -> Bytes {
    let head = FrameHead {
        is_compressed,
        ..FrameHead::whole(opcode, payload.len())
    };
    let mut out = BytesMut::with_capacity(FrameHead::MAX_LEN.saturating_add(payload.len()));
    head.write(&mut out);
    out.put_slice(payload);
    out.freeze()
}

/// The payload length that begins with the seven bits `short`, and the input behind it.
fn length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, WebSocketProtocolError> {
    let (len, shortest, rest) = match short {
        126 => match rest.split_first_chunk() {
            Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), 126, rest),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk() {
            Some((len, rest)) => (u64::from_be_bytes(*len), 1 << 16, rest),
            None => return Ok(None),
        },
        _ => (u64::from(short), 0, rest),
    };
    if len < shortest || len > i64::MAX as u64 {
        return Err(WebSocketProtocolError::LengthEncoding);
    }
    Ok(Some((len, rest)))
}
