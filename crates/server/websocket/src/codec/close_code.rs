//! The status code of a close frame (RFC 6455 section 7.4).

use std::fmt;

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
