//! The negotiation of the content coding of a response (RFC 9110 section 12.5.3).

use apus_http::fields::{AcceptEncoding, Coding};
use apus_http::{
    Body, FieldSet, HeaderValue, Headers, KnownField, Method, Request, Response, StatusCode,
    header, list,
};
use smallvec::SmallVec;

use apus_media_type as media_type;

use crate::{Compression, Encoding, compress};

/// A body that is not longer is compressed at once; a longer one, piece by piece as it is sent.
const AT_ONCE: usize = 32 * 1024;

/// The content codings that the client accepts and the configuration offers.
#[derive(Clone, Copy, Debug)]
pub struct EncodingNegotiation {
    accepted: AcceptEncoding,
    compression: Compression,
    is_head: bool,
    /// The number of the connection, which the memory of the encoder is counted for.
    connection: u64,
}

impl EncodingNegotiation {
    /// For the response to this request.
    pub fn of(request: &Request, compression: Compression) -> Self {
        Self {
            is_head: *request.method() == Method::HEAD,
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

    /// Compresses the response if it is worth it and the client accepts it.
    pub fn apply(self, response: &mut Response) {
        if !self.is_worthwhile(response) {
            return;
        }
        let headers = response.headers_mut();
        vary(headers);
        let Some(coding) = self.coding() else {
            return;
        };
        if self.is_head {
            // The length of what GET would send is not known.
            headers.remove("content-length");
            describe(headers, coding);
            return;
        }
        let encoding = Encoding::of_dynamic(coding, self.compression);
        let body = response.take_body();
        match body.in_memory() {
            Some(bytes) if bytes.len() <= AT_ONCE => match compress(bytes, encoding) {
                Ok(compressed) => {
                    *response.body_mut() = compressed.into();
                    describe(response.headers_mut(), coding);
                }
                Err(error) => {
                    tracing::error!(%error, "cannot compress a response");
                    *response.body_mut() = body;
                }
            },
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

    fn allows(self, coding: Coding) -> bool {
        match coding {
            Coding::Brotli => self.compression.brotli,
            Coding::Zstd => self.compression.zstd,
            Coding::Gzip => self.compression.gzip,
            Coding::Identity => true,
        }
    }

    /// Whether the response is text of the minimum length without a chosen coding.
    fn is_worthwhile(self, response: &Response) -> bool {
        if response.is_coding_chosen() {
            return false;
        }
        let length = match response.body() {
            body @ (Body::Bytes(_) | Body::Sealed(_) | Body::Stream(_)) => body.len(),
            Body::Empty | Body::File(_) => return false,
        };
        length.is_none_or(|length| length >= self.compression.min_length)
            && is_compressible(response.status(), response.headers())
    }
}

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
    const EXCLUDED: FieldSet = FieldSet::of(&[
        KnownField::ContentEncoding,
        KnownField::ContentRange,
        KnownField::ContentDigest,
    ]);
    let is_named = |field, member| {
        let mut values = headers.values_of(field);
        values.any(|value| list::has_member(value, member))
    };
    let content_type = headers.values_of(KnownField::ContentType).next();
    !headers.has_any(EXCLUDED)
        && content_type.is_some_and(media_type::is_compressible)
        && !is_named(KnownField::CacheControl, "no-transform")
        && !is_named(KnownField::Vary, "accept-encoding")
}

/// Adds `Vary: accept-encoding`.
pub fn vary(headers: &mut Headers) {
    headers.append(&header::VARY, &HeaderValue::from_static("accept-encoding"));
}

/// Makes the field lines those of the compressed representation.
pub fn describe(headers: &mut Headers, coding: Coding) {
    headers.insert(
        &header::CONTENT_ENCODING,
        &HeaderValue::from_static(coding.as_str()),
    );
    headers.remove("content-length");
    headers.remove("accept-ranges");
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
