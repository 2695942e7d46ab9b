//! Turns field sections into requests, responses and trailers (RFC 9113 section 8, RFC 9114 section 4).

use http::{Method, StatusCode, Version};

use super::{HeadRefusal, MessageFault, RequestKind, SectionError};
use crate::field_compression::Field;
use crate::priority::Priority;
use apus_http::grammar::{is_host, is_token, parse_decimal};
use apus_http::trailers::is_allowed_in_trailers;
use apus_http::{Head, Headers, HopByHopFields, KnownField, Target};

/// The size of a field line beyond its bytes (RFC 9113 section 6.5.2).
const LINE_OVERHEAD: usize = 32;

/// Beyond this multiple of the size limit, a field section is a decompression bomb.
// Between the limit and this, the section is decoded and gets a 431. Beyond, decoding itself is the attack
// (CVE-2016-6581), and the connection ends.
const BOMB_FACTOR: usize = 16;

/// The limits of this end for field sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionLimits {
    /// Maximum bytes of a request target.
    pub target_bytes: usize,
    /// Maximum bytes of a field section, each line counted with 32 extra bytes.
    pub head_bytes: usize,
    /// Maximum field lines of a field section, all `cookie` lines counted as one.
    pub fields: usize,
    /// Whether extended CONNECT is offered (RFC 8441, RFC 9220).
    pub extended_connect: bool,
}

/// The kind of a field section, which decides the allowed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// The head of a request.
    Request,
    /// The head of a response.
    Response,
    /// A trailer section.
    Trailers,
}

/// Collects the fields of one section, in their order.
#[derive(Debug)]
pub struct FieldReader<'a> {
    section: SectionKind,
    limits: SectionLimits,
    scratch: &'a mut SectionBuffers,
    headers: Headers,
    fault: Option<MessageFault>,
    refusal: Option<HeadRefusal>,
    /// The size of the section as SETTINGS_MAX_HEADER_LIST_SIZE counts it.
    size: usize,
    method: Option<Method>,
    scheme: bool,
    status: Option<StatusCode>,
    has_authority: bool,
    has_host: bool,
    /// Whether a regular field was read, which no pseudo-header field may follow.
    has_regular: bool,
    content_length: Option<u64>,
    expects_continue: bool,
    priority: Priority,
}

/// Buffers for values that are joined, reused for each section.
#[derive(Debug, Default)]
pub struct SectionBuffers {
    path: Vec<u8>,
    protocol: Vec<u8>,
    cookies: Vec<u8>,
    never_index_cookies: bool,
}

/// The parsed field section of a request.
#[derive(Debug)]
pub struct RequestSection {
    /// Method, target and fields.
    pub head: Box<Head>,
    /// What the response depends on.
    pub kind: RequestKind,
    /// The announced length of the body in bytes.
    pub content_length: Option<u64>,
    /// Whether the client waits for `100 Continue`.
    pub expects_continue: bool,
    /// The priority of the response.
    pub priority: Priority,
}

/// A request whose head a server has received over the stream with the key `K`.
#[derive(Debug)]
pub struct IncomingRequest<K> {
    /// Its stream.
    pub stream: K,
    /// Method, target and fields. `host` is the first field if the request has an authority, and cookie fields are
    /// joined. An extended CONNECT (RFC 8441, RFC 9220) becomes a GET with `connection: upgrade` and `upgrade`, as in
    /// HTTP/1.1; the response to it is a 101.
    pub head: Box<Head>,
    /// Whether there is no body.
    pub end: bool,
    /// The announced length of the body.
    pub content_length: Option<u64>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// What the response depends on.
    pub kind: RequestKind,
}

/// The parsed field section of a response.
#[derive(Debug)]
pub struct ResponseSection {
    /// The status, except 101.
    pub status: StatusCode,
    /// The field lines.
    pub headers: Headers,
    /// The announced length of the body in bytes.
    pub content_length: Option<u64>,
}

impl RequestSection {
    /// The request over a stream, with or without an `end` of that behind the head.
    pub fn into_request<K>(self, stream: K, end: bool) -> IncomingRequest<K> {
        IncomingRequest {
            stream,
            head: self.head,
            end,
            content_length: self.content_length,
            // RFC 9110 section 10.1.1: the expectation of a request without a body is ignored.
            expects_continue: self.expects_continue && !end,
            kind: self.kind,
        }
    }
}

impl SectionBuffers {
    /// Maximum bytes that each buffer keeps allocated.
    const RETAINED_CAPACITY: usize = 1024;

    fn clear(&mut self) {
        for buffer in [&mut self.path, &mut self.protocol, &mut self.cookies] {
            buffer.clear();
            buffer.shrink_to(Self::RETAINED_CAPACITY);
        }
        self.never_index_cookies = false;
    }
}

impl<'a> FieldReader<'a> {
    /// A reader of one section, whose encoded form has `block_len` bytes.
    #[inline]
    pub fn new(
        section: SectionKind,
        limits: SectionLimits,
        scratch: &'a mut SectionBuffers,
        block_len: usize,
    ) -> Self {
        scratch.clear();
        // Well-compressed fields are many times as long as their block.
        let capacity = block_len.saturating_mul(2).clamp(256, 2048);
        Self {
            section,
            limits,
            scratch,
            headers: Headers::with_capacity(capacity),
            fault: None,
            refusal: None,
            size: 0,
            method: None,
            scheme: false,
            status: None,
            has_authority: false,
            has_host: false,
            has_regular: false,
            content_length: None,
            expects_continue: false,
            priority: Priority::DEFAULT,
        }
    }

    /// Whether the section is a decompression bomb.
    pub fn is_bomb(&self) -> bool {
        self.size > self.limits.head_bytes.saturating_mul(BOMB_FACTOR)
    }

    /// Adds the next field.
    #[inline]
    pub fn add(&mut self, field: Field<'_>) {
        let Field {
            name,
            value,
            is_valid,
            never_indexed,
        } = field;
        self.size = self
            .size
            .saturating_add(name.len())
            .saturating_add(value.len())
            .saturating_add(LINE_OVERHEAD);
        // Fields are still counted after that, but neither checked nor kept: the block has to be decoded to its end in
        // any case.
        if self.fault.is_some() || self.refusal.is_some() {
            return;
        }
        if self.size > self.limits.head_bytes {
            self.refusal = Some(HeadRefusal::HeadTooLarge);
            return;
        }
        if !is_valid {
            self.fault = Some(MessageFault::FieldSyntax);
            return;
        }
        let lines = self.headers.len();
        let added = match name {
            // RFC 9113 section 8.3: pseudo-header fields come before the other fields.
            [b':', ..] if self.has_regular => Err(MessageFault::PseudoField),
            [b':', ..] => self.add_pseudo(name, value),
            _ => {
                self.has_regular = true;
                self.add_regular(name, value)
            }
        };
        if let Err(fault) = added {
            self.fault = Some(fault);
        }
        if never_indexed {
            if self.headers.len() > lines {
                self.headers.never_index_last();
            } else if name == b"cookie" {
                self.scratch.never_index_cookies = true;
            }
        }
    }

    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), MessageFault> {
        let is_first = match (name, self.section) {
            (b":method", SectionKind::Request) => {
                let method = Method::from_bytes(value).map_err(|_| MessageFault::Target)?;
                self.method.replace(method).is_none()
            }
            (b":path", SectionKind::Request) => {
                let is_first = self.scratch.path.is_empty();
                self.scratch.path.extend_from_slice(value);
                // An empty value is rejected, because it would not be noticed before a second one.
                is_first && !value.is_empty()
            }
            (b":scheme", SectionKind::Request) => {
                let is_known = matches!(value, b"https" | b"http")
                    || value.eq_ignore_ascii_case(b"https")
                    || value.eq_ignore_ascii_case(b"http");
                if !is_known {
                    return Err(MessageFault::Target);
                }
                !std::mem::replace(&mut self.scheme, true)
            }
            (b":authority", SectionKind::Request) => {
                if value.is_empty() || !is_host(value) {
                    return Err(MessageFault::Target);
                }
                let is_first = !std::mem::replace(&mut self.has_authority, true);
                if is_first {
                    self.headers.push(b"host", value);
                }
                is_first
            }
            (b":protocol", SectionKind::Request) if self.limits.extended_connect => {
                let is_first = self.scratch.protocol.is_empty();
                self.scratch.protocol.extend_from_slice(value);
                // An empty value is rejected, as for `:path`.
                is_first
                    && !value.is_empty()
                    && value.iter().all(|byte| is_token(*byte) || *byte == b'/')
            }
            (b":status", SectionKind::Response) => {
                let status =
                    StatusCode::from_bytes(value).map_err(|_| MessageFault::PseudoField)?;
                self.status.replace(status).is_none()
            }
            _ => false,
        };
        if is_first {
            Ok(())
        } else {
            Err(MessageFault::PseudoField)
        }
    }

    fn add_regular(&mut self, name: &[u8], value: &[u8]) -> Result<(), MessageFault> {
        match name {
            // RFC 9113 section 8.2.2. Passed on to an origin over HTTP/1.1, `transfer-encoding` would frame the body:
            // the downgrade attack of request smuggling.
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return Err(MessageFault::ConnectionField),
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(MessageFault::ConnectionField);
            }
            b"cookie" if self.section == SectionKind::Request => {
                // Browsers split the field into its pairs so that each is indexed (RFC 9113 section 8.2.3);
                // applications expect one line.
                if !self.scratch.cookies.is_empty() {
                    self.scratch.cookies.extend_from_slice(b"; ");
                }
                self.scratch.cookies.extend_from_slice(value);
                return Ok(());
            }
            b"host" if self.section == SectionKind::Request => {
                if std::mem::replace(&mut self.has_host, true) {
                    return Err(MessageFault::Host);
                }
                if self.has_authority {
                    let authority = self.headers.get("host").unwrap_or_default();
                    // Equal ones are allowed. With different ones, a site would be chosen by one and the application
                    // would believe the other (RFC 9113 section 8.3.1).
                    return if authority.eq_ignore_ascii_case(value) {
                        Ok(())
                    } else {
                        Err(MessageFault::Host)
                    };
                }
                if value.is_empty() || !is_host(value) {
                    return Err(MessageFault::Host);
                }
            }
            b"content-length" if self.section != SectionKind::Trailers => {
                let length = parse_decimal(value).ok_or(MessageFault::ContentLength)?;
                if self.content_length.replace(length).is_some() {
                    return Err(MessageFault::ContentLength);
                }
            }
            b"expect" if self.section == SectionKind::Request => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    self.refusal = Some(HeadRefusal::Expectation);
                }
                self.expects_continue = true;
            }
            b"authorization"
                if self.section == SectionKind::Request
                    && self.headers.has(KnownField::Authorization) =>
            {
                self.refusal = Some(HeadRefusal::AuthorizationRepeated);
            }
            b"priority" if self.section == SectionKind::Request => {
                self.priority = Priority::parse(value);
            }
            _ if self.section == SectionKind::Trailers && !is_allowed_in_trailers(name) => {
                return Ok(());
            }
            _ => {}
        }
        if self.headers.len() >= self.limits.fields {
            self.refusal = Some(HeadRefusal::TooManyFields);
            return Ok(());
        }
        self.headers.push(name, value);
        Ok(())
    }

    fn check(&self) -> Result<(), SectionError> {
        match (self.fault, self.refusal) {
            (Some(fault), _) => Err(SectionError::Malformed(fault)),
            (None, Some(refusal)) => Err(SectionError::Refused(refusal)),
            (None, None) => Ok(()),
        }
    }

    /// The request of the section.
    ///
    /// # Errors
    /// It is malformed, or exceeds a limit.
    pub fn into_request(mut self, version: Version) -> Result<RequestSection, SectionError> {
        self.check()?;
        let malformed = |fault| Err(SectionError::Malformed(fault));
        let Some(method) = self.method else {
            return malformed(MessageFault::PseudoField);
        };
        let path = self.scratch.path.as_slice();
        if path.len() > self.limits.target_bytes {
            return Err(SectionError::Refused(HeadRefusal::TargetTooLong));
        }
        let is_connect = method == Method::CONNECT;
        let is_extended = !self.scratch.protocol.is_empty();
        let (method, kind, target) = match (is_connect, is_extended) {
            (true, false) => {
                // RFC 9113 section 8.5: CONNECT has only the authority, which is the target.
                let authority = self.headers.get_str("host").unwrap_or_default();
                if self.scheme || !path.is_empty() || !self.has_authority {
                    return malformed(MessageFault::PseudoField);
                }
                let target = Target::parse(&method, authority);
                (method, RequestKind::Connect, target)
            }
            (false, true) => return malformed(MessageFault::PseudoField),
            (_, _) => {
                if !self.scheme || path.is_empty() {
                    return malformed(MessageFault::PseudoField);
                }
                if !self.has_authority && !self.has_host {
                    return malformed(MessageFault::Host);
                }
                // Other forms exist only in HTTP/1.1.
                if !matches!(path, [b'/', ..] | [b'*']) {
                    return malformed(MessageFault::Target);
                }
                let kind = if is_extended {
                    RequestKind::ExtendedConnect
                } else {
                    RequestKind::of(&method)
                };
                // An extended CONNECT is presented as the HTTP/1.1 upgrade, which is a GET.
                let method = if is_extended { Method::GET } else { method };
                let target = std::str::from_utf8(path).unwrap_or_default();
                let target = Target::parse(&method, target);
                (method, kind, target)
            }
        };
        let Ok(target) = target else {
            return malformed(MessageFault::Target);
        };
        if is_connect && self.content_length.is_some() {
            return malformed(MessageFault::ContentLength);
        }
        if !self.scratch.cookies.is_empty() {
            self.headers.push(b"cookie", &self.scratch.cookies);
            if self.scratch.never_index_cookies {
                self.headers.never_index_last();
            }
        }
        // `TE: trailers` is the only hop-by-hop field that is allowed.
        let accepts_trailers = self.headers.remove("te");
        let upgrade = is_extended.then(|| String::from_utf8_lossy(&self.scratch.protocol).into());
        Ok(RequestSection {
            head: Box::new(Head {
                method,
                target,
                version,
                headers: self.headers,
                hop_by_hop: HopByHopFields {
                    upgrade,
                    accepts_trailers,
                    nominated: Vec::new(),
                },
            }),
            kind,
            content_length: self.content_length,
            expects_continue: self.expects_continue,
            priority: self.priority,
        })
    }

    /// The response of the section.
    ///
    /// # Errors
    /// It is malformed, or exceeds a limit.
    pub fn into_response(self) -> Result<ResponseSection, SectionError> {
        self.check()?;
        match self.status {
            // There is no 101 (RFC 9113 section 8.6, RFC 9114 section 4.5).
            None | Some(StatusCode::SWITCHING_PROTOCOLS) => {
                Err(SectionError::Malformed(MessageFault::PseudoField))
            }
            Some(status) => Ok(ResponseSection {
                status,
                headers: self.headers,
                content_length: self.content_length,
            }),
        }
    }

    /// The trailer fields of the section.
    ///
    /// # Errors
    /// It is malformed, or exceeds a limit.
    pub fn into_trailers(self) -> Result<Headers, SectionError> {
        self.check()?;
        Ok(self.headers)
    }
}
