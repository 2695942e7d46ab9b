//! The state machine of a FastCGI connection at the web server (FastCGI 1.0 sections 3 to 6).

use std::ops::Range;

use super::header_block::HeaderBlockReader;
use super::record::{self, RecordHeader};
use super::{BodyLength, CgiResponseHead, FastCgiError, Params};
use crate::h1::HeadLimits;

/// The web server's end of a connection: it encodes requests to the application and decodes its
/// responses.
///
/// It owns no socket, no buffer and no clock. A connection carries one request at a time, with the
/// application as Responder. It has three kinds of methods:
///
/// - **Commands**, which append the bytes to send to `out`: [`send_request`](Self::send_request);
///   then the body, which the caller sends itself, each piece of at most
///   [`MAX_DATA`](Self::MAX_DATA) bytes after a [`send_data_start`](Self::send_data_start); last,
///   for every request, [`send_end`](Self::send_end). [`send_abort`](Self::send_abort) may come at
///   any time before the response is complete.
/// - **Input**: [`handle_input`](Self::handle_input), with all bytes that were received and not
///   consumed yet, and [`handle_eof`](Self::handle_eof) at the end of input.
/// - **Getters**: whether the response is complete, and whether another request may follow.
///
/// The order for one request:
///
/// 1. `send_request`, the body, `send_end`. The response may arrive and end meanwhile. Then the rest of
///    the body is not needed, and the connection cannot be used again.
/// 2. `handle_input` returns one [`FastCgiEvent::Head`], then any number of [`FastCgiEvent::Data`], and
///    one [`FastCgiEvent::End`]. Any number of [`FastCgiEvent::Stderr`] may come before and between
///    them. Only `FCGI_END_REQUEST` ends a response; one that stops otherwise is
///    [truncated](FastCgiError::Truncated).
/// 3. The next request, if [`keeps_alive`](Self::keeps_alive) and no input is left.
///
/// After a [`FastCgiError`] every further input returns the same error, and the connection has to be
/// closed.
#[derive(Debug)]
pub struct FastCgiConnection {
    limits: HeadLimits,
    reading: ReadState,
    head: HeaderBlockReader,
    /// The unread part of the current record.
    record: PartialRecord,
    is_head: bool,
    /// Whether the application closed its output.
    output_ended: bool,
    keep: bool,
    writing: bool,
    aborted: bool,
    /// Output after the end of the body, in bytes.
    excess: u64,
}

/// What the connection expects from the application's output.
#[derive(Debug)]
enum ReadState {
    /// No response is expected.
    Nothing,
    Head,
    /// The body, with its remaining bytes if the head announced a length.
    Body(Option<u64>),
    /// Output after the end of the body, which is ignored.
    Excess,
    Failed(FastCgiError),
}

#[derive(Clone, Copy, Debug, Default)]
struct PartialRecord {
    kind: RecordKind,
    content: usize,
    padding: usize,
}

/// How the content of a record is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecordKind {
    Output,
    Errors,
    End,
    #[default]
    Skipped,
}

/// An event in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum FastCgiEvent {
    /// More input is needed.
    Incomplete,
    /// The head of the response.
    Head(CgiResponseHead),
    /// Data of the response body: this range of the input.
    Data(Range<usize>),
    /// Error output of the application: this range of the input.
    Stderr(Range<usize>),
    /// The response is complete.
    End {
        /// The exit status of the application, mostly 0.
        app_status: u32,
    },
}

impl FastCgiConnection {
    /// Maximum bytes of data in one record.
    pub const MAX_DATA: usize = record::MAX_CONTENT;

    /// A connection before its first request. The limit of the target is ignored.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            reading: ReadState::Nothing,
            head: HeaderBlockReader::default(),
            record: PartialRecord::default(),
            is_head: false,
            output_ended: false,
            keep: true,
            writing: false,
            aborted: false,
            excess: 0,
        }
    }

    /// Sends the parameters of a request. `is_head` is whether its method is HEAD, as the parameters say
    /// to the application. Unless `keep`, the application closes the connection after its response.
    ///
    /// Returns whether the request was sent. If another request is in progress, or the connection cannot
    /// be used again, nothing is appended.
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
        params.write_records(out);
        record::start(record::PARAMS, 0, out);
        self.reading = ReadState::Head;
        self.head = HeaderBlockReader::default();
        self.is_head = is_head;
        self.output_ended = false;
        self.keep = keep;
        self.writing = true;
        self.excess = 0;
        true
    }

    /// Sends the record header before `len` bytes of data, at most [`MAX_DATA`](Self::MAX_DATA). Sends
    /// nothing if `len` is 0, which would end the body.
    pub fn send_data_start(&mut self, len: usize, out: &mut Vec<u8>) {
        // An empty record would end the body.
        if let Ok(len @ 1..) = u16::try_from(len) {
            record::start(record::STDIN, len, out);
        }
    }

    /// Ends the body of the request.
    pub fn send_end(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.writing) {
            record::start(record::STDIN, 0, out);
        }
    }

    /// Asks the application to abort the request (section 5.4), unless it has ended. The connection cannot
    /// be used again.
    pub fn send_abort(&mut self, out: &mut Vec<u8>) {
        if !self.is_done() && !std::mem::replace(&mut self.aborted, true) {
            record::start(record::ABORT_REQUEST, 0, out);
        }
    }

    /// Parses the input that was not consumed yet. Returns how many bytes it consumed and the event
    /// that it found; with [`FastCgiEvent::Incomplete`] some bytes may be consumed too. The rest has
    /// to be passed again, followed by more input.
    ///
    /// # Errors
    /// The application broke the protocol, exceeded a limit, sent data without a request, or ended
    /// without a response.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<(usize, FastCgiEvent), FastCgiError> {
        if let ReadState::Failed(error) = self.reading {
            return Err(error);
        }
        let found = self.read(input);
        if let Err(error) = found {
            self.reading = ReadState::Failed(error);
        }
        found
    }

    /// Handles the end of input, after all input was handled.
    ///
    /// # Errors
    /// [`FastCgiError::Truncated`]: a response is incomplete.
    pub fn handle_eof(&mut self) -> Result<(), FastCgiError> {
        self.keep = false;
        match self.reading {
            ReadState::Nothing => Ok(()),
            ReadState::Failed(error) => Err(error),
            _ => {
                self.reading = ReadState::Failed(FastCgiError::Truncated);
                Err(FastCgiError::Truncated)
            }
        }
    }

    /// Whether no response is expected.
    pub fn is_done(&self) -> bool {
        matches!(self.reading, ReadState::Nothing)
    }

    /// How many bytes of output came after the end of the current response's body. They are ignored.
    pub fn excess(&self) -> u64 {
        self.excess
    }

    /// Whether another request may be sent after the current one. Final once the response is complete.
    pub fn keeps_alive(&self) -> bool {
        let is_broken = matches!(self.reading, ReadState::Failed(_));
        self.keep && !self.aborted && !is_broken
    }

    fn read(&mut self, input: &[u8]) -> Result<(usize, FastCgiEvent), FastCgiError> {
        let mut consumed = 0_usize;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            if self.record.content == 0 {
                let padding = self.record.padding.min(rest.len());
                self.record.padding = self.record.padding.saturating_sub(padding);
                consumed = consumed.saturating_add(padding);
                let rest = rest.get(padding..).unwrap_or_default();
                if self.record.padding > 0 {
                    return Ok((consumed, FastCgiEvent::Incomplete));
                }
                let Some(header) = RecordHeader::read(rest) else {
                    // The first byte is the version, which detects another protocol.
                    return match rest.first() {
                        None | Some(1) => Ok((consumed, FastCgiEvent::Incomplete)),
                        Some(_) => Err(FastCgiError::Version),
                    };
                };
                let header = header.ok_or(FastCgiError::Version)?;
                self.record = self.start_record(header)?;
                consumed = consumed.saturating_add(record::HEADER_BYTES);
                continue;
            }
            let len = self.record.content.min(rest.len());
            if len == 0 {
                return Ok((consumed, FastCgiEvent::Incomplete));
            }
            let content = rest.get(..len).unwrap_or_default();
            match self.record.kind {
                RecordKind::Skipped => consumed = consumed.saturating_add(self.consume(len)),
                RecordKind::Errors => {
                    let end = consumed.saturating_add(self.consume(len));
                    return Ok((end, FastCgiEvent::Stderr(consumed..end)));
                }
                RecordKind::End => {
                    let Some(end) = content.first_chunk::<END_BODY_BYTES>() else {
                        return Ok((consumed, FastCgiEvent::Incomplete));
                    };
                    let event = self.end(*end)?;
                    consumed = consumed.saturating_add(self.consume(END_BODY_BYTES));
                    // The padding of this record ends the response.
                    let padding = self
                        .record
                        .padding
                        .min(rest.len().saturating_sub(END_BODY_BYTES));
                    self.record.padding = self.record.padding.saturating_sub(padding);
                    return Ok((consumed.saturating_add(padding), event));
                }
                RecordKind::Output => {
                    let (taken, event) = self.output(content, consumed)?;
                    consumed = consumed.saturating_add(self.consume(taken));
                    if let Some(event) = event {
                        return Ok((consumed, event));
                    }
                }
            }
        }
    }

    /// Consumes `len` bytes of the record's content.
    fn consume(&mut self, len: usize) -> usize {
        self.record.content = self.record.content.saturating_sub(len);
        len
    }

    fn start_record(&mut self, header: RecordHeader) -> Result<PartialRecord, FastCgiError> {
        let RecordHeader {
            kind,
            request,
            content,
            padding,
        } = header;
        // Output after the end would be taken for the response to the next request on the connection.
        if self.is_done() {
            return Err(FastCgiError::DataAfterEnd);
        }
        let kind = match (request, kind) {
            (record::REQUEST, record::STDOUT) if self.output_ended && content > 0 => {
                return Err(FastCgiError::DataAfterEnd);
            }
            (record::REQUEST, record::STDOUT) => {
                self.output_ended |= content == 0;
                RecordKind::Output
            }
            (record::REQUEST, record::STDERR) => RecordKind::Errors,
            (record::REQUEST, record::END_REQUEST) if usize::from(content) != END_BODY_BYTES => {
                return Err(FastCgiError::RecordLength);
            }
            (record::REQUEST, record::END_REQUEST) => RecordKind::End,
            // Management records of the server (section 4), including records of unknown types, do
            // not concern a request.
            (record::MANAGEMENT, _) => RecordKind::Skipped,
            _ => return Err(FastCgiError::UnexpectedRecord),
        };
        Ok(PartialRecord {
            kind,
            content: content.into(),
            padding: padding.into(),
        })
    }

    /// Handles output of the application that begins at `start` of the input. Returns how many bytes it
    /// consumed.
    fn output(
        &mut self,
        content: &[u8],
        start: usize,
    ) -> Result<(usize, Option<FastCgiEvent>), FastCgiError> {
        match &mut self.reading {
            ReadState::Head => {
                let (taken, is_complete) = self.head.read(content, &self.limits)?;
                if !is_complete {
                    return Ok((taken, None));
                }
                let head = std::mem::take(&mut self.head);
                let head = head.finish(self.is_head)?;
                self.reading = match head.body {
                    BodyLength::None => ReadState::Excess,
                    BodyLength::Length(length) => ReadState::Body(Some(length)),
                    BodyLength::UntilEnd => ReadState::Body(None),
                };
                Ok((taken, Some(FastCgiEvent::Head(head))))
            }
            ReadState::Body(left) => {
                let mut len = content.len();
                if let Some(left) = left {
                    len = usize::try_from(*left).unwrap_or(usize::MAX).min(len);
                    *left = left.saturating_sub(len as u64);
                    if *left == 0 {
                        self.reading = ReadState::Excess;
                    }
                }
                let range = start..start.saturating_add(len);
                Ok((len, Some(FastCgiEvent::Data(range))))
            }
            ReadState::Nothing | ReadState::Excess | ReadState::Failed(_) => {
                self.excess = self.excess.saturating_add(content.len() as u64);
                Ok((content.len(), None))
            }
        }
    }

    /// Handles the content of `FCGI_END_REQUEST`.
    fn end(&mut self, body: [u8; END_BODY_BYTES]) -> Result<FastCgiEvent, FastCgiError> {
        let [a, b, c, d, protocol_status, ..] = body;
        let app_status = u32::from_be_bytes([a, b, c, d]);
        match protocol_status {
            0 => {}
            1 => return Err(FastCgiError::CannotMultiplex),
            2 => return Err(FastCgiError::Overloaded),
            3 => return Err(FastCgiError::UnknownRole),
            status => return Err(FastCgiError::ProtocolStatus(status)),
        }
        match self.reading {
            ReadState::Head => return Err(FastCgiError::NoHead(app_status)),
            // A script that announces a length and dies has END_REQUEST all the same: without the check, its half
            // response would count as whole, and be cached.
            ReadState::Body(Some(_)) => return Err(FastCgiError::ShortBody),
            _ => {}
        }
        // The application does not read the rest of the request, or takes it for another one.
        self.keep &= !self.writing;
        self.reading = ReadState::Nothing;
        Ok(FastCgiEvent::End { app_status })
    }
}

/// Bytes of the content of `FCGI_END_REQUEST`.
const END_BODY_BYTES: usize = 8;
