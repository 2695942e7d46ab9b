//! The parts of an HTTP/1.1 response, as they are in the input.

use apus_codec::h1::{ClientConnection, Http1ClientEvent, Http1ResponseHead};
use apus_http::{Headers, StatusCode};
use bytes::Bytes;

use super::Http1ClientConnection;
use crate::FailureCause;
use crate::exchange::{ClientExchange, SerialConnection};

/// A part of a response.
pub(super) enum Http1ResponsePart {
    Head(Http1ResponseHead),
    Data(Bytes),
    End(Option<Headers>),
}

impl ClientExchange for Http1ClientConnection {
    type Codec = ClientConnection;
    type Part = Http1ResponsePart;

    fn serial(&mut self) -> &mut SerialConnection<ClientConnection> {
        &mut self.serial
    }

    /// The next part of the response that is in the input.
    fn parse_part(&mut self) -> Result<Option<Http1ResponsePart>, FailureCause> {
        loop {
            let found = self.serial.codec.handle_input(self.serial.input.unread());
            let (consumed, event) = found.map_err(|error| FailureCause::Protocol(error.into()))?;
            if let Http1ClientEvent::Data(range) = event {
                return Ok(Some(Http1ResponsePart::Data(
                    self.serial.input.take(range, consumed),
                )));
            }
            self.serial.input.consume(consumed);
            match event {
                Http1ClientEvent::Informational(status, headers) => self.inform(status, headers),
                Http1ClientEvent::Response(head) => return Ok(Some(Http1ResponsePart::Head(head))),
                Http1ClientEvent::End(trailers) => {
                    return Ok(Some(Http1ResponsePart::End(trailers)));
                }
                Http1ClientEvent::Incomplete | Http1ClientEvent::Data(_) => return Ok(None),
            }
        }
    }

    /// Handles the end of the connection.
    fn handle_eof(&mut self) -> Result<Http1ResponsePart, FailureCause> {
        // Nothing else shows that such a body is whole: under TLS, whoever closes the TCP connection would truncate
        // it (RFC 9112 section 9.8).
        if self.serial.codec.ends_with_connection() && self.serial.transport.is_cut_off() {
            return Err(FailureCause::Closed);
        }
        match self.serial.codec.handle_eof() {
            Ok(Http1ClientEvent::End(trailers)) => Ok(Http1ResponsePart::End(trailers)),
            _ => Err(FailureCause::Closed),
        }
    }
}

impl Http1ClientConnection {
    /// Forwards an interim response.
    fn inform(&mut self, status: StatusCode, headers: Headers) {
        if status == StatusCode::CONTINUE && self.serial.upload.is_held() {
            // That was the wait for 100. The one for the response begins when the body was sent.
            self.serial.limits.read_until = None;
            self.serial.upload.release();
        }
        if let Some(interim) = &self.interim {
            interim.send(status, headers);
        }
    }
}
