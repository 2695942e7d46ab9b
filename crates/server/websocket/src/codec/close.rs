//! The status code and the reason of a close frame (RFC 6455 sections 5.5.1 and 7.4).

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use super::WebSocketProtocolError;

/// A status code that a close frame may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server shuts down, or the browser left the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The peer sent a type of data that is not accepted.
    pub const UNSUPPORTED: Self = Self(1003);
    /// The data of a message does not match its type, such as text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A message violates a rule of the application.
    pub const POLICY: Self = Self(1008);
    /// A message is too long.
    pub const TOO_BIG: Self = Self(1009);
    /// The server failed.
    pub const INTERNAL: Self = Self(1011);
    /// The server restarts; the client may reconnect.
    pub const RESTART: Self = Self(1012);
    /// The server or this connection is overloaded; the client may reconnect later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// The code with a number; `None` if it must not be sent: 1004 to 1006, 1015, and numbers outside the
    /// ranges of RFC 6455 section 7.4.2 and the IANA registry.
    pub fn new(code: u16) -> Option<Self> {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(code))
    }

    /// Its number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The code and the reason of a close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    code: CloseCode,
    reason: ByteString,
}

impl Close {
    /// The maximum length of a reason in bytes.
    const MAX_REASON: usize = 123;

    /// A code with a reason, which is cut after 123 bytes.
    pub fn new(code: CloseCode, reason: impl Into<ByteString>) -> Self {
        let reason = reason.into();
        let end = reason.floor_char_boundary(Self::MAX_REASON);
        let reason = match reason.get(..end) {
            Some(prefix) if prefix.len() < reason.len() => ByteString::from(prefix),
            _ => reason,
        };
        Self { code, reason }
    }

    /// The code.
    pub fn code(&self) -> CloseCode {
        self.code
    }

    /// The reason, which may be empty.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Parses the payload of a close frame; `None` if it is empty.
    pub(super) fn parse(payload: &Bytes) -> Result<Option<Self>, WebSocketProtocolError> {
        let Some((code, reason)) = payload.split_first_chunk() else {
            return match payload.is_empty() {
                true => Ok(None),
                false => Err(WebSocketProtocolError::ClosePayload),
            };
        };
        let code =
            CloseCode::new(u16::from_be_bytes(*code)).ok_or(WebSocketProtocolError::CloseCode)?;
        let reason = ByteString::try_from(payload.slice_ref(reason))
            .map_err(|_| WebSocketProtocolError::InvalidUtf8)?;
        Ok(Some(Self { code, reason }))
    }

    /// The payload of a close frame.
    pub(super) fn payload(close: Option<&Self>) -> BytesMut {
        let mut payload = BytesMut::new();
        if let Some(close) = close {
            payload.put_u16(close.code.0);
            payload.put_slice(close.reason.as_bytes());
        }
        payload
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => self.code.fmt(f),
            reason => write!(f, "{}: {reason}", self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let close = Close::new(CloseCode::NORMAL, "ß".repeat(100));
        assert_eq!(close.reason(), "ß".repeat(61));
        assert_eq!(Close::payload(Some(&close)).len(), 124);
    }
}
