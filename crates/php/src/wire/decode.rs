//! Frames of a worker, read.

use apus_http::StatusCode;
use bytes::{Buf, Bytes, BytesMut};

use super::command::is_channel;
use super::{Command, HEADER, MAX_PAYLOAD, WireError, flag, kind};

/// How much of a frame is held before it is understood. Content is never held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the header block of an answer.
    pub header_block: u32,
    /// Bytes of a command: a message that is published, the payload of a task.
    pub command: u32,
    /// Bytes of any other text: a log line, a boot failure.
    pub text: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_block: 64 * 1024,
            command: 1024 * 1024,
            text: 64 * 1024,
        }
    }
}

/// What a worker says.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Who it is.
    Hello(Hello),
    /// It is booted, or done with what it did behind an answer, and takes requests from now on.
    Ready(Ready),
    /// The head of its answer. [`Event::Content`] and [`Event::End`] follow.
    Head(ResponseHead),
    /// Some content of its answer, never empty.
    Content(Bytes),
    /// Its answer is whole, or broke off.
    End(Ending),
    /// It wants so many more bytes of the request's content.
    Pull(u32),
    /// The answer to a ping.
    Pong,
    /// A line for the log.
    Log(Level, Bytes),
    /// Something that is done here and not in PHP.
    Command(Command),
    /// It could not boot, or refuses to go on: PHP's own message.
    Failed(Bytes),
    /// It takes no more requests; why.
    Bye(Bytes),
}

/// Who a worker is. Values that it did not tell are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// What it was started with.
    pub token: String,
    /// The number of its process, as it knows it.
    pub pid: String,
    /// The version of PHP.
    pub php: String,
    /// The SAPI, such as `fpm-fcgi`.
    pub sapi: String,
    /// How it takes requests: `worker`, `classic` or `native`.
    pub mode: String,
    /// The application's script.
    pub script: String,
    /// Whether `move_uploaded_file()` knows the files of this worker's requests.
    pub uploads: bool,
}

/// What an application says when it is booted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Its timers: name and milliseconds.
    pub timers: Vec<(String, u32)>,
    /// Whether it takes WebSockets.
    pub sockets: bool,
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The worker goes on working, and says READY when it is free.
    pub works_on: bool,
    /// The worker takes no more requests; BYE follows.
    pub leaves: bool,
    /// It broke off: what was sent is not whole.
    pub broke_off: bool,
}

impl Ending {
    fn of(flags: u8) -> Self {
        Self {
            works_on: flags & flag::WORKS_ON != 0,
            leaves: flags & flag::LEAVES != 0,
            broke_off: flags & flag::BROKE_OFF != 0,
        }
    }
}

/// The head of an answer.
#[derive(Debug, PartialEq)]
pub struct ResponseHead {
    /// The status: a final one, or 101 where a WebSocket is taken.
    pub status: StatusCode,
    /// Its lines, each with its end.
    pub block: Bytes,
    /// Bytes that PHP holds, as `memory_get_usage()` says.
    pub memory: u32,
    /// Bytes of the content, if all of it is in this frame.
    pub content_length: Option<u64>,
}

/// How grave a line for the log is, as RFC 5424 section 6.2.1 counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// 0 to 3.
    Error,
    /// 4.
    Warning,
    /// 5 and 6.
    Info,
    /// 7 and more.
    Debug,
}

/// Reads the frames of one worker.
///
/// [`Decoder::handle_input`] takes what was read from the connection and gives one event; it is called
/// again until it has none. Content is cut out of the input and not copied. After an error nothing more
/// can be read.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Between frames.
    Idle,
    /// Between the frames of an answer.
    Streaming,
    /// In content: bytes that are left of this frame, and the end if no more frames follow.
    Content {
        left: u32,
        end: Option<Ending>,
    },
    Broken(WireError),
}

/// A header that was read.
#[derive(Clone, Copy)]
struct Header {
    len: u32,
    kind: u8,
    flags: u8,
}

/// Bytes in front of a header block: status, reserved, memory, length of the block.
const FIXED: u32 = 12;

impl Decoder {
    /// For a worker that said nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Idle,
        }
    }

    /// Whether an answer began that is not whole.
    pub fn is_in_response(&self) -> bool {
        matches!(self.state, State::Streaming | State::Content { .. })
    }

    /// The next event in `input`, whose bytes are taken out; `None` if it has to be read on.
    ///
    /// # Errors
    /// See [`WireError`]; every later call gives the same.
    pub fn handle_input(&mut self, input: &mut BytesMut) -> Result<Option<Event>, WireError> {
        let result = self.next(input);
        if let Err(error) = result {
            self.state = State::Broken(error);
        }
        result
    }

    fn next(&mut self, input: &mut BytesMut) -> Result<Option<Event>, WireError> {
        loop {
            match self.state {
                State::Broken(error) => return Err(error),
                State::Content {
                    left: 0,
                    end: Some(ending),
                } => {
                    self.state = State::Idle;
                    return Ok(Some(Event::End(ending)));
                }
                State::Content { left: 0, end: None } => self.state = State::Streaming,
                State::Content { left, end } => {
                    let taken = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if taken == 0 {
                        return Ok(None);
                    }
                    let left = left.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
                    self.state = State::Content { left, end };
                    return Ok(Some(Event::Content(input.split_to(taken).freeze())));
                }
                State::Idle | State::Streaming => {
                    let Some(header) = self.header(input)? else {
                        return Ok(None);
                    };
                    match header.kind {
                        kind::RESPONSE => return self.response(header, input),
                        kind::CHUNK => {
                            input.advance(HEADER);
                            let is_last = header.flags & flag::FIRST != 0;
                            self.state = State::Content {
                                left: header.len,
                                end: is_last.then(|| Ending::of(header.flags)),
                            };
                        }
                        _ => return whole(header, input),
                    }
                }
            }
        }
    }

    /// The header at the front of `input`, if it is there and may be.
    fn header(&self, input: &[u8]) -> Result<Option<Header>, WireError> {
        let Some(&[a, b, c, d, kind, flags, one, two]) = input.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let header = Header {
            len: u32::from_le_bytes([a, b, c, d]),
            kind,
            flags,
        };
        let is_streaming = self.state == State::Streaming;
        let (max, known) = match kind {
            kind::RESPONSE if is_streaming => return Err(WireError::OutOfOrder(kind)),
            kind::CHUNK if !is_streaming => return Err(WireError::OutOfOrder(kind)),
            kind::HELLO | kind::READY | kind::BYE if is_streaming => {
                return Err(WireError::OutOfOrder(kind));
            }
            kind::RESPONSE if flags & flag::FIRST != 0 => (MAX_PAYLOAD, flag::FIRST),
            kind::RESPONSE => (MAX_PAYLOAD, flag::WORKS_ON | flag::LEAVES),
            // The last one carries nothing.
            kind::CHUNK if flags & flag::FIRST != 0 => (
                0,
                flag::FIRST | flag::WORKS_ON | flag::LEAVES | flag::BROKE_OFF,
            ),
            kind::CHUNK => (MAX_PAYLOAD, 0),
            kind::COMMAND => (self.limits.command, flag::BINARY | flag::EVENT_STREAM),
            kind::PULL => (4, 0),
            kind::PONG => (64, 0),
            kind::HELLO | kind::READY | kind::LOG | kind::FAILED | kind::BYE => {
                (self.limits.text, 0)
            }
            _ => return Err(WireError::UnknownType(kind)),
        };
        if flags & !known != 0 || one != 0 || two != 0 {
            return Err(WireError::Reserved(kind));
        }
        too_long(kind, header.len, max)?;
        Ok(Some(header))
    }

    fn response(
        &mut self,
        header: Header,
        input: &mut BytesMut,
    ) -> Result<Option<Event>, WireError> {
        let Header { len, kind, flags } = header;
        if len < FIXED {
            return Err(WireError::Malformed(kind));
        }
        let Some(&[s, t, r, u, a, b, c, d, e, f, g, h]) = input
            .get(HEADER..)
            .and_then(<[u8]>::first_chunk::<{ FIXED as usize }>)
        else {
            return Ok(None);
        };
        if [r, u] != [0, 0] {
            return Err(WireError::Reserved(kind));
        }
        let block_len = u32::from_le_bytes([e, f, g, h]);
        too_long(kind, block_len, self.limits.header_block)?;
        let Some(content) = (len - FIXED).checked_sub(block_len) else {
            return Err(WireError::Malformed(kind));
        };
        let begin = HEADER + FIXED as usize;
        let end = begin.saturating_add(usize::try_from(block_len).unwrap_or(usize::MAX));
        if input.len() < end {
            return Ok(None);
        }
        let code = u16::from_le_bytes([s, t]);
        let status = StatusCode::from_u16(code)
            .ok()
            .filter(|status| {
                !status.is_informational() || *status == StatusCode::SWITCHING_PROTOCOLS
            })
            .ok_or(WireError::Status(code))?;
        let mut block = input.split_to(end).freeze();
        block.advance(begin);
        let more = flags & flag::FIRST != 0;
        self.state = State::Content {
            left: content,
            end: (!more).then(|| Ending::of(flags)),
        };
        Ok(Some(Event::Head(ResponseHead {
            status,
            block,
            memory: u32::from_le_bytes([a, b, c, d]),
            content_length: (!more).then_some(content.into()),
        })))
    }
}

fn too_long(kind: u8, len: u32, max: u32) -> Result<(), WireError> {
    if len > max {
        return Err(WireError::TooLong {
            kind,
            len: len.into(),
            max: max.into(),
        });
    }
    Ok(())
}

/// The event of a frame that is held until it is there.
fn whole(header: Header, input: &mut BytesMut) -> Result<Option<Event>, WireError> {
    let len = usize::try_from(header.len).unwrap_or(usize::MAX);
    if input.len().saturating_sub(HEADER) < len {
        return Ok(None);
    }
    input.advance(HEADER);
    let mut payload = input.split_to(len).freeze();
    let malformed = WireError::Malformed(header.kind);
    Ok(Some(match header.kind {
        kind::HELLO => Event::Hello(hello(&payload)),
        kind::READY => Event::Ready(ready(&payload)),
        kind::PULL => Event::Pull(payload.try_get_u32_le().map_err(|_| malformed)?),
        kind::PONG => Event::Pong,
        kind::LOG => {
            let level = match payload.try_get_u8().map_err(|_| malformed)? {
                0..=3 => Level::Error,
                4 => Level::Warning,
                5 | 6 => Level::Info,
                _ => Level::Debug,
            };
            Event::Log(level, payload)
        }
        kind::COMMAND => Event::Command(Command::read(header.flags, payload).ok_or(malformed)?),
        kind::FAILED => Event::Failed(payload),
        kind::BYE => Event::Bye(payload),
        kind => return Err(WireError::UnknownType(kind)),
    }))
}

/// Lines of `key: value`.
fn hello(payload: &[u8]) -> Hello {
    let mut hello = Hello::default();
    for line in String::from_utf8_lossy(payload).lines() {
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        let place = match key {
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
            // A newer runtime file may tell more.
            _ => continue,
        };
        value.clone_into(place);
    }
    hello
}

/// Lines of `timer: NAME MILLISECONDS`, and `sockets: 1`.
fn ready(payload: &[u8]) -> Ready {
    let mut ready = Ready::default();
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
