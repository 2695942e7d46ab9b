//! The state machine of an HTTP/1.1 connection at the client (RFC 9112).

use std::ops::Range;
use std::time::Duration;

use http::{Method, StatusCode};

use super::body::{BodyPiece, BodyReader, BodyWriter};
use super::outgoing_request::{InvalidRequest, OutgoingRequest};
use super::response::{Http1ResponseHead, ResponseContext, ResponseReader};
use super::{BodyFraming, HeadLimits, Http1Error, encode};
use crate::request_kind::RequestKind;
use apus_http::list;
use apus_http::{Headers, is_interim};

/// The client's end of a connection: it encodes requests and decodes responses.
///
/// Like [`ServerConnection`](super::ServerConnection), it owns no socket, no buffer and no clock. It has
/// three kinds of methods:
///
/// - **Commands**, which append the bytes to send to `out`: [`send_request`](Self::send_request),
///   then the data, which the caller sends itself, between
///   [`send_chunk_start`](Self::send_chunk_start) and [`send_chunk_end`](Self::send_chunk_end) if
///   the framing is [`BodyFraming::Chunked`]; last, for every request,
///   [`send_end`](Self::send_end). [`close`](Self::close) may come at any time.
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet, and [`handle_eof`](Self::handle_eof) at the end of input.
/// - **Getters** of the state of the response and of the connection.
///
/// The order for one request:
///
/// 1. `send_request`, the data, `send_end`. The response may arrive meanwhile.
/// 2. `handle_input` until it returns [`Http1ClientEvent::Response`], after a limited number of
///    [`Http1ClientEvent::Informational`].
/// 3. `handle_input` for the body, which returns [`Http1ClientEvent::Data`] and one
///    [`Http1ClientEvent::End`], unless [`response_body_done`](Self::response_body_done) is true.
/// 4. The next request, if [`keeps_alive`](Self::keeps_alive) and no input is left.
///
/// Input without a request is an error. Otherwise bytes after a response would be taken for the response
/// to the next request, which may be another client's. After an [`Http1Error`] every further input
/// returns the same error, and the connection has to be closed.
#[derive(Debug)]
pub struct ClientConnection {
    limits: HeadLimits,
    is_lenient: bool,
    reading: ReadState,
    head: ResponseReader,
    writing: Option<BodyWriter>,
    request_kind: RequestKind,
    /// The protocols that the request offers to switch to, or nothing.
    offered_protocols: Box<str>,
    /// Interim responses to the current request.
    interim_count: u8,
    /// Whether the connection persists after the current request.
    persistent: bool,
    /// The last announced idle timeout of the server.
    idle_timeout: Option<Duration>,
    /// Whether [`close`](Self::close) was called.
    closing: bool,
    tunnel: bool,
}

/// What the connection expects from its input.
#[derive(Debug)]
enum ReadState {
    /// No response is expected.
    Nothing,
    Head,
    Body(BodyReader),
    Failed(Http1Error),
}

/// An event in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Http1ClientEvent {
    /// More input is needed.
    Incomplete,
    /// An interim response: 1xx except 101. With 100 the server asks for the body.
    Informational(StatusCode, Headers),
    /// The head of the final response.
    Response(Http1ResponseHead),
    /// Data of the response body: this range of the input.
    Data(Range<usize>),
    /// The end of the response body, with the trailer section if there is one.
    End(Option<Headers>),
}

impl ClientConnection {
    /// Maximum interim responses to one request.
    // An origin that sends 103 without an end would otherwise hold a connection and its client, with each of them as
    // progress.
    const MAX_INTERIM: u8 = 32;

    /// A connection before its first request. The limit of the target is ignored.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            is_lenient: false,
            reading: ReadState::Nothing,
            head: ResponseReader::default(),
            writing: None,
            request_kind: RequestKind::Other,
            offered_protocols: Box::default(),
            interim_count: 0,
            persistent: true,
            idle_timeout: None,
            closing: false,
            tunnel: false,
        }
    }

    /// Accepts deviations of old servers that no recipient reads in another way: lines that end with LF alone (RFC 9112
    /// section 2.2), lines of a field section without a colon, which are dropped, and equal repetitions of
    /// `Content-Length` (RFC 9110 section 8.6).
    #[must_use]
    pub fn lenient(self, is_lenient: bool) -> Self {
        Self { is_lenient, ..self }
    }

    /// Sends the head of a request. Returns how its body has to be framed.
    ///
    /// # Errors
    /// The request is invalid, or cannot be sent now. Then nothing is appended, and the connection does
    /// not change.
    pub fn send_request(
        &mut self,
        request: OutgoingRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<BodyFraming, InvalidRequest> {
        if !self.is_idle() {
            return Err(InvalidRequest::NotNow);
        }
        request.check()?;
        let framing = request.framing();
        encode::request(&request, framing, self.closing, out);
        self.writing = Some(BodyWriter::new(framing));
        self.expect(request.method, request.upgrade.unwrap_or_default());
        Ok(framing)
    }

    /// Expects the response to a request with this method whose bytes the caller has sent itself: a copy of what
    /// [`send_request`](Self::send_request) and [`send_end`](Self::send_end) of another connection appended. For load,
    /// which sends the same bytes often, and for pipelining: the bytes of several requests may be sent at once if this
    /// is called for each of them once the response before is complete.
    ///
    /// # Errors
    /// [`InvalidRequest::NotNow`]: another request is in progress, or the connection does not persist.
    pub fn expect_response(&mut self, method: &Method) -> Result<(), InvalidRequest> {
        if !self.is_idle() {
            return Err(InvalidRequest::NotNow);
        }
        self.expect(method, "");
        Ok(())
    }

    fn expect(&mut self, method: &Method, offered_protocols: &str) {
        self.reading = ReadState::Head;
        self.request_kind = RequestKind::of(method);
        if self.offered_protocols.as_ref() != offered_protocols {
            self.offered_protocols = offered_protocols.into();
        }
        self.interim_count = 0;
    }

    /// Sends the framing before `len` bytes of data. Sends nothing if the framing is not
    /// [`BodyFraming::Chunked`] or `len` is 0.
    pub fn send_chunk_start(&mut self, len: usize, out: &mut Vec<u8>) {
        if let Some(body) = &mut self.writing {
            body.start_chunk(len, out);
        }
    }

    /// Sends the framing after the data of the open chunk.
    pub fn send_chunk_end(&mut self, out: &mut Vec<u8>) {
        if let Some(body) = &mut self.writing {
            body.end_chunk(out);
        }
    }

    /// Ends the request, whatever its framing. With [`BodyFraming::Chunked`] it sends the last chunk
    /// and the trailer section, without the fields that it must not contain.
    pub fn send_end(&mut self, trailers: Option<&Headers>, out: &mut Vec<u8>) {
        if let Some(body) = self.writing.take() {
            body.end(trailers, out);
        }
    }

    /// Makes the current request the last one. If it was not sent yet, it says `Connection: close`.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Parses the input that was not consumed yet. Returns how many bytes it consumed and the event
    /// that it found; with [`Http1ClientEvent::Incomplete`] some bytes may be consumed too. The rest has
    /// to be passed again, followed by more input.
    ///
    /// # Errors
    /// The server broke the protocol, exceeded a limit, or sent data without a request.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<(usize, Http1ClientEvent), Http1Error> {
        let found = match &mut self.reading {
            ReadState::Nothing if input.is_empty() || self.tunnel => {
                Ok((0, Http1ClientEvent::Incomplete))
            }
            // Bytes that nobody has asked for would be taken for the response to the next request, of another client:
            // response splitting.
            ReadState::Nothing => Err(Http1Error::UnexpectedResponse),
            ReadState::Head => self.handle_head(input),
            ReadState::Body(body) => match body.read(input, &self.limits) {
                Ok((consumed, BodyPiece::Incomplete)) => {
                    Ok((consumed, Http1ClientEvent::Incomplete))
                }
                Ok((consumed, BodyPiece::Data(range))) => {
                    Ok((consumed, Http1ClientEvent::Data(range)))
                }
                Ok((consumed, BodyPiece::End(trailers))) => {
                    self.response_ended();
                    Ok((consumed, Http1ClientEvent::End(trailers)))
                }
                Err(error) => Err(error),
            },
            ReadState::Failed(error) => Err(*error),
        };
        if let Err(error) = found {
            self.fail(error);
        }
        found
    }

    /// Handles the end of input, after all input was handled. Returns [`Http1ClientEvent::End`] for a body
    /// that ends with the connection, and [`Http1ClientEvent::Incomplete`] if no response was expected.
    ///
    /// # Errors
    /// [`Http1Error::Truncated`]: a response is incomplete.
    pub fn handle_eof(&mut self) -> Result<Http1ClientEvent, Http1Error> {
        self.persistent = false;
        match self.reading {
            ReadState::Nothing => Ok(Http1ClientEvent::Incomplete),
            // Whether this is the end of the response or a broken connection cannot be told here; with TLS,
            // `close_notify` tells it (RFC 9112 section 9.8).
            ReadState::Body(BodyReader::UntilClose) => {
                self.response_ended();
                Ok(Http1ClientEvent::End(None))
            }
            ReadState::Failed(error) => Err(error),
            ReadState::Head | ReadState::Body(_) => {
                self.fail(Http1Error::Truncated);
                Err(Http1Error::Truncated)
            }
        }
    }

    /// Whether the request offered the protocols that a 101 names (RFC 9110 section 7.8). Ignores their
    /// versions, because an origin may add one.
    fn is_offered(&self, headers: &Headers) -> bool {
        let name = |protocol: &[u8]| {
            let name = protocol.split(|byte| *byte == b'/').next();
            name.unwrap_or_default().trim_ascii().to_ascii_lowercase()
        };
        let offered: Vec<_> = list::members(self.offered_protocols.as_bytes())
            .map(name)
            .collect();
        let mut chosen = headers
            .get_all("upgrade")
            .flat_map(list::members)
            .peekable();
        chosen.peek().is_some() && chosen.all(|protocol| offered.contains(&name(protocol)))
    }

    fn handle_head(&mut self, input: &[u8]) -> Result<(usize, Http1ClientEvent), Http1Error> {
        let context = ResponseContext {
            limits: self.limits,
            request_kind: self.request_kind,
            is_lenient: self.is_lenient,
        };
        let (consumed, read) = self.head.read(input, context)?;
        let Some(read) = read else {
            return Ok((consumed, Http1ClientEvent::Incomplete));
        };
        let head = read.head;
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if is_interim(head.status) {
            self.interim_count = self.interim_count.saturating_add(1);
            if self.interim_count > Self::MAX_INTERIM {
                return Err(Http1Error::TooManyInterim);
            }
            let event = Http1ClientEvent::Informational(head.status, head.headers);
            return Ok((consumed, event));
        }
        // A tunnel that nobody has asked for would hand the connection, with requests of others before it, to whoever
        // made the origin say so.
        if switches && !self.is_offered(&head.headers) {
            return Err(Http1Error::UnexpectedUpgrade);
        }
        self.tunnel = switches || self.request_kind.begins_tunnel(head.status);
        // Bytes after a rejected CONNECT may have been meant for the tunnel.
        self.persistent &= read.persistent && self.request_kind != RequestKind::Connect;
        self.idle_timeout = read.idle_timeout.or(self.idle_timeout);
        match head.body {
            BodyFraming::None => self.response_ended(),
            BodyFraming::Length(length) => {
                self.reading = ReadState::Body(BodyReader::Length(length));
            }
            BodyFraming::Chunked => {
                let body = BodyReader::chunked_response(&read.connection, self.is_lenient);
                self.reading = ReadState::Body(body);
            }
            BodyFraming::UntilClose => {
                self.reading = ReadState::Body(BodyReader::UntilClose);
            }
        }
        Ok((consumed, Http1ClientEvent::Response(head)))
    }

    fn response_ended(&mut self) {
        self.reading = ReadState::Nothing;
        // The server does not read the rest of the request, or reads it as another request.
        self.persistent &= self.writing.is_none() && !self.closing;
    }

    fn fail(&mut self, error: Http1Error) {
        self.reading = ReadState::Failed(error);
        self.persistent = false;
    }

    /// Whether a request can be sent: none is in progress, the last response was read completely, and
    /// the connection persists.
    fn is_idle(&self) -> bool {
        matches!(self.reading, ReadState::Nothing)
            && self.writing.is_none()
            && self.persistent
            && !self.tunnel
    }

    /// Whether the response was read completely.
    pub fn response_body_done(&self) -> bool {
        matches!(self.reading, ReadState::Nothing)
    }

    /// Whether only the end of the connection ends the response body. Then the transport has to detect
    /// truncation.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.reading, ReadState::Body(BodyReader::UntilClose))
    }

    /// Whether another request may be sent after the current one. Final once the response was read
    /// completely.
    pub fn keeps_alive(&self) -> bool {
        self.persistent && !self.closing && !self.tunnel
    }

    /// How long the server keeps the connection idle, if its responses announce it with
    /// `Keep-Alive: timeout`. A request that is sent later may fail because the server closes the
    /// connection.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// Whether the response turned the connection into a tunnel: 101, or 2xx to CONNECT. Unconsumed
    /// input then belongs to the tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }
}
