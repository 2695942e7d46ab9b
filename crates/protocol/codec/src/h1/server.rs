//! The state machine of an HTTP/1.1 connection at the server (RFC 9112).

use std::ops::Range;

use http::{Method, StatusCode, Version};

use super::body::{BodyPiece, BodyReader, BodyWriter};
use super::encode::{self, ResponseFraming};
use super::request::RequestReader;
use super::{BodyFraming, HeadLimits, Http1Error, Http1RequestHead, RequestFraming};
use crate::request_kind::{RequestKind, final_status};
use apus_http::{FieldSummary, Headers, ResponseHead, is_interim};

/// The server's end of a connection: it decodes requests and encodes responses.
///
/// It owns no socket, no buffer and no clock. It has three kinds of methods (the caller polls nothing,
/// because commands append to its buffer):
///
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet.
/// - **Commands**, which append the bytes to send to `out`:
///   [`send_continue`](Self::send_continue) and [`send_informational`](Self::send_informational),
///   then [`send_head`](Self::send_head); then the data, which the caller sends itself, between
///   [`send_chunk_start`](Self::send_chunk_start) and [`send_chunk_end`](Self::send_chunk_end) if
///   the framing is [`BodyFraming::Chunked`]; last, **for every response**,
///   [`send_end`](Self::send_end). [`close`](Self::close) may come at any time.
/// - **Getters** of the state of the request and of the connection.
///
/// The order for one request:
///
/// 1. `handle_input` until it returns [`Http1ServerEvent::Request`].
/// 2. `handle_input` for the body, which returns [`Http1ServerEvent::Data`] and one [`Http1ServerEvent::End`],
///    unless [`request_body_done`](Self::request_body_done) is true. The response may be sent
///    meanwhile.
/// 3. `send_head`, the data, `send_end`.
/// 4. The next request, if [`keeps_alive`](Self::keeps_alive), from the same unconsumed input. It is
///    read once the body was read and the response ended; until then pipelined requests stay
///    unconsumed. An unwanted body has to be read as well, or the connection has to be closed.
///
/// After an [`Http1Error`] every further input returns the same error. Its status can be sent as a
/// response unless a head was sent before. Then the connection has to be closed, without a `send_end`
/// if the response is incomplete.
#[derive(Debug)]
pub struct ServerConnection {
    limits: HeadLimits,
    reading: ReadState,
    head: RequestReader,
    response: ResponseProgress,
    /// Requests received.
    requests: u64,
    method: Method,
    version: Version,
    upgrade: bool,
    awaits_continue: bool,
    /// Whether the connection persists after the current request.
    persistent: bool,
    tunnel: bool,
}

/// What the connection expects from its input.
#[derive(Debug)]
enum ReadState {
    Head,
    Body(BodyReader),
    /// The request was read completely.
    Done,
    Failed(Http1Error),
}

/// The progress of the response to the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseProgress {
    Pending,
    Started(BodyWriter),
    Ended,
}

/// An event in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Http1ServerEvent {
    /// More input is needed, or the response has to end first.
    Incomplete,
    /// A request.
    Request(Http1RequestHead),
    /// Data of the request body: this range of the input.
    Data(Range<usize>),
    /// The end of the request body, with the trailer section if there is one.
    End(Option<Headers>),
}

impl ServerConnection {
    /// A connection before its first request.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            reading: ReadState::Head,
            head: RequestReader::default(),
            response: ResponseProgress::Ended,
            requests: 0,
            method: Method::GET,
            version: Version::HTTP_11,
            upgrade: false,
            awaits_continue: false,
            persistent: true,
            tunnel: false,
        }
    }

    /// Parses the input that was not consumed yet. Returns how many bytes it consumed and the event
    /// that it found; with [`Http1ServerEvent::Incomplete`] some bytes may be consumed too. The rest has to be
    /// passed again, followed by more input.
    ///
    /// # Errors
    /// The client broke the protocol or exceeded a limit. The connection has to be closed, after a
    /// response with [`Http1Error::status`] if none was started.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<(usize, Http1ServerEvent), Http1Error> {
        let found = match &mut self.reading {
            // Nothing is read behind the last request: it may be of the tunnel, or of a client that did not see
            // `Connection: close`.
            ReadState::Head if self.tunnel || !self.persistent => {
                Ok((0, Http1ServerEvent::Incomplete))
            }
            ReadState::Head => self.handle_head(input),
            ReadState::Body(body) => match body.read(input, &self.limits) {
                Ok((consumed, BodyPiece::Incomplete)) => {
                    Ok((consumed, Http1ServerEvent::Incomplete))
                }
                Ok((consumed, BodyPiece::Data(range))) => {
                    Ok((consumed, Http1ServerEvent::Data(range)))
                }
                Ok((consumed, BodyPiece::End(trailers))) => {
                    self.body_ended();
                    Ok((consumed, Http1ServerEvent::End(trailers)))
                }
                Err(error) => Err(error),
            },
            ReadState::Done => Ok((0, Http1ServerEvent::Incomplete)),
            ReadState::Failed(error) => Err(*error),
        };
        if let Err(error) = found {
            self.reading = ReadState::Failed(error);
            self.persistent = false;
        }
        found
    }

    fn handle_head(&mut self, input: &[u8]) -> Result<(usize, Http1ServerEvent), Http1Error> {
        let (consumed, read) = match self.head.read(input, &self.limits) {
            // A preface is valid only at the start of a connection.
            Err(Http1Error::Http2Preface) if self.requests > 0 => {
                return Err(Http1Error::Version);
            }
            read => read?,
        };
        let Some(read) = read else {
            return Ok((consumed, Http1ServerEvent::Incomplete));
        };
        let request = read.head;
        self.requests = self.requests.saturating_add(1);
        self.reading = match request.body {
            RequestFraming::None => ReadState::Done,
            RequestFraming::Length(length) => ReadState::Body(BodyReader::Length(length)),
            RequestFraming::Chunked => {
                let nominated = request.head.hop_by_hop.nominated.join(&b',');
                ReadState::Body(BodyReader::chunked(&nominated))
            }
        };
        self.response = ResponseProgress::Pending;
        self.method = request.head.method.clone();
        self.version = request.head.version;
        self.upgrade = request.upgrade;
        self.awaits_continue = request.expects_continue;
        self.persistent &= read.persistent;
        Ok((consumed, Http1ServerEvent::Request(request)))
    }

    /// Whether the connection is idle: between requests, with no byte of the next head read.
    pub fn is_idle(&self) -> bool {
        matches!(self.reading, ReadState::Head) && self.head.is_untouched()
    }

    /// Whether the body of the current request was read completely.
    pub fn request_body_done(&self) -> bool {
        matches!(self.reading, ReadState::Head | ReadState::Done)
    }

    /// Whether another request may follow the current one. Final once the head of the response was
    /// sent.
    pub fn keeps_alive(&self) -> bool {
        self.persistent && !self.tunnel
    }

    /// Whether the response turned the connection into a tunnel: 101, or 2xx to CONNECT. Input that is
    /// unconsumed once [`request_body_done`](Self::request_body_done) belongs to the tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }

    /// Makes the current request the last one; the next head says `Connection: close`.
    pub fn close(&mut self) {
        self.persistent = false;
    }

    /// Sends `100 Continue` to a client that waits for it (RFC 9110 section 10.1.1). Does nothing if
    /// the client does not wait, or the response was started.
    pub fn send_continue(&mut self, out: &mut Vec<u8>) {
        if self.awaits_continue && self.response == ResponseProgress::Pending {
            self.awaits_continue = false;
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Sends `100 Continue` to a client that does not expect it, which every client of HTTP/1.1 has to ignore (RFC 9110
    /// section 15.2): one that is gone responds with a reset. Returns whether it was sent.
    pub fn send_probe(&mut self, out: &mut Vec<u8>) -> bool {
        let sends = self.version == Version::HTTP_11 && self.response == ResponseProgress::Pending;
        if sends {
            self.awaits_continue = false;
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        sends
    }

    /// Sends an interim response, such as 103 Early Hints. Does nothing if the client uses HTTP/1.0,
    /// the response was started, or the status is not 1xx or is 101, which is final.
    pub fn send_informational(&mut self, status: StatusCode, headers: &Headers, out: &mut Vec<u8>) {
        if status == StatusCode::CONTINUE {
            return self.send_continue(out);
        }
        if is_interim(status)
            && self.version == Version::HTTP_11
            && self.response == ResponseProgress::Pending
        {
            encode::informational(status, headers, out);
        }
    }

    /// Sends the head of the final response, unless it was sent before. Returns how the body has to be
    /// framed.
    ///
    /// 101 turns the connection into a tunnel if the client offered to upgrade, and 2xx if the
    /// method is CONNECT. Any other 1xx status is not final, so 500 replaces it.
    pub fn send_head(&mut self, mut head: ResponseHead<'_>, out: &mut Vec<u8>) -> BodyFraming {
        // A second head, by a service that fails after its first, would be taken for the body.
        if let ResponseProgress::Started(body) = self.response {
            return body.framing;
        }
        let upgraded = head.status == StatusCode::SWITCHING_PROTOCOLS && self.upgrade;
        head.status = final_status(head.status, upgraded);
        let kind = RequestKind::of(&self.method);
        self.tunnel = upgraded || kind.begins_tunnel(head.status);

        let summary = head.headers.summary();
        let (framing, content_length) = self.framing(&head, &summary);
        let is_request_complete = matches!(self.reading, ReadState::Done);
        if framing == BodyFraming::UntilClose
            // The request was rejected by the parser, or there was none.
            || self.response == ResponseProgress::Ended
            // The client may send the announced body or omit it.
            || (self.awaits_continue && !is_request_complete)
            // Bytes after a rejected CONNECT may have been meant for the tunnel.
            || (kind.is_connect() && !self.tunnel)
        {
            self.persistent = false;
        }
        let upgrade = upgraded || head.status == StatusCode::UPGRADE_REQUIRED;
        let connection: &[u8] = match (upgrade, self.persistent, self.version) {
            _ if self.tunnel && !upgraded => b"",
            (true, ..) if upgraded => b"connection: upgrade\r\n",
            (true, true, _) => b"connection: upgrade\r\n",
            (true, false, _) => b"connection: close, upgrade\r\n",
            (false, false, _) => b"connection: close\r\n",
            // Without it, a client of HTTP/1.0 that asked for it closes the connection (RFC 9112 appendix C.2.2); ab
            // with `-k` counts on it.
            (false, true, Version::HTTP_10) => b"connection: keep-alive\r\n",
            (false, true, _) => b"",
        };
        let response_framing = ResponseFraming {
            body: framing,
            content_length,
            connection,
            upgrade,
        };
        encode::head(&head, summary, response_framing, out);
        self.response = ResponseProgress::Started(BodyWriter::new(framing));
        framing
    }

    /// The framing of the body, and the value of `Content-Length` (RFC 9110 section 8.6, RFC 9112
    /// section 6.3).
    fn framing(
        &self,
        head: &ResponseHead<'_>,
        summary: &FieldSummary,
    ) -> (BodyFraming, Option<u64>) {
        match head.status {
            _ if self.tunnel => (BodyFraming::None, None),
            // RFC 9110 section 8.6 forbids the length.
            StatusCode::NO_CONTENT => (BodyFraming::None, None),
            // RFC 9110 section 15.3.6: a 205 has no content, but unlike 204 it has to say so by its length.
            StatusCode::RESET_CONTENT => (BodyFraming::None, Some(0)),
            // Only the length that a 200 would have may be sent (RFC 9110 section 8.6), and only the service knows
            // that.
            StatusCode::NOT_MODIFIED => (BodyFraming::None, summary.content_length),
            // A service that responds to HEAD without producing the body leaves it empty. That length
            // is not the one that GET would have.
            _ if self.method == Method::HEAD => {
                let produced = head.content_length.filter(|length| *length > 0);
                (BodyFraming::None, summary.content_length.or(produced))
            }
            _ => match head.content_length {
                Some(length) => (BodyFraming::Length(length), Some(length)),
                // HTTP/1.0 has no chunked coding (RFC 9112 section 6.1): ab, and old proxies, would take its sizes for
                // data.
                None if self.version == Version::HTTP_10 => (BodyFraming::UntilClose, None),
                None => (BodyFraming::Chunked, None),
            },
        }
    }

    /// Sends the framing before `len` bytes of data. Sends nothing if the framing is not
    /// [`BodyFraming::Chunked`] or `len` is 0.
    pub fn send_chunk_start(&mut self, len: usize, out: &mut Vec<u8>) {
        if let ResponseProgress::Started(body) = &mut self.response {
            body.start_chunk(len, out);
        }
    }

    /// Sends the framing after the data of the open chunk.
    pub fn send_chunk_end(&mut self, out: &mut Vec<u8>) {
        if let ResponseProgress::Started(body) = &mut self.response {
            body.end_chunk(out);
        }
    }

    /// Ends the response, whatever its framing. With [`BodyFraming::Chunked`] it sends the last chunk
    /// and the trailer section, without the fields that it must not contain.
    pub fn send_end(&mut self, trailers: Option<&Headers>, out: &mut Vec<u8>) {
        let ResponseProgress::Started(body) = self.response else {
            return;
        };
        body.end(trailers, out);
        self.response = ResponseProgress::Ended;
        self.start_next_request();
    }

    fn body_ended(&mut self) {
        self.reading = ReadState::Done;
        self.start_next_request();
    }

    /// Prepares for the next request if the current one was read and its response ended.
    fn start_next_request(&mut self) {
        if matches!(self.reading, ReadState::Done)
            && self.response == ResponseProgress::Ended
            && self.keeps_alive()
        {
            self.reading = ReadState::Head;
            // What follows may be no request: the response to that is framed as one to a GET.
            self.method = Method::GET;
            self.version = Version::HTTP_11;
            self.upgrade = false;
            self.awaits_continue = false;
        }
    }
}
