//! The framing of a message body and the persistence of the connection, as the header fields give them (RFC 9112 sections 6 and 9).

use apus_http::{FieldSet, KnownField, list};
use http::Version;

use super::{Http1Error, field};

/// How the body of a message is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body, as for HEAD and 304, whatever `Content-Length` says.
    None,
    /// Exactly this many bytes. A received body has at least one. If the sender cannot produce them
    /// all, it has to close the connection.
    Length(u64),
    /// Chunked transfer coding. Each piece is sent between
    /// [`send_chunk_start`](super::ServerConnection::send_chunk_start) and
    /// [`send_chunk_end`](super::ServerConnection::send_chunk_end).
    Chunked,
    /// All bytes up to the end of the connection, as in a response to HTTP/1.0.
    UntilClose,
}

/// How the body of a request is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFraming {
    /// There is no body.
    None,
    /// This many bytes, at least one.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// The values of the framing and connection fields that were read so far.
#[derive(Debug, Default)]
pub(super) struct FramingFields {
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
}

impl FramingFields {
    /// The fields that frame the message and its connection.
    pub(super) const FIELDS: FieldSet = FieldSet::of(&[
        KnownField::Connection,
        KnownField::ContentLength,
        KnownField::TransferEncoding,
    ]);

    /// Adds a line with one of [`Self::FIELDS`]; others do not matter.
    pub(super) fn add(&mut self, field: KnownField, value: &[u8]) -> Result<(), Http1Error> {
        match field {
            KnownField::Connection => {
                for option in list::members(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            KnownField::ContentLength => {
                let length = field::content_length(value)?;
                // RFC 9112 section 6.3 lets a recipient accept repeated lengths that are equal. Nothing but an
                // attack sends them in a request, and a proxy in front may have looked at one of them only.
                if self.content_length.replace(length).is_some() {
                    return Err(Http1Error::ContentLength);
                }
            }
            KnownField::TransferEncoding => {
                if std::mem::replace(&mut self.chunked, true) {
                    return Err(Http1Error::TransferEncoding);
                }
                field::transfer_encoding(value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The message length according to the complete head (section 6.3).
    pub(super) fn resolve(&self, version: Version) -> Result<MessageLength, Http1Error> {
        match (self.content_length, self.chunked) {
            // RFC 9112 section 6.1 allows to let Transfer-Encoding win. Whoever forwarded this message may have
            // let the other one win, which is request smuggling, so it is refused.
            (Some(_), true) => Err(Http1Error::LengthWithTransferEncoding),
            (None, true) if version == Version::HTTP_11 => Ok(MessageLength::Chunked),
            // HTTP/1.0 has no chunked coding: an HTTP/1.0 proxy on the way would have passed the chunks on as the
            // body (section 6.1).
            (None, true) => Err(Http1Error::TransferEncoding),
            (Some(length), false) => Ok(MessageLength::Known(length)),
            (None, false) => Ok(MessageLength::Unspecified),
        }
    }

    /// Whether the connection persists after this message (section 9.3).
    pub(super) fn is_persistent(&self, version: Version) -> bool {
        !self.close && (version == Version::HTTP_11 || self.keep_alive)
    }
}

/// The length of a message body as the header fields give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageLength {
    Unspecified,
    Known(u64),
    Chunked,
}
