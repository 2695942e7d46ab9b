//! The server's side of an HTTP/1.1 connection (RFC 9112).

use std::ops::Range;

use http::{Method, StatusCode, Version};

use super::content::{ContentReader, ContentWriter, Piece};
use super::encode::{self, BodyFraming, Framed};
use super::head::HeadReader;
use super::{ContentFraming, HeadLimits, ProtocolError, RequestHead};
use apus_http::response_head::Survey;
use apus_http::{Headers, ResponseHead};

/// One connection as the server sees it: requests come out of the bytes of the client, answers
/// become bytes for it.
///
/// It owns no socket, no buffer and no clock. Its methods are of three kinds (nothing has to be
/// polled, since commands append to a buffer of the caller):
///
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet.
/// - **Commands**, which append to `out` what has to be sent:
///   [`send_continue`](Self::send_continue) and [`send_informational`](Self::send_informational),
///   then [`send_head`](Self::send_head); then the data, which the caller sends itself, between
///   [`send_chunk_start`](Self::send_chunk_start) and [`send_chunk_end`](Self::send_chunk_end) if
///   the framing is [`BodyFraming::Chunked`]; last, **for every answer**,
///   [`send_end`](Self::send_end). [`close`](Self::close) may come at any time.
/// - **Getters**: what the connection waits for, and whether it goes on.
///
/// The order for one request:
///
/// 1. `handle_input` until it gives [`Event::Request`].
/// 2. `handle_input` for the content, which gives [`Event::Data`] and one [`Event::End`], unless
///    [`request_body_done`](Self::request_body_done) already. The answer may go out meanwhile.
/// 3. `send_head`, the data, `send_end`.
/// 4. The next request, if [`keeps_alive`](Self::keeps_alive), from the same unconsumed input. It
///    comes once both the content was read and the answer ended; until then pipelined requests
///    stay unconsumed. Content that nobody wants has to be read all the same, or the connection
///    to be closed.
///
/// After a [`ProtocolError`] every further input is refused with the same error. Its status can be
/// sent as an answer unless a head was sent before; then the connection has to be closed, without
/// a `send_end` if the answer is not whole.
#[derive(Debug)]
pub struct ServerConnection {
    limits: HeadLimits,
    reading: Reading,
    head: HeadReader,
    answer: Answer,
    /// Requests that came.
    requests: u64,
    method: Method,
    version: Version,
    upgrade: bool,
    awaits_continue: bool,
    /// Whether another request may follow the current one.
    persistent: bool,
    tunnel: bool,
}

/// What the next input is.
#[derive(Debug)]
enum Reading {
    Head,
    Content(ContentReader),
    /// The request was read whole.
    Done,
    Failed(ProtocolError),
}

/// How far the answer to the current request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Due,
    Started(ContentWriter),
    Ended,
}

/// What was found in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing more before more input comes, or before the answer ended.
    Incomplete,
    /// A request.
    Request(RequestHead),
    /// Content of the request: this range of the input.
    Data(Range<usize>),
    /// The end of the request's content, and its trailer section if it has one.
    End(Option<Headers>),
}

impl ServerConnection {
    /// A connection before its first request.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            reading: Reading::Head,
            head: HeadReader::default(),
            answer: Answer::Ended,
            requests: 0,
            method: Method::GET,
            version: Version::HTTP_11,
            upgrade: false,
            awaits_continue: false,
            persistent: true,
            tunnel: false,
        }
    }

    /// Looks at the input that was not consumed yet. Tells how many bytes of it are consumed now and
    /// what was found; with [`Event::Incomplete`] some bytes may be consumed too. The rest has to be
    /// presented again, with more behind it.
    ///
    /// # Errors
    /// The client broke the protocol or met a limit. The connection has to be closed, after an
    /// answer with [`ProtocolError::status`] if none was begun.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<(usize, Event), ProtocolError> {
        let found = match &mut self.reading {
            Reading::Head if self.tunnel || !self.persistent => Ok((0, Event::Incomplete)),
            Reading::Head => self.handle_head(input),
            Reading::Content(content) => match content.read(input, &self.limits) {
                Ok((consumed, Piece::Incomplete)) => Ok((consumed, Event::Incomplete)),
                Ok((consumed, Piece::Data(range))) => Ok((consumed, Event::Data(range))),
                Ok((consumed, Piece::End(trailers))) => {
                    self.content_ended();
                    Ok((consumed, Event::End(trailers)))
                }
                Err(error) => Err(error),
            },
            Reading::Done => Ok((0, Event::Incomplete)),
            Reading::Failed(error) => Err(*error),
        };
        if let Err(error) = found {
            self.reading = Reading::Failed(error);
            self.persistent = false;
        }
        found
    }

    fn handle_head(&mut self, input: &[u8]) -> Result<(usize, Event), ProtocolError> {
        let (consumed, read) = match self.head.read(input, &self.limits) {
            // The preface opens a connection.
            Err(ProtocolError::Http2Preface) if self.requests > 0 => {
                return Err(ProtocolError::Version);
            }
            read => read?,
        };
        let Some(read) = read else {
            return Ok((consumed, Event::Incomplete));
        };
        let request = read.head;
        self.requests = self.requests.saturating_add(1);
        self.reading = match request.content {
            ContentFraming::None => Reading::Done,
            ContentFraming::Length(length) => Reading::Content(ContentReader::Length(length)),
            ContentFraming::Chunked => {
                let nominated = request.head.hop_by_hop.nominated.join(&b',');
                Reading::Content(ContentReader::chunked(&nominated))
            }
        };
        self.answer = Answer::Due;
        self.method = request.head.method.clone();
        self.version = request.head.version;
        self.upgrade = request.upgrade;
        self.awaits_continue = request.expects_continue;
        self.persistent &= read.persistent;
        Ok((consumed, Event::Request(request)))
    }

    /// Whether the connection is between requests and nothing of the next head came: it is idle,
    /// rather than slow.
    pub fn is_idle(&self) -> bool {
        matches!(self.reading, Reading::Head) && self.head.is_untouched()
    }

    /// Whether nothing of the current request's content is outstanding.
    pub fn request_body_done(&self) -> bool {
        matches!(self.reading, Reading::Head | Reading::Done)
    }

    /// Whether another request may come after the current one, as far as is known. Final once the
    /// answer's head was sent.
    pub fn keeps_alive(&self) -> bool {
        self.persistent && !self.tunnel
    }

    /// Whether the answer turned the connection into a tunnel: 101, or 2xx to CONNECT. What is not
    /// consumed once [`request_body_done`](Self::request_body_done) belongs to the tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }

    /// Lets the current request be the last; the next head says `Connection: close`.
    pub fn close(&mut self) {
        self.persistent = false;
    }

    /// Tells a client that waits for it to send the content (RFC 9110 section 10.1.1). Does nothing
    /// if it does not wait, or the answer was begun.
    pub fn send_continue(&mut self, out: &mut Vec<u8>) {
        if self.awaits_continue && self.answer == Answer::Due {
            self.awaits_continue = false;
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Sends an interim answer, such as 103 Early Hints. Does nothing if the client speaks HTTP/1.0,
    /// the answer was begun, or the status is not 1xx or is 101, which is final.
    pub fn send_informational(&mut self, status: StatusCode, headers: &Headers, out: &mut Vec<u8>) {
        if status == StatusCode::CONTINUE {
            return self.send_continue(out);
        }
        if status.is_informational()
            && status != StatusCode::SWITCHING_PROTOCOLS
            && self.version == Version::HTTP_11
            && self.answer == Answer::Due
        {
            encode::informational(status, headers, out);
        }
    }

    /// Sends the head of the final answer, and tells how its content has to be sent. Does nothing if
    /// that was done before.
    ///
    /// 101 turns the connection into a tunnel if the client offered to upgrade, and 2xx if the
    /// method is CONNECT. Any other 1xx status is no final answer; 500 is sent in its place.
    pub fn send_head(&mut self, mut head: ResponseHead<'_>, out: &mut Vec<u8>) -> BodyFraming {
        if let Answer::Started(content) = self.answer {
            return content.framing;
        }
        let upgraded = head.status == StatusCode::SWITCHING_PROTOCOLS && self.upgrade;
        if head.status.is_informational() && !upgraded {
            head.status = StatusCode::INTERNAL_SERVER_ERROR;
        }
        let connect = self.method == Method::CONNECT;
        self.tunnel = upgraded || (connect && head.status.is_success());

        let survey = head.headers.survey();
        let (framing, content_length) = self.framing(&head, &survey);
        let request_is_whole = matches!(self.reading, Reading::Done);
        if framing == BodyFraming::UntilClose
            // There is no request that was understood, or none at all.
            || self.answer == Answer::Ended
            // The client may send the content it announced or leave it out.
            || (self.awaits_continue && !request_is_whole)
            // What follows a CONNECT that was refused may have been meant for the tunnel.
            || (connect && !self.tunnel)
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
            (false, true, Version::HTTP_10) => b"connection: keep-alive\r\n",
            (false, true, _) => b"",
        };
        let framed = Framed {
            framing,
            content_length,
            connection,
            upgrade,
        };
        encode::head(&head, survey, framed, out);
        self.answer = Answer::Started(ContentWriter::new(framing));
        framing
    }

    /// How the content is framed, and the value of `Content-Length` (RFC 9110 section 8.6, RFC 9112
    /// section 6.3).
    fn framing(&self, head: &ResponseHead<'_>, survey: &Survey) -> (BodyFraming, Option<u64>) {
        match head.status {
            _ if self.tunnel => (BodyFraming::None, None),
            StatusCode::NO_CONTENT => (BodyFraming::None, None),
            StatusCode::RESET_CONTENT => (BodyFraming::None, Some(0)),
            StatusCode::NOT_MODIFIED => (BodyFraming::None, survey.content_length),
            // A service that answers HEAD without making the content leaves it empty, which says
            // nothing of the length that GET would have.
            _ if self.method == Method::HEAD => {
                let made = head.content_length.filter(|length| *length > 0);
                (BodyFraming::None, survey.content_length.or(made))
            }
            _ => match head.content_length {
                Some(length) => (BodyFraming::Length(length), Some(length)),
                None if self.version == Version::HTTP_10 => (BodyFraming::UntilClose, None),
                None => (BodyFraming::Chunked, None),
            },
        }
    }

    /// Sends what stands before `len` bytes of data if the framing is [`BodyFraming::Chunked`], and
    /// nothing otherwise, or if `len` is 0.
    pub fn send_chunk_start(&mut self, len: usize, out: &mut Vec<u8>) {
        if let Answer::Started(content) = &mut self.answer {
            content.start_chunk(len, out);
        }
    }

    /// Sends what stands behind the data of a chunk that was started.
    pub fn send_chunk_end(&mut self, out: &mut Vec<u8>) {
        if let Answer::Started(content) = &mut self.answer {
            content.end_chunk(out);
        }
    }

    /// Ends the answer, whatever its framing. With [`BodyFraming::Chunked`] it sends the last chunk
    /// and the trailer section; fields that must not stand there are left out.
    pub fn send_end(&mut self, trailers: Option<&Headers>, out: &mut Vec<u8>) {
        let Answer::Started(content) = self.answer else {
            return;
        };
        content.end(trailers, out);
        self.answer = Answer::Ended;
        self.next_request();
    }

    fn content_ended(&mut self) {
        self.reading = Reading::Done;
        self.next_request();
    }

    /// Goes on to the next request if the current one was read and answered.
    fn next_request(&mut self) {
        if matches!(self.reading, Reading::Done)
            && self.answer == Answer::Ended
            && self.keeps_alive()
        {
            self.reading = Reading::Head;
            self.method = Method::GET;
            self.version = Version::HTTP_11;
            self.upgrade = false;
            self.awaits_continue = false;
        }
    }
}
