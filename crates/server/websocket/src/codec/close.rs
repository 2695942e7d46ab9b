//! The payload of a close frame: a status code and a reason (RFC 6455 section 5.5.1).

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use super::close_code::CloseCode;
use super::error::WebSocketProtocolError;

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
            return if payload.is_empty() {
                Ok(None)
            } else {
                Err(WebSocketProtocolError::ClosePayload)
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
            payload.put_u16(close.code.get());
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
