//! Reads request heads: request line, field section and framing (RFC 9112 sections 3, 5 and 6).

use http::{Method, Version};

use super::field::{self, SectionPart};
use super::framing::{FramingFields, MessageLength};
use super::line::LineReader;
use super::{Http1Error, RequestFraming};
use apus_http::grammar::{is_host, is_token, trim};
use apus_http::hop_by_hop::HopByHopReader;
use apus_http::{FieldSet, Head, Headers, HopByHopFields, KnownField, Target};

/// The limits of a message head and of a trailer section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the request target; past it 414.
    pub target_bytes: usize,
    /// Bytes of the whole head, and of a trailer section; past it 431.
    pub head_bytes: usize,
    /// Field lines of the head, and of a trailer section; past it 431.
    pub fields: usize,
}

/// The head of a request that a server received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http1RequestHead {
    /// Request line and field lines. The version is HTTP/1.0 or HTTP/1.1. There is at most one
    /// `Host`, and it equals the authority of the target if the target has one.
    pub head: Box<Head>,
    /// Whether a body follows, and how it is framed.
    pub body: RequestFraming,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the client offers to switch protocols: an HTTP/1.1 request with `Upgrade`, which
    /// `Connection` names.
    pub upgrade: bool,
}

/// Reads one request head after the other.
#[derive(Debug, Default)]
pub(super) struct RequestReader {
    lines: LineReader,
    blank_lines: u8,
    /// Set once the request line was read.
    head: Option<Box<Head>>,
    fields: RequestFields,
}

/// The values of the fields that the codec interprets itself, of the lines that were read.
#[derive(Debug, Default)]
struct RequestFields {
    framing: FramingFields,
    hop_by_hop: HopByHopReader,
    host: bool,
    authorization: bool,
    expects_continue: bool,
}

/// A request head, and whether the connection persists after it (RFC 9112 section 9.3).
pub(super) struct ReceivedRequest {
    pub(super) head: Http1RequestHead,
    pub(super) persistent: bool,
}

impl RequestReader {
    /// Maximum empty lines before a request line (RFC 9112 section 2.2).
    // Old clients sent CRLF after the body of a POST. More than that is a flood that costs nothing to send.
    const BLANK_LINES: u8 = 2;
    /// Maximum bytes of a request line without the target: method, two spaces, version, CRLF.
    const LINE_OVERHEAD: usize = 64;
    /// Maximum initial capacity of a field section, since the input may hold more than one head.
    const FIELDS_CAPACITY: usize = 1024;

    /// Whether no byte of the next head was read yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.lines.is_untouched()
    }

    /// Consumes complete lines. Returns how many bytes they are, and the head once it is complete.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, Option<ReceivedRequest>), Http1Error> {
        let mut consumed = 0_usize;
        let section = (limits.head_bytes, Http1Error::HeadTooLarge);
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let Some(head) = &mut self.head else {
                // A ClientHello that was sent to the port of HTTP, for example, is recognised by its first byte,
                // and not kept until it has become longer than a request line may be.
                if rest.first().is_some_and(|first| !can_start_request(*first)) {
                    return Err(Http1Error::RequestLine);
                }
                let max_bytes = limits.target_bytes.saturating_add(Self::LINE_OVERHEAD);
                let line_limit = (max_bytes, Http1Error::TargetTooLong);
                let Some((line, bytes)) = self.lines.next(rest, section, line_limit)? else {
                    return Ok((consumed, None));
                };
                consumed = consumed.saturating_add(bytes);
                if line.is_empty() && self.blank_lines < Self::BLANK_LINES {
                    self.blank_lines = self.blank_lines.saturating_add(1);
                } else {
                    // A proxy adds fields about the client.
                    let received = rest.len().saturating_sub(bytes);
                    let capacity = received.saturating_add(256).min(Self::FIELDS_CAPACITY);
                    self.head = Some(self.request_line(line, limits, capacity)?);
                }
                continue;
            };
            let fields = &mut self.fields;
            let part = field::receive(
                &mut self.lines,
                &mut head.headers,
                rest,
                (section, limits.fields),
                RequestFields::INSPECTED,
                |field, value| fields.add(field, value),
            )?;
            match part {
                SectionPart::Lines(bytes) => consumed = consumed.saturating_add(bytes),
                SectionPart::Incomplete => return Ok((consumed, None)),
                SectionPart::End(bytes) => {
                    return Ok((consumed.saturating_add(bytes), Some(self.finish()?)));
                }
            }
        }
    }

    fn request_line(
        &self,
        line: &[u8],
        limits: &HeadLimits,
        capacity: usize,
    ) -> Result<Box<Head>, Http1Error> {
        match request_line(line, limits.target_bytes) {
            Err(Http1Error::Http2Preface) if self.blank_lines > 0 => Err(Http1Error::Version),
            Ok((method, target, version)) => Ok(Box::new(Head {
                method,
                target,
                version,
                headers: Headers::with_capacity(capacity),
                hop_by_hop: HopByHopFields::default(),
            })),
            Err(error) => Err(error),
        }
    }

    /// The head, after its last line was read.
    fn finish(&mut self) -> Result<ReceivedRequest, Http1Error> {
        let Self { head, fields, .. } = std::mem::take(self);
        let mut head = head.ok_or(Http1Error::RequestLine)?;
        let http11 = head.version == Version::HTTP_11;
        // RFC 9112 section 3.2. Without it, each hop chooses its own default site.
        if http11 && !fields.host {
            return Err(Http1Error::HostMissing);
        }
        let body = match fields.framing.resolve(head.version)? {
            MessageLength::Unspecified | MessageLength::Known(0) => RequestFraming::None,
            MessageLength::Known(length) => RequestFraming::Length(length),
            MessageLength::Chunked => RequestFraming::Chunked,
        };
        // The body of a CONNECT has no meaning (RFC 9110 section 9.3.6): a server that ignores its framing would
        // read it as the first bytes of the tunnel.
        if head.method == Method::CONNECT && body != RequestFraming::None {
            return Err(Http1Error::ConnectBody);
        }
        if let Some(authority) = head.target.authority()
            && head.headers.get("host") != Some(authority.as_bytes())
        {
            // RFC 9112 section 3.2.2: the authority of the target replaces `Host`.
            head.headers.remove("host");
            head.headers.push(b"host", authority.as_bytes());
        }
        if fields.hop_by_hop.are_too_many() {
            return Err(Http1Error::TooManyConnectionOptions);
        }
        head.hop_by_hop = fields.hop_by_hop.finish(&mut head.headers, head.version);
        Ok(ReceivedRequest {
            persistent: fields.framing.is_persistent(head.version),
            head: Http1RequestHead {
                upgrade: head.hop_by_hop.upgrade.is_some(),
                head,
                body,
                expects_continue: http11 && fields.expects_continue && body != RequestFraming::None,
            },
        })
    }
}

impl RequestFields {
    /// The fields that matter here.
    const INSPECTED: FieldSet = FieldSet::HOP_BY_HOP
        .and(FramingFields::FIELDS)
        .with(KnownField::Authorization)
        .with(KnownField::Host)
        .with(KnownField::Expect);

    /// Adds a line. Returns whether it is one of the end-to-end fields of the message.
    fn add(&mut self, field: KnownField, value: &[u8]) -> Result<bool, Http1Error> {
        match field {
            KnownField::Host => {
                if std::mem::replace(&mut self.host, true) {
                    // One server takes the first, another one the last: a cache before an origin would store the
                    // page of one site as the page of another.
                    return Err(Http1Error::HostRepeated);
                }
                // Refused here and not where it is used: it ends up in redirects, logs, variables of CGI and keys of
                // the cache.
                if !is_host(trim(value)) {
                    return Err(Http1Error::HostInvalid);
                }
            }
            KnownField::Authorization => {
                // A layer might check one of two, and the application behind it use the other one.
                if std::mem::replace(&mut self.authorization, true) {
                    return Err(Http1Error::AuthorizationRepeated);
                }
            }
            KnownField::Expect => {
                // A 417 (RFC 9110 section 10.1.1). An expectation that is passed on unread would be one that nobody
                // meets.
                if !trim(value).eq_ignore_ascii_case(b"100-continue") {
                    return Err(Http1Error::Expectation);
                }
                self.expects_continue = true;
            }
            field => self.framing.add(field, value)?,
        }
        let is_hop_by_hop = FieldSet::HOP_BY_HOP.has(field);
        if is_hop_by_hop {
            self.hop_by_hop.read(field, value);
        }
        Ok(!is_hop_by_hop)
    }
}

/// Whether a request line, or an empty line before it, can start with this byte. Most other protocols
/// are detected by their first byte.
fn can_start_request(byte: u8) -> bool {
    is_token(byte) || matches!(byte, b'\r' | b'\n')
}

fn request_line(line: &[u8], target_bytes: usize) -> Result<(Method, Target, Version), Http1Error> {
    let (rest, version) = match line.split_last_chunk::<9>() {
        Some((rest, b" HTTP/1.0")) => (rest, Version::HTTP_10),
        // A message of a higher minor version is one of the highest minor version that is implemented (RFC 9110
        // section 2.5).
        Some((rest, [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'])) => {
            (rest, Version::HTTP_11)
        }
        _ => return Err(version_error(line)),
    };
    let (method, target) = memchr::memchr(b' ', rest)
        .and_then(|space| Some((rest.get(..space)?, rest.get(space.checked_add(1)?..)?)))
        .ok_or(Http1Error::RequestLine)?;
    let method = Method::from_bytes(method).map_err(|_| Http1Error::RequestLine)?;
    if target.len() > target_bytes {
        return Err(Http1Error::TargetTooLong);
    }
    let target = std::str::from_utf8(target)
        .ok()
        .and_then(|target| Target::parse(&method, target).ok())
        .ok_or(Http1Error::Target)?;
    Ok((method, target, version))
}

/// The error for a request line that ends with neither supported version.
fn version_error(line: &[u8]) -> Http1Error {
    match line {
        b"PRI * HTTP/2.0" => Http1Error::Http2Preface,
        [.., b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Http1Error::Version
        }
        line if is_of_another_protocol(line) => Http1Error::OtherProtocol,
        _ => Http1Error::RequestLine,
    }
}

/// Whether the line has three words, and the last one names neither HTTP nor the version of a protocol. A protocol with a
/// version, as `RTSP/1.0`, has lines and responses like HTTP, so that its client understands a 400.
fn is_of_another_protocol(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_word = |word: Option<&[u8]>| {
        word.is_some_and(|word| !word.is_empty() && word.iter().all(u8::is_ascii_graphic))
    };
    let has_version = version.is_some_and(|version| {
        let name = version.first_chunk::<4>();
        version.contains(&b'/') || name.is_some_and(|name| name.eq_ignore_ascii_case(b"http"))
    });
    is_word(method) && is_word(target) && is_word(version) && words.next().is_none() && !has_version
}
