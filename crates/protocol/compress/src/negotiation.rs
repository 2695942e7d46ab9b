//! The negotiation of the content coding of a response (RFC 9110 section 12.5.3).

use std::rc::Rc;

use apus_http::fields::{AcceptEncoding, Coding, EntityTag, remove_digests};
use apus_http::{
    Body, FieldSet, HeaderValue, Headers, KnownField, Method, Request, Response, ResponseFuture,
    Service, StatusCode, header, list,
};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::coding_rule::RequestCodingRule;
use crate::media_type;
use crate::{Compression, Encoding, compress};

/// A body that is not longer is compressed at once; a longer one, piece by piece as it is sent.
const AT_ONCE: usize = 32 * 1024;

/// The content codings that the client accepts and the configuration offers.
#[derive(Clone, Copy, Debug)]
pub struct EncodingNegotiation {
    accepted: AcceptEncoding,
    compression: Compression,
    is_head: bool,
    /// Whether the client names a weak tag in `If-None-Match`: it may have a compressed response.
    names_weak_tag: bool,
    /// The number of the connection, which the memory of the encoder is counted for.
    connection: u64,
}

impl EncodingNegotiation {
    /// For the response to this request.
    pub fn of(request: &Request, compression: Compression) -> Self {
        Self {
            is_head: *request.method() == Method::HEAD,
            names_weak_tag: names_weak_tag(request.headers()),
            connection: request.connection().id,
            ..Self::for_body(request.headers(), compression)
        }
    }

    /// For a response that has a body, to a request with these fields.
    pub fn for_body(headers: &Headers, compression: Compression) -> Self {
        Self {
            accepted: AcceptEncoding::parse(headers.get_all("accept-encoding")),
            compression,
            is_head: false,
            names_weak_tag: false,
            connection: 0,
        }
    }

    /// The coding of a response that is worth compressing.
    pub fn coding(self) -> Option<Coding> {
        let offered = [Coding::Brotli, Coding::Zstd, Coding::Gzip]
            .into_iter()
            .filter(|coding| self.allows(*coding));
        let mut offered: SmallVec<[_; 4]> = offered.collect();
        offered.push(Coding::Identity);
        // If the client accepts none of them, any is better than an error.
        let coding = self.accepted.choose(&offered);
        coding.filter(|coding| *coding != Coding::Identity)
    }

    /// Compresses the response if it is worth it and the client accepts it. A response to HEAD gets the fields
    /// of the response to GET (RFC 9110 section 9.3.2), a 304 and a 206 those that they share with the 200
    /// (sections 15.4.5 and 15.3.7).
    pub fn apply(self, response: &mut Response) {
        if response.is_coding_chosen() || !self.offers_any() {
            return;
        }
        match response.status() {
            StatusCode::NOT_MODIFIED => return self.complete_not_modified(response.headers_mut()),
            StatusCode::PARTIAL_CONTENT => {
                if self.varies_with_part(response.headers()) {
                    vary(response.headers_mut());
                }
                return;
            }
            _ if !self.is_worthwhile(response) => return,
            _ => {}
        }
        let headers = response.headers_mut();
        vary(headers);
        let Some(coding) = self.coding() else {
            return;
        };
        let encoding = Encoding::of_dynamic(coding, self.compression);
        let body = response.take_body();
        let is_at_once = |bytes: &Bytes| (1..=AT_ONCE).contains(&bytes.len());
        match body.in_memory() {
            Some(bytes) if is_at_once(bytes) => match compress(bytes, encoding) {
                Ok(compressed) => {
                    *response.body_mut() = compressed.into();
                    describe(response.headers_mut(), coding);
                }
                Err(error) => {
                    tracing::error!(%error, "cannot compress a response");
                    *response.body_mut() = body;
                }
            },
            // The body is not sent, and the length of what GET would send is not known.
            _ if self.is_head => {
                *response.body_mut() = encoding.stream(body, None);
                describe(response.headers_mut(), coding);
            }
            // Without memory for an encoder the body is sent as it is, even if the client would rather
            // have no response at all (RFC 9110 section 12.5.3 allows both).
            _ => match encoding.reserve(self.connection) {
                Some(memory) => {
                    *response.body_mut() = encoding.stream(body, Some(memory));
                    describe(response.headers_mut(), coding);
                }
                None => *response.body_mut() = body,
            },
        }
    }

    /// [`apply`](Self::apply) for a request that may have a rule about its response.
    pub fn apply_by(self, rule: Option<&RequestCodingRule>, response: &mut Response) {
        let is_refused = rule.is_some_and(|rule| !rule.allows_response(response));
        let negotiation = if is_refused {
            Self {
                accepted: AcceptEncoding::IDENTITY,
                ..self
            }
        } else {
            self
        };
        negotiation.apply(response);
    }

    /// Calls a service for a request whose response is compressed by [`apply`](Self::apply) later.
    ///
    /// The date in `If-Range` does not say which coding the client has a part of. If the service responds to
    /// it with a part of a resource that is compressed here, it is asked for the complete one.
    pub fn call(self, service: &Rc<dyn Service>, request: Request) -> ResponseFuture {
        if !self.may_resume_another_coding(&request) {
            return service.call(request);
        }
        let mut whole = request.without_body();
        remove_range(whole.headers_mut());
        let service = Rc::clone(service);
        ResponseFuture::later(async move {
            let response = service.call(request).wait().await;
            let is_part = response.status() == StatusCode::PARTIAL_CONTENT
                && !response.is_coding_chosen()
                && self.varies_with_part(response.headers());
            if is_part {
                drop(response);
                service.call(whole).wait().await
            } else {
                response
            }
        })
    }

    /// Removes `Range` if the date in `If-Range` may belong to a compressed response, of which the client has
    /// a part, and the requested part would be one of the uncompressed response.
    pub fn ignore_range_by_date(self, request: &mut Request) {
        if self.may_resume_another_coding(request) {
            remove_range(request.headers_mut());
        }
    }

    /// Whether a request resumes by a date, and the client accepts a coding.
    fn may_resume_another_coding(self, request: &Request) -> bool {
        let headers = request.headers();
        let is_date = |value| EntityTag::parse(value).is_none();
        !self.is_head
            && headers.contains("range")
            && headers.get("if-range").is_some_and(is_date)
            && self.offers_any()
            && self.coding().is_some()
    }

    /// Gives a 304 the fields that a compressed 200 has. A 304 mostly has no type; then it gets `Vary`, which
    /// is right for text and does no harm for others.
    fn complete_not_modified(self, headers: &mut Headers) {
        let may_be_text = match headers.values_of(KnownField::ContentType).next() {
            Some(_) => is_compressible(StatusCode::OK, headers),
            None => {
                !headers.has_any(EXCLUDED)
                    && !has_member(headers, KnownField::Vary, "accept-encoding")
            }
        };
        if may_be_text {
            vary(headers);
            if self.names_weak_tag {
                weaken_tag(headers);
            }
        }
    }

    /// Whether the complete response, of which a response with these fields has a part, is worth compressing.
    fn varies_with_part(self, headers: &Headers) -> bool {
        let mut whole = headers.clone();
        whole.remove("content-range");
        is_compressible(StatusCode::OK, &whole)
            && complete_length(headers).is_none_or(|length| length >= self.compression.min_length)
    }

    fn offers_any(self) -> bool {
        let mut codings = Coding::ALL.into_iter();
        codings.any(|coding| self.compression.allows(coding))
    }

    fn allows(self, coding: Coding) -> bool {
        coding == Coding::Identity || self.compression.allows(coding)
    }

    /// Whether the response is text of the minimum length.
    fn is_worthwhile(self, response: &Response) -> bool {
        let headers = response.headers();
        let length = match response.body() {
            // The length of what GET would send is in the field, if it is known.
            Body::Empty if self.is_head && headers.has(KnownField::ContentLength) => {
                declared_length(headers)
            }
            body @ (Body::Bytes(_) | Body::Sealed(_) | Body::Stream(_)) => match body.len() {
                Some(0) if self.is_head => declared_length(headers),
                length => length,
            },
            Body::Empty | Body::File(_) => return false,
        };
        length.is_none_or(|length| length >= self.compression.min_length)
            && is_compressible(response.status(), headers)
    }
}

/// Makes a request one of a client that accepts no content coding. As the client may have a part of a compressed response, which a date in
/// `If-Range` does not tell from another, a request that resumes by a date is one for the whole.
pub fn refuse_codings(request: &mut Request) {
    let headers = request.headers_mut();
    if !headers.contains("accept-encoding") {
        return;
    }
    headers.remove("accept-encoding");
    let is_date = |value| EntityTag::parse(value).is_none();
    if headers.get("if-range").is_some_and(is_date) {
        remove_range(headers);
    }
}

/// The fields of responses that are not compressed: those with another coding, parts, and those that the origin
/// protects by a digest (RFC 9530).
const EXCLUDED: FieldSet = FieldSet::of(&[
    KnownField::ContentEncoding,
    KnownField::ContentRange,
    KnownField::ContentDigest,
    KnownField::ReprDigest,
    KnownField::Digest,
]);

/// Whether a response is text without a content coding, by its status and fields.
pub fn is_compressible(status: StatusCode, headers: &Headers) -> bool {
    let has_content = !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::NOT_MODIFIED
        );
    if !has_content {
        return false;
    }
    let content_type = headers.values_of(KnownField::ContentType).next();
    !headers.has_any(EXCLUDED)
        && content_type.is_some_and(media_type::is_compressible)
        && !has_member(headers, KnownField::CacheControl, "no-transform")
        && !has_member(headers, KnownField::Vary, "accept-encoding")
}

fn has_member(headers: &Headers, field: KnownField, member: &str) -> bool {
    let mut values = headers.values_of(field);
    values.any(|value| list::has_member(value, member))
}

/// Whether `If-None-Match` has a weak tag.
fn names_weak_tag(headers: &Headers) -> bool {
    let mut lines = headers.get_all("if-none-match");
    lines.any(|line| line.windows(3).any(|part| part == b"W/\""))
}

/// `Content-Length`.
fn declared_length(headers: &Headers) -> Option<u64> {
    headers.get_str("content-length")?.trim().parse().ok()
}

/// The complete length in `Content-Range`, if it is known.
fn complete_length(headers: &Headers) -> Option<u64> {
    let (_, complete) = headers.get_str("content-range")?.rsplit_once('/')?;
    complete.trim().parse().ok()
}

fn remove_range(headers: &mut Headers) {
    headers.remove("range");
    headers.remove("if-range");
}

/// Adds `Vary: accept-encoding`, unless `Vary` has it or `*` already.
pub fn vary(headers: &mut Headers) {
    let names = |member| has_member(headers, KnownField::Vary, member);
    if headers.has(KnownField::Vary) && (names("accept-encoding") || names("*")) {
        return;
    }
    headers.append(&header::VARY, &HeaderValue::from_static("accept-encoding"));
}

/// Changes the field lines to describe the compressed representation.
pub fn describe(headers: &mut Headers, coding: Coding) {
    headers.insert(
        &header::CONTENT_ENCODING,
        &HeaderValue::from_static(coding.as_str()),
    );
    headers.remove("content-length");
    headers.remove("accept-ranges");
    remove_digests(headers);
    weaken_tag(headers);
}

/// Makes the entity tag a weak one: representations in different codings are not the same byte for byte
/// (RFC 9110 section 8.8.1).
pub fn weaken_tag(headers: &mut Headers) {
    let weakened = headers
        .get("etag")
        .filter(|tag| !tag.starts_with(b"W/"))
        .map(|tag| [b"W/", tag].concat());
    if let Some(tag) = weakened {
        // What was a field value stays one.
        let _ = headers.try_insert("etag", tag);
    }
}
