//! The client's side of an HTTP/1.1 connection (RFC 9112).

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use http::{Method, StatusCode};

use super::content::{ContentReader, ContentWriter, Piece};
use super::encode::{self, BodyFraming};
use super::response::{AnswerTo, ResponseContent, ResponseHead, ResponseReader};
use super::{HeadLimits, ProtocolError};
use apus_http::Headers;
use apus_http::grammar::{is_authority, is_field_content, is_host};
use apus_http::list;

/// One connection as the client sees it: requests become bytes for the server, responses come out of
/// its bytes.
///
/// It is [`ServerConnection`](super::ServerConnection)'s counterpart and owns no socket, no buffer
/// and no clock either. Its methods are of three kinds:
///
/// - **Commands**, which append to `out` what has to be sent: [`send_request`](Self::send_request),
///   then the data, which the caller sends itself, between
///   [`send_chunk_start`](Self::send_chunk_start) and [`send_chunk_end`](Self::send_chunk_end) if
///   the framing is [`BodyFraming::Chunked`]; last, for every request,
///   [`send_end`](Self::send_end). [`close`](Self::close) may come at any time.
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet, and [`handle_eof`](Self::handle_eof) where they end.
/// - **Getters**: what the connection waits for, and whether it goes on.
///
/// The order for one request:
///
/// 1. `send_request`, the data, `send_end`. The response may come meanwhile.
/// 2. `handle_input` until it gives [`ClientEvent::Response`], after any number of
///    [`ClientEvent::Informational`] up to a limit.
/// 3. `handle_input` for the content, which gives [`ClientEvent::Data`] and one
///    [`ClientEvent::End`], unless [`response_body_done`](Self::response_body_done) already.
/// 4. The next request, if [`keeps_alive`](Self::keeps_alive) and nothing of the input is left.
///
/// What nobody asked for is an error: bytes behind a response would be taken for the next one
/// otherwise, and be given to somebody else. After a [`ProtocolError`] every further input is
/// refused with the same error, and the connection has to be closed.
#[derive(Debug)]
pub struct ClientConnection {
    limits: HeadLimits,
    reading: Reading,
    head: ResponseReader,
    writing: Option<ContentWriter>,
    answer_to: AnswerTo,
    /// The protocols that the request offers to switch to; empty for none.
    offers: Box<str>,
    /// Interim responses to the current request.
    interim: u8,
    /// Whether another request may follow the current one.
    persistent: bool,
    /// What the last response that said so said of it.
    idle_timeout: Option<Duration>,
    /// Whether none shall.
    closing: bool,
    tunnel: bool,
}

/// What the next input is.
#[derive(Debug)]
enum Reading {
    /// No response is due.
    Nothing,
    Head,
    Content(ContentReader),
    Failed(ProtocolError),
}

/// The head of a request that is sent.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request target: in origin-form, `*` for OPTIONS, or in authority-form for CONNECT.
    pub target: &'a str,
    /// The value of `Host`.
    pub host: &'a str,
    /// The field lines. Those that are the connection's to write are left out: `Host`,
    /// `Content-Length`, `Expect`, `Connection`, `Transfer-Encoding` and their like.
    pub headers: &'a Headers,
    /// Bytes of the content; `None` if that is not known before it is sent.
    pub content_length: Option<u64>,
    /// The protocols that are offered in place of this one (RFC 9110 section 7.8).
    pub upgrade: Option<&'a str>,
    /// Whether trailers are taken (RFC 9110 section 10.1.4).
    pub te_trailers: bool,
    /// Whether the content is held back until the server asks for it (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
}

/// What was found in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// Nothing more before more input comes.
    Incomplete,
    /// An interim response: 1xx, but not 101. With 100 the server asks for the content.
    Informational(StatusCode, Headers),
    /// The head of the final response.
    Response(ResponseHead),
    /// Content of the response: this range of the input.
    Data(Range<usize>),
    /// The end of the response's content, and its trailer section if it has one.
    End(Option<Headers>),
}

impl ClientConnection {
    /// Interim responses to one request. A server that sends more never comes to an end.
    const INTERIM_MOST: u8 = 32;

    /// A connection before its first request. The limit of the target is of no account.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            reading: Reading::Nothing,
            head: ResponseReader::default(),
            writing: None,
            answer_to: AnswerTo::Other,
            offers: Box::default(),
            interim: 0,
            persistent: true,
            idle_timeout: None,
            closing: false,
            tunnel: false,
        }
    }

    /// Sends the head of a request, and tells how its content has to be sent.
    ///
    /// # Errors
    /// The request cannot be sent, or not now. Nothing is appended then, and the connection stays as
    /// it was.
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
        self.reading = Reading::Head;
        self.writing = Some(ContentWriter::new(framing));
        self.answer_to = match *request.method {
            Method::HEAD => AnswerTo::Head,
            Method::CONNECT => AnswerTo::Connect,
            _ => AnswerTo::Other,
        };
        self.offers = request.upgrade.unwrap_or_default().into();
        self.interim = 0;
        Ok(framing)
    }

    /// Sends what stands before `len` bytes of data if the framing is [`BodyFraming::Chunked`], and
    /// nothing otherwise, or if `len` is 0.
    pub fn send_chunk_start(&mut self, len: usize, out: &mut Vec<u8>) {
        if let Some(content) = &mut self.writing {
            content.start_chunk(len, out);
        }
    }

    /// Sends what stands behind the data of a chunk that was started.
    pub fn send_chunk_end(&mut self, out: &mut Vec<u8>) {
        if let Some(content) = &mut self.writing {
            content.end_chunk(out);
        }
    }

    /// Ends the request, whatever its framing. With [`BodyFraming::Chunked`] it sends the last chunk
    /// and the trailer section; fields that must not stand there are left out.
    pub fn send_end(&mut self, trailers: Option<&Headers>, out: &mut Vec<u8>) {
        if let Some(content) = self.writing.take() {
            content.end(trailers, out);
        }
    }

    /// Lets the current request be the last. If it is yet to be sent, it says `Connection: close`.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Looks at the input that was not consumed yet. Tells how many bytes of it are consumed now and
    /// what was found; with [`ClientEvent::Incomplete`] some bytes may be consumed too. The rest has
    /// to be presented again, with more behind it.
    ///
    /// # Errors
    /// The server broke the protocol, met a limit, or said something unasked.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<(usize, ClientEvent), ProtocolError> {
        let found = match &mut self.reading {
            Reading::Nothing if input.is_empty() || self.tunnel => Ok((0, ClientEvent::Incomplete)),
            Reading::Nothing => Err(ProtocolError::UnaskedResponse),
            Reading::Head => self.handle_head(input),
            Reading::Content(content) => match content.read(input, &self.limits) {
                Ok((consumed, Piece::Incomplete)) => Ok((consumed, ClientEvent::Incomplete)),
                Ok((consumed, Piece::Data(range))) => Ok((consumed, ClientEvent::Data(range))),
                Ok((consumed, Piece::End(trailers))) => {
                    self.response_ended();
                    Ok((consumed, ClientEvent::End(trailers)))
                }
                Err(error) => Err(error),
            },
            Reading::Failed(error) => Err(*error),
        };
        if let Err(error) = found {
            self.fail(error);
        }
        found
    }

    /// Takes notice that no more input comes, after all of it was handled: either the end of content
    /// that ends so, or [`ClientEvent::Incomplete`] if no response was due.
    ///
    /// # Errors
    /// [`ProtocolError::Truncated`]: a response is not whole.
    pub fn handle_eof(&mut self) -> Result<ClientEvent, ProtocolError> {
        self.persistent = false;
        match self.reading {
            Reading::Nothing => Ok(ClientEvent::Incomplete),
            Reading::Content(ContentReader::UntilClose) => {
                self.response_ended();
                Ok(ClientEvent::End(None))
            }
            Reading::Failed(error) => Err(error),
            Reading::Head | Reading::Content(_) => {
                self.fail(ProtocolError::Truncated);
                Err(ProtocolError::Truncated)
            }
        }
    }

    /// Whether what a 101 switches to was offered (RFC 9110 section 7.8). Versions do not count: an
    /// origin may name one.
    fn is_offered(&self, headers: &Headers) -> bool {
        let name = |protocol: &[u8]| {
            let name = protocol.split(|byte| *byte == b'/').next();
            name.unwrap_or_default().trim_ascii().to_ascii_lowercase()
        };
        let offered: Vec<_> = list::members(self.offers.as_bytes()).map(name).collect();
        let mut chosen = headers
            .get_all("upgrade")
            .flat_map(list::members)
            .peekable();
        chosen.peek().is_some() && chosen.all(|protocol| offered.contains(&name(protocol)))
    }

    fn handle_head(&mut self, input: &[u8]) -> Result<(usize, ClientEvent), ProtocolError> {
        let (consumed, read) = self.head.read(input, &self.limits, self.answer_to)?;
        let Some(read) = read else {
            return Ok((consumed, ClientEvent::Incomplete));
        };
        let head = read.head;
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if head.status.is_informational() && !switches {
            self.interim = self.interim.saturating_add(1);
            if self.interim > Self::INTERIM_MOST {
                return Err(ProtocolError::TooManyInterim);
            }
            let event = ClientEvent::Informational(head.status, head.headers);
            return Ok((consumed, event));
        }
        if switches && !self.is_offered(&head.headers) {
            return Err(ProtocolError::UnaskedSwitch);
        }
        self.tunnel = switches || (self.answer_to == AnswerTo::Connect && head.status.is_success());
        // What follows a CONNECT that was refused may have been meant for the tunnel.
        self.persistent &= read.persistent && self.answer_to != AnswerTo::Connect;
        self.idle_timeout = read.idle_timeout.or(self.idle_timeout);
        match head.content {
            ResponseContent::None => self.response_ended(),
            ResponseContent::Length(length) => {
                self.reading = Reading::Content(ContentReader::Length(length));
            }
            ResponseContent::Chunked => {
                self.reading = Reading::Content(ContentReader::chunked(&read.connection));
            }
            ResponseContent::UntilClose => {
                self.reading = Reading::Content(ContentReader::UntilClose);
            }
        }
        Ok((consumed, ClientEvent::Response(head)))
    }

    fn response_ended(&mut self) {
        self.reading = Reading::Nothing;
        // The server will not read the rest, or read it as a request.
        self.persistent &= self.writing.is_none() && !self.closing;
    }

    fn fail(&mut self, error: ProtocolError) {
        self.reading = Reading::Failed(error);
        self.persistent = false;
    }

    /// Whether a request can be sent: none is being sent or answered, and the last response was read
    /// whole and lets the connection persist.
    fn is_idle(&self) -> bool {
        matches!(self.reading, Reading::Nothing)
            && self.writing.is_none()
            && self.persistent
            && !self.tunnel
    }

    /// Whether nothing of the response's content is outstanding.
    pub fn response_body_done(&self) -> bool {
        matches!(self.reading, Reading::Nothing)
    }

    /// Whether the response's content ends with the connection, and with nothing else: the transport
    /// has to tell whether it was cut off.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.reading, Reading::Content(ContentReader::UntilClose))
    }

    /// Whether another request may be sent after the current one, as far as is known. Final once the
    /// response was read.
    pub fn keeps_alive(&self) -> bool {
        self.persistent && !self.closing && !self.tunnel
    }

    /// How long the server keeps the connection without a request, if its responses say so with
    /// `Keep-Alive: timeout`. Whoever sends a request later than that may meet the end of it.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// Whether the response turned the connection into a tunnel: 101, or 2xx to CONNECT. What is not
    /// consumed then belongs to the tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }
}

impl OutgoingRequest<'_> {
    /// Whether its line and its fields stay what they are when the server reads them.
    fn check(&self) -> Result<(), InvalidRequest> {
        let is_target = match (self.method, self.target) {
            (&Method::CONNECT, target) => is_authority(target.as_bytes()),
            (&Method::OPTIONS, "*") => true,
            (_, target) => {
                target.starts_with('/')
                    && target
                        .bytes()
                        .all(|byte| byte.is_ascii_graphic() && byte != b'#')
            }
        };
        if !is_target {
            return Err(InvalidRequest::Target);
        }
        if !is_host(self.host.as_bytes()) {
            return Err(InvalidRequest::Host);
        }
        let is_offer =
            |offer: &str| !offer.trim_ascii().is_empty() && is_field_content(offer.as_bytes());
        if self.upgrade.is_some_and(|offer| !is_offer(offer)) {
            return Err(InvalidRequest::Upgrade);
        }
        if self.method == Method::CONNECT && self.content_length != Some(0) {
            return Err(InvalidRequest::Content);
        }
        Ok(())
    }

    fn framing(&self) -> BodyFraming {
        match self.content_length {
            Some(0) => BodyFraming::None,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunked,
        }
    }
}

/// Why a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The connection carries another request, or can carry none any more.
    NotNow,
    /// The request target is in no form that the method allows, or holds bytes that would end it.
    Target,
    /// The value of `Host` is not `host [":" port]`.
    Host,
    /// What is offered to switch to holds control characters or is empty.
    Upgrade,
    /// A CONNECT request has content.
    Content,
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNow => "the connection cannot carry a request now",
            Self::Target => "a request target must be /path of visible ASCII without #",
            Self::Host => "a Host field must be host or host:port",
            Self::Upgrade => "a protocol to upgrade to must be a token",
            Self::Content => "a CONNECT request has no content",
        })
    }
}

impl std::error::Error for InvalidRequest {}
