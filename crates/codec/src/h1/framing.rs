//! What the field lines of a head say about framing and the connection (RFC 9112 sections 6 and 9).

use apus_http::list;
use http::Version;

use super::{ProtocolError, field};

/// What the field lines so far say.
#[derive(Debug, Default)]
pub(super) struct Framing {
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
}

impl Framing {
    /// Takes a field line into account.
    pub(super) fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), ProtocolError> {
        // Most names are told apart by their length alone.
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in list::members(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = field::content_length(value)?;
                if self.content_length.replace(length).is_some() {
                    return Err(ProtocolError::ContentLength);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if std::mem::replace(&mut self.chunked, true) {
                    return Err(ProtocolError::TransferEncoding);
                }
                field::transfer_encoding(value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What the head says of the content, when it is whole (section 6.3).
    pub(super) fn told(&self, version: Version) -> Result<Told, ProtocolError> {
        match (self.content_length, self.chunked) {
            (Some(_), true) => Err(ProtocolError::LengthWithTransferEncoding),
            (None, true) if version == Version::HTTP_11 => Ok(Told::Chunked),
            (None, true) => Err(ProtocolError::TransferEncoding),
            (Some(length), false) => Ok(Told::Length(length)),
            (None, false) => Ok(Told::Nothing),
        }
    }

    /// Whether the sender lets the connection persist (section 9.3).
    pub(super) fn is_persistent(&self, version: Version) -> bool {
        !self.close && (version == Version::HTTP_11 || self.keep_alive)
    }
}

/// What a head says of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    Length(u64),
    Chunked,
}
