//! The web server's side of a FastCGI connection (FastCGI 1.0 sections 3 to 6).

use std::ops::Range;

use super::head::HeadReader;
use super::record::{self, Header};
use super::{Params, ProtocolError, ResponseContent, ResponseHead};
use crate::h1::HeadLimits;

/// One connection as the web server sees it: requests become bytes for the application, answers come
/// out of its bytes.
///
/// It owns no socket, no buffer and no clock. A connection carries one request at a time, with the
/// application as Responder. Its methods are of three kinds:
///
/// - **Commands**, which append to `out` what has to be sent: [`send_request`](Self::send_request);
///   then the content, which the caller sends itself, each piece of at most
///   [`DATA_MOST`](Self::DATA_MOST) bytes behind a [`send_data_start`](Self::send_data_start); last,
///   for every request, [`send_end`](Self::send_end). [`send_abort`](Self::send_abort) may come at
///   any time before the answer is whole.
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet, and [`handle_eof`](Self::handle_eof) where they end.
/// - **Getters**: whether the answer is whole, and whether another request may follow.
///
/// The order for one request:
///
/// 1. `send_request`, the content, `send_end`. The answer may come meanwhile, and end: the rest of the
///    content is not wanted then, and the connection cannot be used again.
/// 2. `handle_input` gives one [`ClientEvent::Head`], then any number of [`ClientEvent::Data`], and one
///    [`ClientEvent::End`]. Among them, and before them, may be any number of
///    [`ClientEvent::Stderr`]. There is no end without the word of the application: an answer that
///    stops otherwise is [truncated](ProtocolError::Truncated).
/// 3. The next request, if [`keeps_alive`](Self::keeps_alive) and nothing of the input is left.
///
/// After a [`ProtocolError`] every further input is refused with the same error, and the connection
/// has to be closed.
#[derive(Debug)]
pub struct ClientConnection {
    limits: HeadLimits,
    reading: Reading,
    head: HeadReader,
    /// What is left of the record that is being read.
    record: Record,
    is_head: bool,
    /// Whether the application closed its output.
    output_ended: bool,
    keep: bool,
    writing: bool,
    aborted: bool,
}

/// What the application's output is.
#[derive(Debug)]
enum Reading {
    /// No answer is due.
    Nothing,
    Head,
    /// Content, with the bytes that are to come if the head told.
    Content(Option<u64>),
    /// Output that is no part of the answer.
    Excess,
    Failed(ProtocolError),
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    kind: Kind,
    content: usize,
    padding: usize,
}

/// What becomes of a record's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Output,
    Errors,
    End,
    #[default]
    Skipped,
}

/// What was found in the input.
#[derive(Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved once, and a box costs an allocation for each answer"
)]
pub enum ClientEvent {
    /// Nothing more before more input comes.
    Incomplete,
    /// The head of the answer.
    Head(ResponseHead),
    /// Content of the answer: this range of the input.
    Data(Range<usize>),
    /// What the application says to whoever runs it: this range of the input.
    Stderr(Range<usize>),
    /// The answer is whole.
    End {
        /// What the application says of itself: 0 mostly, as a program's exit status.
        app_status: u32,
    },
}

impl ClientConnection {
    /// The most content that one record carries, in bytes.
    pub const DATA_MOST: usize = record::CONTENT_MOST;

    /// A connection before its first request. The limit of the target is of no account.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            reading: Reading::Nothing,
            head: HeadReader::default(),
            record: Record::default(),
            is_head: false,
            output_ended: false,
            keep: true,
            writing: false,
            aborted: false,
        }
    }

    /// Sends what the application is told of a request. `is_head` says that its method is HEAD; the
    /// application is told by the parameters. Unless `keep`, the application closes the connection
    /// behind its answer.
    ///
    /// Tells whether it was sent: not if the connection carries another request, or can carry none.
    /// Nothing is appended then.
    #[must_use]
    pub fn send_request(
        &mut self,
        params: &Params,
        is_head: bool,
        keep: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.keeps_alive() || self.writing || !self.is_done() {
            return false;
        }
        record::begin(keep, out);
        record::stream(record::PARAMS, params.wire(), out);
        record::start(record::PARAMS, 0, out);
        self.reading = Reading::Head;
        self.head = HeadReader::default();
        self.is_head = is_head;
        self.output_ended = false;
        self.keep = keep;
        self.writing = true;
        true
    }

    /// Sends what stands before `len` bytes of content, at most [`DATA_MOST`](Self::DATA_MOST);
    /// nothing if `len` is 0, which would end the content.
    pub fn send_data_start(&mut self, len: usize, out: &mut Vec<u8>) {
        if let Ok(len @ 1..) = u16::try_from(len) {
            record::start(record::STDIN, len, out);
        }
    }

    /// Ends the content of the request.
    pub fn send_end(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.writing) {
            record::start(record::STDIN, 0, out);
        }
    }

    /// Asks the application to give up the request (section 5.4), if it has not ended it. The
    /// connection carries no other one then.
    pub fn send_abort(&mut self, out: &mut Vec<u8>) {
        if !self.is_done() && !std::mem::replace(&mut self.aborted, true) {
            record::start(record::ABORT_REQUEST, 0, out);
        }
    }

    /// Looks at the input that was not consumed yet. Tells how many bytes of it are consumed now and
    /// what was found; with [`ClientEvent::Incomplete`] some bytes may be consumed too. The rest has
    /// to be presented again, with more behind it.
    ///
    /// # Errors
    /// The application broke the protocol, met a limit, said something unasked, or ended without an
    /// answer.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<(usize, ClientEvent), ProtocolError> {
        if let Reading::Failed(error) = self.reading {
            return Err(error);
        }
        let found = self.read(input);
        if let Err(error) = found {
            self.reading = Reading::Failed(error);
        }
        found
    }

    /// Takes notice that no more input comes, after all of it was handled.
    ///
    /// # Errors
    /// [`ProtocolError::Truncated`]: an answer is not whole.
    pub fn handle_eof(&mut self) -> Result<(), ProtocolError> {
        self.keep = false;
        match self.reading {
            Reading::Nothing => Ok(()),
            Reading::Failed(error) => Err(error),
            _ => {
                self.reading = Reading::Failed(ProtocolError::Truncated);
                Err(ProtocolError::Truncated)
            }
        }
    }

    /// Whether no answer is outstanding.
    pub fn is_done(&self) -> bool {
        matches!(self.reading, Reading::Nothing)
    }

    /// Whether another request may be sent after the current one, as far as is known. Final once the
    /// answer is whole.
    pub fn keeps_alive(&self) -> bool {
        let is_broken = matches!(self.reading, Reading::Failed(_));
        self.keep && !self.aborted && !is_broken
    }

    fn read(&mut self, input: &[u8]) -> Result<(usize, ClientEvent), ProtocolError> {
        let mut consumed = 0_usize;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            if self.record.content == 0 {
                let padding = self.record.padding.min(rest.len());
                self.record.padding = self.record.padding.saturating_sub(padding);
                consumed = consumed.saturating_add(padding);
                let rest = rest.get(padding..).unwrap_or_default();
                if self.record.padding > 0 {
                    return Ok((consumed, ClientEvent::Incomplete));
                }
                let Some(header) = Header::read(rest) else {
                    // Another protocol is told at its first byte.
                    return match rest.first() {
                        None | Some(1) => Ok((consumed, ClientEvent::Incomplete)),
                        Some(_) => Err(ProtocolError::Version),
                    };
                };
                let header = header.ok_or(ProtocolError::Version)?;
                self.record = self.start_record(header)?;
                consumed = consumed.saturating_add(record::HEADER);
                continue;
            }
            let len = self.record.content.min(rest.len());
            if len == 0 {
                return Ok((consumed, ClientEvent::Incomplete));
            }
            let content = rest.get(..len).unwrap_or_default();
            match self.record.kind {
                Kind::Skipped => consumed = consumed.saturating_add(self.take(len)),
                Kind::Errors => {
                    let end = consumed.saturating_add(self.take(len));
                    return Ok((end, ClientEvent::Stderr(consumed..end)));
                }
                Kind::End => {
                    let Some(end) = content.first_chunk::<END_BODY>() else {
                        return Ok((consumed, ClientEvent::Incomplete));
                    };
                    let event = self.end(*end)?;
                    consumed = consumed.saturating_add(self.take(END_BODY));
                    // Nothing stands behind the padding of this record.
                    let padding = self.record.padding.min(rest.len().saturating_sub(END_BODY));
                    self.record.padding = self.record.padding.saturating_sub(padding);
                    return Ok((consumed.saturating_add(padding), event));
                }
                Kind::Output => {
                    let (taken, event) = self.output(content, consumed)?;
                    consumed = consumed.saturating_add(self.take(taken));
                    if let Some(event) = event {
                        return Ok((consumed, event));
                    }
                }
            }
        }
    }

    /// Takes `len` bytes off the record.
    fn take(&mut self, len: usize) -> usize {
        self.record.content = self.record.content.saturating_sub(len);
        len
    }

    fn start_record(&mut self, header: Header) -> Result<Record, ProtocolError> {
        let Header {
            kind,
            request,
            content,
            padding,
        } = header;
        if self.is_done() {
            return Err(ProtocolError::BehindEnd);
        }
        let kind = match (request, kind) {
            (record::REQUEST, record::STDOUT) if self.output_ended && content > 0 => {
                return Err(ProtocolError::BehindEnd);
            }
            (record::REQUEST, record::STDOUT) => {
                self.output_ended |= content == 0;
                Kind::Output
            }
            (record::REQUEST, record::STDERR) => Kind::Errors,
            (record::REQUEST, record::END_REQUEST) if usize::from(content) != END_BODY => {
                return Err(ProtocolError::RecordLength);
            }
            (record::REQUEST, record::END_REQUEST) => Kind::End,
            // The server's own word: answers to questions that were not asked, and records of a type
            // that may come to be (section 4). They mean nothing to a request.
            (record::MANAGEMENT, _) => Kind::Skipped,
            _ => return Err(ProtocolError::Unasked),
        };
        Ok(Record {
            kind,
            content: content.into(),
            padding: padding.into(),
        })
    }

    /// Takes output of the application, which stands at `start` of the input. Tells how much of it was
    /// taken.
    fn output(
        &mut self,
        content: &[u8],
        start: usize,
    ) -> Result<(usize, Option<ClientEvent>), ProtocolError> {
        match &mut self.reading {
            Reading::Head => {
                let (taken, is_whole) = self.head.read(content, &self.limits)?;
                if !is_whole {
                    return Ok((taken, None));
                }
                let head = std::mem::take(&mut self.head);
                let head = head.finish(self.is_head).ok_or(ProtocolError::Status)?;
                self.reading = match head.content {
                    ResponseContent::None => Reading::Excess,
                    ResponseContent::Length(length) => Reading::Content(Some(length)),
                    ResponseContent::UntilEnd => Reading::Content(None),
                };
                Ok((taken, Some(ClientEvent::Head(head))))
            }
            Reading::Content(left) => {
                let mut len = content.len();
                if let Some(left) = left {
                    len = usize::try_from(*left).unwrap_or(usize::MAX).min(len);
                    *left = left.saturating_sub(len as u64);
                    if *left == 0 {
                        self.reading = Reading::Excess;
                    }
                }
                let range = start..start.saturating_add(len);
                Ok((len, Some(ClientEvent::Data(range))))
            }
            Reading::Nothing | Reading::Excess | Reading::Failed(_) => Ok((content.len(), None)),
        }
    }

    /// What `FCGI_END_REQUEST` says.
    fn end(&mut self, body: [u8; END_BODY]) -> Result<ClientEvent, ProtocolError> {
        let [a, b, c, d, protocol_status, ..] = body;
        let app_status = u32::from_be_bytes([a, b, c, d]);
        match protocol_status {
            0 => {}
            1 => return Err(ProtocolError::CannotMultiplex),
            2 => return Err(ProtocolError::Overloaded),
            3 => return Err(ProtocolError::UnknownRole),
            status => return Err(ProtocolError::ProtocolStatus(status)),
        }
        match self.reading {
            Reading::Head => return Err(ProtocolError::NoHead(app_status)),
            Reading::Content(Some(_)) => return Err(ProtocolError::Truncated),
            _ => {}
        }
        // What is still being sent, the application will not read, or take for another request.
        self.keep &= !self.writing;
        self.reading = Reading::Nothing;
        Ok(ClientEvent::End { app_status })
    }
}

/// Bytes of the content of `FCGI_END_REQUEST`.
const END_BODY: usize = 8;
