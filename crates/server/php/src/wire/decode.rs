//! The decoder for the frames of a worker.

use apus_http::{StatusCode, is_interim};
use bytes::{Buf, Bytes, BytesMut};

use super::command::is_channel;
use super::{HEADER_LEN, MAX_PAYLOAD, PhpCommand, WireError, flag, kind};

/// The limits of frames that are buffered until they are complete. Bodies are never buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireLimits {
    /// The maximum length of the header block of a response.
    pub header_block: u32,
    /// The maximum length of a command, with its message or payload.
    pub command: u32,
    /// The maximum length of other texts, such as a log line or a boot failure.
    pub text: u32,
}

impl Default for WireLimits {
    fn default() -> Self {
        Self {
            header_block: 64 * 1024,
            command: 1024 * 1024,
            text: 64 * 1024,
        }
    }
}

/// An event that the decoder reads.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// The identity of the worker.
    Hello(Hello),
    /// The worker is booted, or has finished its work after a response, and accepts requests.
    Ready(ReadyFrame),
    /// An interim response, such as 103: its status, and its field lines with their line ends.
    Interim(StatusCode, Bytes),
    /// The head of the response. [`WorkerEvent::Body`] and [`WorkerEvent::End`] follow.
    Head(WorkerResponseHead),
    /// A piece of the response body, never empty.
    Body(Bytes),
    /// The end of the response.
    End(WorkerResponseEnd),
    /// The worker requests up to this many bytes of the request body.
    Pull(u32),
    /// The response to a ping.
    Pong,
    /// A line for the log.
    Log(LogLevel, Bytes),
    /// A command for the server.
    Command(PhpCommand),
    /// The worker cannot boot or handle the request, with the message of PHP.
    Failed(Bytes),
    /// The worker accepts no more requests, with the reason.
    Bye(Bytes),
}

/// The identity of a worker. Missing values are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The token that it was started with.
    pub token: String,
    /// Its process ID, as PHP reports it.
    pub pid: String,
    /// The version of PHP.
    pub php: String,
    /// The SAPI, such as `fpm-fcgi`.
    pub sapi: String,
    /// The mode of the application: `worker`, `classic` or `native`.
    pub mode: String,
    /// The application's script.
    pub script: String,
    /// Whether `move_uploaded_file()` works in this worker.
    pub uploads: bool,
}

/// The properties of a booted application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyFrame {
    /// The timers, with their names and intervals in milliseconds.
    pub timers: Vec<(String, u32)>,
    /// Whether it accepts WebSockets.
    pub sockets: bool,
}

/// How a response ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerResponseEnd {
    /// The worker continues to work, and sends READY when it is idle.
    pub continues_working: bool,
    /// The worker accepts no more requests; BYE follows.
    pub is_leaving: bool,
    /// The response is incomplete.
    pub is_truncated: bool,
}

impl WorkerResponseEnd {
    fn of(flags: u8) -> Self {
        Self {
            continues_working: flags & flag::CONTINUES_WORKING != 0,
            is_leaving: flags & flag::LEAVING != 0,
            is_truncated: flags & flag::TRUNCATED != 0,
        }
    }
}

/// The head of a response.
#[derive(Debug, PartialEq)]
pub struct WorkerResponseHead {
    /// The status: a final one, or 101 for an accepted WebSocket.
    pub status: StatusCode,
    /// The header field lines, with their line ends.
    pub block: Bytes,
    /// The memory of PHP in bytes, from `memory_get_usage()`.
    pub memory: u32,
    /// The length of the body, if this frame has the whole body.
    pub content_length: Option<u64>,
}

/// The severity of a log line, from the numbers of RFC 5424 section 6.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// 0 to 3.
    Error,
    /// 4.
    Warning,
    /// 5 and 6.
    Info,
    /// 7 and more.
    Debug,
}

/// Decodes the frames of one worker.
///
/// [`WireDecoder::handle_input`] consumes input and returns one event; call it until it returns `None`. Bodies share
/// the memory of the input. After an error the connection must be closed.
#[derive(Debug)]
pub struct WireDecoder {
    limits: WireLimits,
    state: DecoderState,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DecoderState {
    /// Between frames.
    Idle,
    /// Between the frames of a response.
    Streaming,
    /// In a body: the remaining bytes of this frame, and the end if it is the last frame.
    Body {
        left: u32,
        end: Option<WorkerResponseEnd>,
    },
    Failed(WireError),
}

/// The header of a frame.
#[derive(Clone, Copy)]
struct WireHeader {
    len: u32,
    kind: u8,
    flags: u8,
}

/// The length of the fields before a header block: status, reserved, memory, length of the block.
const RESPONSE_PREFIX_LEN: u32 = 12;

impl WireDecoder {
    /// A decoder for a new connection.
    pub fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            state: DecoderState::Idle,
        }
    }

    /// Whether a response has begun and not ended.
    pub fn is_in_response(&self) -> bool {
        matches!(
            self.state,
            DecoderState::Streaming | DecoderState::Body { .. }
        )
    }

    /// Consumes the next event of `input`; `None` if more input is needed.
    ///
    /// # Errors
    /// See [`WireError`]; every later call returns the same error.
    pub fn handle_input(&mut self, input: &mut BytesMut) -> Result<Option<WorkerEvent>, WireError> {
        let result = self.next(input);
        if let Err(error) = result {
            self.state = DecoderState::Failed(error);
        }
        result
    }

    fn next(&mut self, input: &mut BytesMut) -> Result<Option<WorkerEvent>, WireError> {
        loop {
            match self.state {
                DecoderState::Failed(error) => return Err(error),
                DecoderState::Body {
                    left: 0,
                    end: Some(end),
                } => {
                    self.state = DecoderState::Idle;
                    return Ok(Some(WorkerEvent::End(end)));
                }
                DecoderState::Body { left: 0, end: None } => self.state = DecoderState::Streaming,
                DecoderState::Body { left, end } => {
                    let len = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if len == 0 {
                        return Ok(None);
                    }
                    let left = left.saturating_sub(u32::try_from(len).unwrap_or(u32::MAX));
                    self.state = DecoderState::Body { left, end };
                    return Ok(Some(WorkerEvent::Body(input.split_to(len).freeze())));
                }
                DecoderState::Idle | DecoderState::Streaming => {
                    let Some(header) = self.header(input)? else {
                        return Ok(None);
                    };
                    match header.kind {
                        kind::RESPONSE => return self.response(header, input),
                        kind::CHUNK => {
                            input.advance(HEADER_LEN);
                            let is_last = header.flags & flag::FIRST != 0;
                            self.state = DecoderState::Body {
                                left: header.len,
                                end: is_last.then(|| WorkerResponseEnd::of(header.flags)),
                            };
                        }
                        _ => return buffered_event(header, input),
                    }
                }
            }
        }
    }

    /// Parses the header at the front of `input`, and checks that the frame is allowed here.
    fn header(&self, input: &[u8]) -> Result<Option<WireHeader>, WireError> {
        let Some(&[a, b, c, d, kind, flags, one, two]) = input.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = WireHeader {
            len: u32::from_le_bytes([a, b, c, d]),
            kind,
            flags,
        };
        let is_streaming = self.state == DecoderState::Streaming;
        let (max, allowed_flags) = match kind {
            kind::RESPONSE if is_streaming => return Err(WireError::OutOfOrder(kind)),
            kind::CHUNK if !is_streaming => return Err(WireError::OutOfOrder(kind)),
            kind::HELLO | kind::READY | kind::BYE | kind::INTERIM if is_streaming => {
                return Err(WireError::OutOfOrder(kind));
            }
            kind::RESPONSE if flags & flag::FIRST != 0 => (MAX_PAYLOAD, flag::FIRST),
            kind::RESPONSE => (MAX_PAYLOAD, flag::CONTINUES_WORKING | flag::LEAVING),
            // The last chunk has no payload.
            kind::CHUNK if flags & flag::FIRST != 0 => (
                0,
                flag::FIRST | flag::CONTINUES_WORKING | flag::LEAVING | flag::TRUNCATED,
            ),
            kind::CHUNK => (MAX_PAYLOAD, 0),
            kind::COMMAND => (self.limits.command, flag::BINARY | flag::EVENT_STREAM),
            kind::PULL => (4, 0),
            kind::INTERIM => (self.limits.header_block, 0),
            kind::PONG => (64, 0),
            kind::HELLO | kind::READY | kind::LOG | kind::FAILED | kind::BYE => {
                (self.limits.text, 0)
            }
            _ => return Err(WireError::UnknownType(kind)),
        };
        if flags & !allowed_flags != 0 || one != 0 || two != 0 {
            return Err(WireError::Reserved(kind));
        }
        check_len(kind, header.len, max)?;
        Ok(Some(header))
    }

    fn response(
        &mut self,
        header: WireHeader,
        input: &mut BytesMut,
    ) -> Result<Option<WorkerEvent>, WireError> {
        let WireHeader { len, kind, flags } = header;
        if len < RESPONSE_PREFIX_LEN {
            return Err(WireError::Malformed(kind));
        }
        let Some(&[s, t, r, u, a, b, c, d, e, f, g, h]) = input
            .get(HEADER_LEN..)
            .and_then(<[u8]>::first_chunk::<{ RESPONSE_PREFIX_LEN as usize }>)
        else {
            return Ok(None);
        };
        if [r, u] != [0, 0] {
            return Err(WireError::Reserved(kind));
        }
        let block_len = u32::from_le_bytes([e, f, g, h]);
        check_len(kind, block_len, self.limits.header_block)?;
        let Some(body_len) = (len - RESPONSE_PREFIX_LEN).checked_sub(block_len) else {
            return Err(WireError::Malformed(kind));
        };
        let begin = HEADER_LEN + RESPONSE_PREFIX_LEN as usize;
        let end = begin.saturating_add(usize::try_from(block_len).unwrap_or(usize::MAX));
        if input.len() < end {
            return Ok(None);
        }
        let code = u16::from_le_bytes([s, t]);
        let status = StatusCode::from_u16(code)
            .ok()
            .filter(|status| !is_interim(*status))
            .ok_or(WireError::Status(code))?;
        let mut block = input.split_to(end).freeze();
        block.advance(begin);
        let more = flags & flag::FIRST != 0;
        self.state = DecoderState::Body {
            left: body_len,
            end: (!more).then(|| WorkerResponseEnd::of(flags)),
        };
        Ok(Some(WorkerEvent::Head(WorkerResponseHead {
            status,
            block,
            memory: u32::from_le_bytes([a, b, c, d]),
            content_length: (!more).then_some(body_len.into()),
        })))
    }
}

fn check_len(kind: u8, len: u32, max: u32) -> Result<(), WireError> {
    if len > max {
        return Err(WireError::TooLong {
            kind,
            len: len.into(),
            max: max.into(),
        });
    }
    Ok(())
}

/// The event of a frame that is buffered until it is complete.
fn buffered_event(
    header: WireHeader,
    input: &mut BytesMut,
) -> Result<Option<WorkerEvent>, WireError> {
    let len = usize::try_from(header.len).unwrap_or(usize::MAX);
    if input.len().saturating_sub(HEADER_LEN) < len {
        return Ok(None);
    }
    input.advance(HEADER_LEN);
    let mut payload = input.split_to(len).freeze();
    let malformed = WireError::Malformed(header.kind);
    Ok(Some(match header.kind {
        kind::HELLO => WorkerEvent::Hello(hello(&payload)),
        kind::READY => WorkerEvent::Ready(ready(&payload)),
        kind::PULL => WorkerEvent::Pull(payload.try_get_u32_le().map_err(|_| malformed)?),
        kind::PONG => WorkerEvent::Pong,
        kind::LOG => {
            let level = match payload.try_get_u8().map_err(|_| malformed)? {
                0..=3 => LogLevel::Error,
                4 => LogLevel::Warning,
                5 | 6 => LogLevel::Info,
                _ => LogLevel::Debug,
            };
            WorkerEvent::Log(level, payload)
        }
        kind::COMMAND => {
            WorkerEvent::Command(PhpCommand::read(header.flags, payload).ok_or(malformed)?)
        }
        kind::INTERIM => {
            let code = payload.try_get_u16_le().map_err(|_| malformed)?;
            let status = StatusCode::from_u16(code)
                .ok()
                .filter(StatusCode::is_informational)
                .ok_or(WireError::Status(code))?;
            WorkerEvent::Interim(status, payload)
        }
        kind::FAILED => WorkerEvent::Failed(payload),
        kind::BYE => WorkerEvent::Bye(payload),
        kind => return Err(WireError::UnknownType(kind)),
    }))
}

/// Parses lines of `key: value`.
fn hello(payload: &[u8]) -> Hello {
    let mut hello = Hello::default();
    for line in String::from_utf8_lossy(payload).lines() {
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        let field = match key {
            "token" => &mut hello.token,
            "pid" => &mut hello.pid,
            "php" => &mut hello.php,
            "sapi" => &mut hello.sapi,
            "mode" => &mut hello.mode,
            "script" => &mut hello.script,
            "uploads" => {
                hello.uploads = value == "yes";
                continue;
            }
            // A newer runtime file may send more.
            _ => continue,
        };
        value.clone_into(field);
    }
    hello
}

/// Parses lines of `timer: NAME MILLISECONDS` and `sockets: 1`.
fn ready(payload: &[u8]) -> ReadyFrame {
    let mut ready = ReadyFrame::default();
    for line in String::from_utf8_lossy(payload).lines() {
        match line.split_once(": ") {
            Some(("timer", timer)) => {
                if let Some((name, every)) = timer.rsplit_once(' ')
                    && let Ok(every) = every.parse()
                    && is_channel(name.as_bytes())
                {
                    ready.timers.push((name.to_owned(), every));
                }
            }
            Some(("sockets", value)) => ready.sockets = value == "1",
            _ => {}
        }
    }
    ready
}
