//! The head of a request: request line, field section, framing (RFC 9112 sections 3, 5 and 6).

use http::{Method, Version};

use super::ProtocolError;
use super::field;
use super::framing::{Framing, Told};
use super::line::LineReader;
use apus_http::grammar::{is_host, is_token, trim};
use apus_http::hop_by_hop::HopByHopReader;
use apus_http::{Head, Headers, HopByHop, Target};

/// How large a request head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the request target; past it 414.
    pub target_bytes: usize,
    /// Bytes of the whole head, and of a trailer section; past it 431.
    pub head_bytes: usize,
    /// Field lines of the head, and of a trailer section; past it 431.
    pub fields: usize,
}

/// A request as far as its head tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Request line and field lines. The version is HTTP/1.0 or HTTP/1.1. `Host` is there at most
    /// once, and is what the target names if it does.
    pub head: Box<Head>,
    /// Whether content follows and how it is framed.
    pub content: ContentFraming,
    /// The client waits for `100 Continue` before it sends the content.
    pub expects_continue: bool,
    /// The client offers to switch protocols: `Upgrade`, and `Connection` naming it, in HTTP/1.1.
    pub upgrade: bool,
}

/// How the content of a request is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFraming {
    /// There is no content.
    None,
    /// So many bytes, at least one.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// Reads heads one after the other.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    lines: LineReader,
    blank_lines: u8,
    /// There from the request line on.
    head: Option<Box<Head>>,
    asked: Asked,
}

/// What the field lines so far say about framing, the connection, and what is asked for.
#[derive(Debug, Default)]
struct Asked {
    framing: Framing,
    hop_by_hop: HopByHopReader,
    host: bool,
    expects_continue: bool,
}

/// A head and whether the client lets the connection persist after it (RFC 9112 section 9.3).
pub(super) struct ReadHead {
    pub(super) head: RequestHead,
    pub(super) persistent: bool,
}

impl HeadReader {
    /// Empty lines taken before a request line (RFC 9112 section 2.2).
    const BLANK_LINES: u8 = 2;
    /// Bytes of a request line beside the target: a method, two spaces, the version, CRLF.
    const AROUND_TARGET: usize = 64;
    /// A first guess at the bytes of a field section when the input holds more than one head.
    const FIELDS_CAPACITY: usize = 2048;

    /// Whether nothing of the next head came yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.lines.is_untouched()
    }

    /// Takes whole lines. Tells how many bytes they are, and the head once it is whole.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, Option<ReadHead>), ProtocolError> {
        let mut consumed = 0_usize;
        let section = (limits.head_bytes, ProtocolError::HeadTooLarge);
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let Some(head) = &mut self.head else {
                if rest.first().is_some_and(|first| !starts(*first)) {
                    return Err(ProtocolError::RequestLine);
                }
                let most = limits.target_bytes.saturating_add(Self::AROUND_TARGET);
                let line_limit = (most, ProtocolError::TargetTooLong);
                let Some((line, bytes)) = self.lines.next(rest, section, line_limit)? else {
                    return Ok((consumed, None));
                };
                consumed = consumed.saturating_add(bytes);
                if line.is_empty() && self.blank_lines < Self::BLANK_LINES {
                    self.blank_lines = self.blank_lines.saturating_add(1);
                } else {
                    let capacity = rest.len().saturating_sub(bytes).min(Self::FIELDS_CAPACITY);
                    self.head = Some(self.request_line(line, limits, capacity)?);
                }
                continue;
            };
            let Some((line, bytes)) = self.lines.next(rest, section, section)? else {
                return Ok((consumed, None));
            };
            consumed = consumed.saturating_add(bytes);
            if line.is_empty() {
                return Ok((consumed, Some(self.finish()?)));
            }
            let (name, value) = field::split(line)?;
            if head.headers.len() >= limits.fields {
                return Err(ProtocolError::TooManyFields);
            }
            self.asked.note(name, value)?;
            if self.asked.hop_by_hop.take(name, value) {
                continue;
            }
            let whole = rest.get(..bytes).unwrap_or_default();
            head.headers.push_received(whole, name, value);
        }
    }

    fn request_line(
        &self,
        line: &[u8],
        limits: &HeadLimits,
        capacity: usize,
    ) -> Result<Box<Head>, ProtocolError> {
        match request_line(line, limits.target_bytes) {
            Err(ProtocolError::Http2Preface) if self.blank_lines > 0 => Err(ProtocolError::Version),
            Ok((method, target, version)) => Ok(Box::new(Head {
                method,
                target,
                version,
                headers: Headers::with_capacity(capacity),
                hop_by_hop: HopByHop::default(),
            })),
            Err(error) => Err(error),
        }
    }

    /// The head, when its last line was taken.
    fn finish(&mut self) -> Result<ReadHead, ProtocolError> {
        let Self { head, asked, .. } = std::mem::take(self);
        let mut head = head.ok_or(ProtocolError::RequestLine)?;
        let http11 = head.version == Version::HTTP_11;
        if http11 && !asked.host {
            return Err(ProtocolError::HostMissing);
        }
        let content = match asked.framing.told(head.version)? {
            Told::Nothing | Told::Length(0) => ContentFraming::None,
            Told::Length(length) => ContentFraming::Length(length),
            Told::Chunked => ContentFraming::Chunked,
        };
        if head.method == Method::CONNECT && content != ContentFraming::None {
            return Err(ProtocolError::ConnectContent);
        }
        if let Some(authority) = head.target.authority()
            && head.headers.get("host") != Some(authority.as_bytes())
        {
            // RFC 9112 section 3.2.2: what the target names is the host, whatever `Host` says.
            head.headers.remove("host");
            head.headers.push(b"host", authority.as_bytes());
        }
        if asked.hop_by_hop.are_too_many() {
            return Err(ProtocolError::TooManyConnectionOptions);
        }
        head.hop_by_hop = asked.hop_by_hop.finish(&mut head.headers, head.version);
        Ok(ReadHead {
            persistent: asked.framing.is_persistent(head.version),
            head: RequestHead {
                upgrade: head.hop_by_hop.upgrade.is_some(),
                head,
                content,
                expects_continue: http11
                    && asked.expects_continue
                    && content != ContentFraming::None,
            },
        })
    }
}

impl Asked {
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), ProtocolError> {
        // Most names are told apart by their length alone.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if std::mem::replace(&mut self.host, true) {
                    return Err(ProtocolError::HostRepeated);
                }
                if !is_host(trim(value)) {
                    return Err(ProtocolError::HostInvalid);
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if !trim(value).eq_ignore_ascii_case(b"100-continue") {
                    return Err(ProtocolError::Expectation);
                }
                self.expects_continue = true;
            }
            _ => self.framing.note(name, value)?,
        }
        Ok(())
    }
}

/// Whether a request line, or an empty line before it, can start with this byte. Another protocol on
/// this port is told at its first byte.
fn starts(byte: u8) -> bool {
    is_token(byte) || matches!(byte, b'\r' | b'\n')
}

fn request_line(
    line: &[u8],
    target_bytes: usize,
) -> Result<(Method, Target, Version), ProtocolError> {
    let (rest, version) = if let Some(rest) = line.strip_suffix(b" HTTP/1.1") {
        (rest, Version::HTTP_11)
    } else if let Some(rest) = line.strip_suffix(b" HTTP/1.0") {
        (rest, Version::HTTP_10)
    } else {
        return Err(other_version(line));
    };
    let (method, target) = memchr::memchr(b' ', rest)
        .and_then(|space| Some((rest.get(..space)?, rest.get(space.checked_add(1)?..)?)))
        .ok_or(ProtocolError::RequestLine)?;
    let method = Method::from_bytes(method).map_err(|_| ProtocolError::RequestLine)?;
    if target.len() > target_bytes {
        return Err(ProtocolError::TargetTooLong);
    }
    let target = std::str::from_utf8(target)
        .ok()
        .and_then(|target| Target::parse(&method, target).ok())
        .ok_or(ProtocolError::Target)?;
    Ok((method, target, version))
}

/// What is wrong with a line that ends with neither version.
fn other_version(line: &[u8]) -> ProtocolError {
    match line {
        b"PRI * HTTP/2.0" => ProtocolError::Http2Preface,
        [.., b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            ProtocolError::Version
        }
        line if is_of_another_protocol(line) => ProtocolError::OtherProtocol,
        _ => ProtocolError::RequestLine,
    }
}

/// Whether the line has three words, the last of which does not begin as a version of HTTP does.
fn is_of_another_protocol(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_word = |word: Option<&[u8]>| {
        word.is_some_and(|word| !word.is_empty() && word.iter().all(u8::is_ascii_graphic))
    };
    let is_http = version
        .and_then(|version| version.first_chunk::<4>())
        .is_some_and(|name| name.eq_ignore_ascii_case(b"http"));
    is_word(method) && is_word(target) && is_word(version) && words.next().is_none() && !is_http
}
