//! Compression of dynamic answers as they are sent (RFC 9110 section 8.4).
//!
//! Static files are not compressed here: [`crate::files`] keeps their compressed forms.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use apus_http::fields::{AcceptEncoding, Coding};
use apus_http::{
    Answer, Body, BodyError, BodyStream, FileRange, Frame, HeaderValue, Headers, Method, Request,
    Response, RouteInfo, Service, ServiceFactory, StatusCode, header,
};
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::files::Compression;
use crate::media_type;

/// Content that is not longer is compressed at once; what is longer, piece by piece as it is sent.
const AT_ONCE: usize = 32 * 1024;

/// How much is compressed before other connections have their turn.
const PIECE: usize = 32 * 1024;

/// Levels that keep up with a fast network on one core.
const BROTLI_QUALITY: u32 = 4;
const BROTLI_WINDOW: u32 = 18;
const GZIP_LEVEL: u32 = 5;
const ZSTD_LEVEL: i32 = 3;
const ZSTD_WINDOW: u32 = 18;

/// What makes a service whose answers are compressed.
#[derive(Clone, Debug)]
pub struct Compressed<F> {
    compression: Compression,
    inner: F,
}

impl<F> Compressed<F> {
    /// Compresses the answers of what `inner` makes.
    pub fn new(compression: Compression, inner: F) -> Self {
        Self { compression, inner }
    }
}

impl<F: ServiceFactory> ServiceFactory for Compressed<F> {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(CompressedService {
            compression: self.compression,
            inner: self.inner.service(),
        })
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.inner.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.inner.routes()
    }
}

struct CompressedService {
    compression: Compression,
    inner: Rc<dyn Service>,
}

impl Service for CompressedService {
    fn call(&self, request: Request) -> Answer {
        let wish = Wish::of(&request, self.compression);
        self.inner.call(request).map(move |mut response| {
            wish.apply(&mut response);
            response
        })
    }
}

/// What a client and the configuration want of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    accepted: AcceptEncoding,
    compression: Compression,
    is_head: bool,
}

impl Wish {
    pub(crate) fn of(request: &Request, compression: Compression) -> Self {
        Self {
            is_head: *request.method() == Method::HEAD,
            ..Self::for_content(request.headers(), compression)
        }
    }

    /// What a request with these fields wishes that is answered with content.
    pub(crate) fn for_content(headers: &Headers, compression: Compression) -> Self {
        Self {
            accepted: AcceptEncoding::parse(headers.get_all("accept-encoding")),
            compression,
            is_head: false,
        }
    }

    /// The coding for a response that is worth it.
    pub(crate) fn coding(self) -> Option<Coding> {
        let offered = [Coding::Brotli, Coding::Zstd, Coding::Gzip]
            .into_iter()
            .filter(|coding| self.allows(*coding));
        let mut offered: SmallVec<[_; 4]> = offered.collect();
        offered.push(Coding::Identity);
        // Without a form that the client accepts, any is better than none.
        let coding = self.accepted.choose(&offered);
        coding.filter(|coding| *coding != Coding::Identity)
    }

    /// Compresses the response if it is worth it and the client accepts it.
    pub(crate) fn apply(self, response: &mut Response) {
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
        let body = response.take_body();
        match compress(body, coding) {
            Ok(body) => {
                *response.body_mut() = body;
                describe(response.headers_mut(), coding);
            }
            Err((body, error)) => {
                tracing::error!(%error, "cannot compress a response");
                *response.body_mut() = body;
            }
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

    /// Whether the response is text of some length that nobody has decided on yet.
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

/// Whether a response is text that nobody has decided on yet, by its status and fields.
pub(crate) fn is_compressible(status: StatusCode, headers: &Headers) -> bool {
    let has_content = !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::NOT_MODIFIED
        );
    has_content
        && headers
            .get("content-type")
            .is_some_and(media_type::is_compressible)
        && ["content-encoding", "content-range", "content-digest"]
            .iter()
            .all(|name| !headers.contains(name))
        && !has_member(headers, "cache-control", "no-transform")
        && !has_member(headers, "vary", "accept-encoding")
}

/// Says that the response depends on what codings the client accepts.
pub(crate) fn vary(headers: &mut Headers) {
    headers.append(&header::VARY, &HeaderValue::from_static("accept-encoding"));
}

/// Whether a list field has a member, in any case.
fn has_member(headers: &Headers, name: &str, member: &str) -> bool {
    headers
        .get_all(name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|value| value.trim_ascii().eq_ignore_ascii_case(member.as_bytes()))
}

/// Makes the field lines those of the compressed form.
pub(crate) fn describe(headers: &mut Headers, coding: Coding) {
    headers.insert(
        &header::CONTENT_ENCODING,
        &HeaderValue::from_static(coding.as_str()),
    );
    headers.remove("content-length");
    headers.remove("accept-ranges");
    // Another form is not the same byte for byte (RFC 9110 section 8.8.1).
    let weakened = headers
        .get("etag")
        .filter(|tag| !tag.starts_with(b"W/"))
        .map(|tag| [b"W/", tag].concat());
    if let Some(tag) = weakened {
        // What was a field value stays one.
        let _ = headers.try_insert("etag", tag);
    }
}

/// All of some content, compressed.
pub(crate) fn whole(content: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding)?;
    encoder.write(content)?;
    encoder.finish()
}

fn compress(body: Body, coding: Coding) -> Result<Body, (Body, io::Error)> {
    match body.in_memory() {
        Some(bytes) if bytes.len() <= AT_ONCE => whole(bytes, coding)
            .map(Body::from)
            .map_err(|error| (body, error)),
        _ => match Encoder::new(coding) {
            Ok(encoder) => Ok(Body::stream(Compressing {
                flushes: matches!(body, Body::Stream(_)),
                source: body,
                encoder: Some(encoder),
                pending: Bytes::new(),
                file: None,
                trailers: None,
            })),
            Err(error) => Err((body, error)),
        },
    }
}

/// A compressor that collects what it makes.
enum Encoder {
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Self> {
        let made = Vec::new();
        Ok(match coding {
            Coding::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                made,
                4096,
                BROTLI_QUALITY,
                BROTLI_WINDOW,
            ))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(made, ZSTD_LEVEL)?;
                encoder.set_parameter(zstd::zstd_safe::CParameter::WindowLog(ZSTD_WINDOW))?;
                Self::Zstd(encoder)
            }
            Coding::Gzip | Coding::Identity => Self::Gzip(flate2::write::GzEncoder::new(
                made,
                flate2::Compression::new(GZIP_LEVEL),
            )),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Brotli(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// Makes all that was written so far readable for the client.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Brotli(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }

    /// What was made since the last time.
    fn take(&mut self) -> Bytes {
        let made = match self {
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
        };
        std::mem::take(made).into()
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}

/// A body that is compressed as it is sent.
struct Compressing {
    source: Body,
    /// Whether what the source gives is sent on at once, as events want it.
    flushes: bool,
    /// `None` once the compressed content has ended.
    encoder: Option<Encoder>,
    /// What the source gave and is not compressed yet.
    pending: Bytes,
    file: Option<FileRange>,
    trailers: Option<Headers>,
}

impl Compressing {
    /// Compresses a piece of what is pending, and gives what came of it.
    fn advance(&mut self) -> io::Result<Bytes> {
        let Some(encoder) = &mut self.encoder else {
            return Ok(Bytes::new());
        };
        let piece = self.pending.split_to(self.pending.len().min(PIECE));
        encoder.write(&piece)?;
        if self.pending.is_empty() && self.flushes && self.file.is_none() {
            encoder.flush()?;
        }
        Ok(encoder.take())
    }

    /// Reads on in a file that the source gave. It is likely in the page cache: what makes such
    /// frames has just written or read it.
    fn read_file(&mut self) -> io::Result<()> {
        let Some(range) = &mut self.file else {
            return Ok(());
        };
        let len = usize::try_from(range.len).map_or(PIECE, |len| len.min(PIECE));
        let mut piece = BytesMut::zeroed(len);
        range.file.read_exact_at(&mut piece, range.offset)?;
        range.offset = range.offset.saturating_add(len as u64);
        range.len = range.len.saturating_sub(len as u64);
        if range.len == 0 {
            self.file = None;
        }
        self.pending = piece.freeze();
        Ok(())
    }
}

impl BodyStream for Compressing {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if self.pending.is_empty() {
                self.read_file()?;
            }
            if !self.pending.is_empty() {
                let made = self.advance()?;
                if !made.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::Data(made))));
                }
                if !self.pending.is_empty() || self.file.is_some() {
                    // Others have their turn before the next piece.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            if self.encoder.is_none() {
                return Poll::Ready(self.trailers.take().map(|lines| Ok(Frame::Trailers(lines))));
            }
            match ready!(self.source.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) => self.pending = bytes,
                Some(Ok(Frame::File(range))) => {
                    self.file = Some(range).filter(|range| range.len > 0)
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                end => {
                    if let Some(Ok(Frame::Trailers(lines))) = end {
                        self.trailers = Some(lines);
                    }
                    if let Some(encoder) = self.encoder.take() {
                        let rest = encoder.finish()?;
                        if !rest.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::Data(rest.into()))));
                        }
                    }
                }
            }
        }
    }
}
