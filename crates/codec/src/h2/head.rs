//! Field sections as messages (RFC 9113 section 8): requests, responses and trailers.

use http::{Method, StatusCode, Version};

use super::hpack::Field;
use super::priority::Priority;
use super::streams::RequestKind;
use super::{Config, Fault, HeadRefusal};
use apus_http::grammar::{is_host, is_token, parse_decimal};
use apus_http::trailers::may_trail;
use apus_http::{Head, Headers, HopByHop, Target};

/// What a field line costs beside its bytes (RFC 9113 section 6.5.2).
const LINE_COST: usize = 32;

/// How often the limit a field section may be decompressed to before it is an attack.
const BOMB: usize = 16;

/// What a field section may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Request,
    Response,
    Trailers,
}

/// Gathers the fields of one section, in the order in which they come.
#[derive(Debug)]
pub(super) struct FieldReader<'a> {
    section: Section,
    config: &'a Config,
    scratch: &'a mut Scratch,
    headers: Headers,
    fault: Option<Fault>,
    refusal: Option<HeadRefusal>,
    /// Bytes and lines as the limits count them.
    size: usize,
    method: Option<Method>,
    scheme: bool,
    status: Option<StatusCode>,
    has_authority: bool,
    has_host: bool,
    /// Whether a field came that is no pseudo-header field. None may follow it.
    has_regular: bool,
    content_length: Option<u64>,
    expects_continue: bool,
    priority: Priority,
}

/// What has to be put together, reused from one section to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    path: Vec<u8>,
    protocol: Vec<u8>,
    cookies: Vec<u8>,
    never_index_cookies: bool,
}

/// A request as its field section has it.
#[derive(Debug)]
pub(super) struct ReadRequest {
    pub(super) head: Box<Head>,
    pub(super) kind: RequestKind,
    pub(super) content_length: Option<u64>,
    pub(super) expects_continue: bool,
    pub(super) priority: Priority,
}

/// A response as its field section has it.
#[derive(Debug)]
pub(super) struct ReadResponse {
    pub(super) status: StatusCode,
    pub(super) headers: Headers,
    pub(super) content_length: Option<u64>,
}

/// Why a section gives no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    Malformed(Fault),
    Refused(HeadRefusal),
}

impl Scratch {
    /// Bytes that may stay allocated while nothing is read.
    const KEPT: usize = 1024;

    fn clear(&mut self) {
        for buffer in [&mut self.path, &mut self.protocol, &mut self.cookies] {
            buffer.clear();
            buffer.shrink_to(Self::KEPT);
        }
        self.never_index_cookies = false;
    }
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(
        section: Section,
        config: &'a Config,
        scratch: &'a mut Scratch,
        block_len: usize,
    ) -> Self {
        scratch.clear();
        // Fields that were compressed well are many times as long as their block.
        let capacity = block_len.saturating_mul(2).clamp(256, 2048);
        Self {
            section,
            config,
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

    /// Whether so much came that it can only be an attack.
    pub(super) fn is_bomb(&self) -> bool {
        self.size > self.config.head_bytes.saturating_mul(BOMB)
    }

    /// Takes the next field.
    pub(super) fn take(&mut self, field: Field<'_>) {
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
            .saturating_add(LINE_COST);
        if self.fault.is_some() || self.refusal.is_some() {
            return;
        }
        if self.size > self.config.head_bytes {
            self.refusal = Some(HeadRefusal::HeadTooLarge);
            return;
        }
        if !is_valid {
            self.fault = Some(Fault::FieldSyntax);
            return;
        }
        let lines = self.headers.len();
        let taken = match name {
            // RFC 9113 section 8.3: all of them come before the other fields.
            [b':', ..] if self.has_regular => Err(Fault::PseudoField),
            [b':', ..] => self.pseudo(name, value),
            _ => {
                self.has_regular = true;
                self.regular(name, value)
            }
        };
        if let Err(fault) = taken {
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

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        let is_first = match (name, self.section) {
            (b":method", Section::Request) => {
                let method = Method::from_bytes(value).map_err(|_| Fault::Target)?;
                self.method.replace(method).is_none()
            }
            (b":path", Section::Request) => {
                let is_first = self.scratch.path.is_empty();
                self.scratch.path.extend_from_slice(value);
                // Without this, a second one could hide behind an empty first one.
                is_first && !value.is_empty()
            }
            (b":scheme", Section::Request) => {
                let is_known = matches!(value, b"https" | b"http")
                    || value.eq_ignore_ascii_case(b"https")
                    || value.eq_ignore_ascii_case(b"http");
                if !is_known {
                    return Err(Fault::Target);
                }
                !std::mem::replace(&mut self.scheme, true)
            }
            (b":authority", Section::Request) => {
                if value.is_empty() || !is_host(value) {
                    return Err(Fault::Target);
                }
                let is_first = !std::mem::replace(&mut self.has_authority, true);
                if is_first {
                    self.headers.push(b"host", value);
                }
                is_first
            }
            (b":protocol", Section::Request) if self.config.extended_connect => {
                let is_first = self.scratch.protocol.is_empty();
                self.scratch.protocol.extend_from_slice(value);
                // As for `:path`: an empty one would leave room for a second one.
                is_first
                    && !value.is_empty()
                    && value.iter().all(|byte| is_token(*byte) || *byte == b'/')
            }
            (b":status", Section::Response) => {
                let status = StatusCode::from_bytes(value).map_err(|_| Fault::PseudoField)?;
                self.status.replace(status).is_none()
            }
            _ => false,
        };
        match is_first {
            true => Ok(()),
            false => Err(Fault::PseudoField),
        }
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return Err(Fault::ConnectionField),
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(Fault::ConnectionField);
            }
            b"cookie" if self.section == Section::Request => {
                if !self.scratch.cookies.is_empty() {
                    self.scratch.cookies.extend_from_slice(b"; ");
                }
                self.scratch.cookies.extend_from_slice(value);
                return Ok(());
            }
            b"host" if self.section == Section::Request => {
                if std::mem::replace(&mut self.has_host, true) {
                    return Err(Fault::Host);
                }
                if self.has_authority {
                    let authority = self.headers.get("host").unwrap_or_default();
                    return match authority.eq_ignore_ascii_case(value) {
                        true => Ok(()),
                        false => Err(Fault::Host),
                    };
                }
                if value.is_empty() || !is_host(value) {
                    return Err(Fault::Host);
                }
            }
            b"content-length" if self.section != Section::Trailers => {
                let length = parse_decimal(value).ok_or(Fault::ContentLength)?;
                if self.content_length.replace(length).is_some() {
                    return Err(Fault::ContentLength);
                }
            }
            b"expect" if self.section == Section::Request => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    self.refusal = Some(HeadRefusal::Expectation);
                }
                self.expects_continue = true;
            }
            b"priority" if self.section == Section::Request => {
                self.priority = Priority::parse(value);
            }
            _ if self.section == Section::Trailers && !may_trail(name) => return Ok(()),
            _ => {}
        }
        if self.headers.len() >= self.config.fields {
            self.refusal = Some(HeadRefusal::TooManyFields);
            return Ok(());
        }
        self.headers.push(name, value);
        Ok(())
    }

    fn usable(&self) -> Result<(), Unusable> {
        match (self.fault, self.refusal) {
            (Some(fault), _) => Err(Unusable::Malformed(fault)),
            (None, Some(refusal)) => Err(Unusable::Refused(refusal)),
            (None, None) => Ok(()),
        }
    }

    /// The request that the section is.
    pub(super) fn into_request(mut self) -> Result<ReadRequest, Unusable> {
        self.usable()?;
        let malformed = |fault| Err(Unusable::Malformed(fault));
        let Some(method) = self.method else {
            return malformed(Fault::PseudoField);
        };
        let path = self.scratch.path.as_slice();
        if path.len() > self.config.target_bytes {
            return Err(Unusable::Refused(HeadRefusal::TargetTooLong));
        }
        let is_connect = method == Method::CONNECT;
        let is_extended = !self.scratch.protocol.is_empty();
        let (method, kind, target) = match (is_connect, is_extended) {
            (true, false) => {
                // RFC 9113 section 8.5: only the authority, which is the target.
                let authority = self.headers.get_str("host").unwrap_or_default();
                if self.scheme || !path.is_empty() || !self.has_authority {
                    return malformed(Fault::PseudoField);
                }
                let target = Target::parse(&method, authority);
                (method, RequestKind::Connect, target)
            }
            (false, true) => return malformed(Fault::PseudoField),
            (_, _) => {
                if !self.scheme || path.is_empty() {
                    return malformed(Fault::PseudoField);
                }
                if !self.has_authority && !self.has_host {
                    return malformed(Fault::Host);
                }
                // Other forms are HTTP/1.1's.
                if !matches!(path, [b'/', ..] | [b'*']) {
                    return malformed(Fault::Target);
                }
                let kind = match method {
                    _ if is_extended => RequestKind::ExtendedConnect,
                    Method::HEAD => RequestKind::Head,
                    _ => RequestKind::Usual,
                };
                // What offers to switch protocols in HTTP/1.1 is a GET.
                let method = if is_extended { Method::GET } else { method };
                let target = std::str::from_utf8(path).unwrap_or_default();
                let target = Target::parse(&method, target);
                (method, kind, target)
            }
        };
        let Ok(target) = target else {
            return malformed(Fault::Target);
        };
        if is_connect && self.content_length.is_some() {
            return malformed(Fault::ContentLength);
        }
        if !self.scratch.cookies.is_empty() {
            self.headers.push(b"cookie", &self.scratch.cookies);
            if self.scratch.never_index_cookies {
                self.headers.never_index_last();
            }
        }
        // `TE: trailers` is the one field of its kind that HTTP/2 has.
        let accepts_trailers = self.headers.remove("te");
        let upgrade = is_extended.then(|| String::from_utf8_lossy(&self.scratch.protocol).into());
        Ok(ReadRequest {
            head: Box::new(Head {
                method,
                target,
                version: Version::HTTP_2,
                headers: self.headers,
                hop_by_hop: HopByHop {
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

    /// The response that the section is.
    pub(super) fn into_response(self) -> Result<ReadResponse, Unusable> {
        self.usable()?;
        match self.status {
            // HTTP/2 has no switching of protocols (RFC 9113 section 8.6).
            None | Some(StatusCode::SWITCHING_PROTOCOLS) => {
                Err(Unusable::Malformed(Fault::PseudoField))
            }
            Some(status) => Ok(ReadResponse {
                status,
                headers: self.headers,
                content_length: self.content_length,
            }),
        }
    }

    /// The trailer section that the section is.
    pub(super) fn into_trailers(self) -> Result<Headers, Unusable> {
        self.usable()?;
        Ok(self.headers)
    }
}
