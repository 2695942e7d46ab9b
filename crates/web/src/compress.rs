//! Compression of dynamic answers as they are sent (RFC 9110 section 8.4).
//!
//! Static files are not compressed here: [`crate::files`] keeps their compressed forms.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use apus_http::fields::{AcceptEncoding, Coding};
use apus_http::{
    Answer, Body, BodyError, BodyStream, ConnectionReservation, FileRange, Frame, HeaderValue,
    Headers, Method, Request, Response, ResponseMemory, RouteInfo, Service, ServiceFactory,
    StatusCode, header,
};
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::files::{Compression, read_cached};
use crate::media_type;

/// Content that is not longer is compressed at once; what is longer, piece by piece as it is sent.
const AT_ONCE: usize = 32 * 1024;

/// How much is compressed before other connections have their turn.
const PIECE: usize = 32 * 1024;

/// After so many bytes Brotli gives out what it has made. It would hold back twice its window
/// otherwise, in memory that is several times as much.
const FLUSH_AFTER: usize = 64 * 1024;

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
    /// The number of the connection, which pays for what compression takes.
    connection: u64,
}

impl Wish {
    pub(crate) fn of(request: &Request, compression: Compression) -> Self {
        Self {
            is_head: *request.method() == Method::HEAD,
            connection: request.connection().id,
            ..Self::for_content(request.headers(), compression)
        }
    }

    /// What a request with these fields wishes that is answered with content.
    pub(crate) fn for_content(headers: &Headers, compression: Compression) -> Self {
        Self {
            accepted: AcceptEncoding::parse(headers.get_all("accept-encoding")),
            compression,
            is_head: false,
            connection: 0,
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
        let encoding = Encoding::of_dynamic(coding, self.compression);
        let body = response.take_body();
        match body.in_memory() {
            Some(bytes) if bytes.len() <= AT_ONCE => match whole(bytes, encoding) {
                Ok(made) => {
                    *response.body_mut() = made.into();
                    describe(response.headers_mut(), coding);
                }
                Err(error) => {
                    tracing::error!(%error, "cannot compress a response");
                    *response.body_mut() = body;
                }
            },
            // Without memory for a compressor the response goes as it is, also to a client that
            // would rather have none (RFC 9110 section 12.5.3 allows both).
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
    weaken_tag(headers);
}

/// Makes the entity tag a weak one: another form is not the same byte for byte (RFC 9110 section
/// 8.8.1).
pub(crate) fn weaken_tag(headers: &mut Headers) {
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
pub(crate) fn whole(content: &[u8], encoding: Encoding) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(encoding)?;
    encoder.write(content)?;
    encoder.finish()
}

/// How content is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) coding: Coding,
    pub(crate) level: u8,
    /// The base-2 logarithm of how far back the compressor looks, in bytes, for Brotli and Zstandard;
    /// without one, Zstandard takes the best for its level and the length.
    pub(crate) window: Option<u8>,
    /// How much content there is, where that is known and there is nothing else.
    pub(crate) length: Option<u64>,
}

impl Encoding {
    /// For content that is compressed each time that it is sent. A small window costs little more than
    /// one hundredth of the size of text, and saves a megabyte of memory.
    pub(crate) fn of_dynamic(coding: Coding, compression: Compression) -> Self {
        Self {
            coding,
            level: match coding {
                Coding::Brotli => compression.brotli_level,
                Coding::Zstd => compression.zstd_level,
                Coding::Gzip | Coding::Identity => compression.gzip_level,
            },
            window: Some(17),
            length: None,
        }
    }

    /// The most bytes of memory that a body takes which is compressed like this as it is sent. The
    /// figures are measured (`tests/encoder_memory` compares them with what is taken), rounded up.
    pub(crate) fn memory(self) -> u64 {
        let kilobytes: u64 = match (self.coding, self.level) {
            (Coding::Brotli, 0..=1) => 512,
            (Coding::Brotli, 2..=3) => 1280,
            (Coding::Brotli, 4) => 2048,
            (Coding::Brotli, 5) => 2560,
            (Coding::Brotli, 6) => 3584,
            (Coding::Brotli, 7) => 10 << 10,
            (Coding::Brotli, 8) => 18 << 10,
            (Coding::Brotli, 9) => 35 << 10,
            (Coding::Brotli, _) => 12 << 10,
            (Coding::Zstd, ..=2) => 1280,
            (Coding::Zstd, 3) => 1792,
            (Coding::Zstd, 4) => 3 << 10,
            (Coding::Zstd, 5..=6) => 3584,
            (Coding::Zstd, 7..=8) => 6 << 10,
            (Coding::Zstd, 9) => 11 << 10,
            (Coding::Zstd, 10..=11) => 21 << 10,
            (Coding::Zstd, 12) => 42 << 10,
            (Coding::Zstd, 13) => 34 << 10,
            (Coding::Zstd, 14) => 50 << 10,
            (Coding::Zstd, 15) => 66 << 10,
            (Coding::Zstd, 16..=18) => 51 << 10,
            (Coding::Zstd, _) => 83 << 10,
            (Coding::Gzip | Coding::Identity, _) => 512,
        };
        // With a piece before and behind it.
        (kilobytes << 10).saturating_add(2 * PIECE as u64)
    }

    /// Reserves the memory for a body that is sent over a connection.
    pub(crate) fn reserve(self, connection: u64) -> Option<ConnectionReservation> {
        ResponseMemory::of_process().reserve_for(connection, self.memory())
    }

    /// The same content, compressed as it is sent. `memory` is what was reserved for it; a body that
    /// is not going to be sent, as for HEAD, needs none.
    pub(crate) fn stream(self, body: Body, memory: Option<ConnectionReservation>) -> Body {
        Body::stream(Compressing {
            flushes: matches!(body, Body::Stream(_)),
            source: body,
            state: State::Unstarted(self),
            unflushed: 0,
            pending: Bytes::new(),
            file: None,
            reading: None,
            trailers: None,
            memory,
        })
    }
}

/// A compressor that collects what it makes.
pub(crate) enum Encoder {
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl Encoder {
    pub(crate) fn new(encoding: Encoding) -> io::Result<Self> {
        let made = Vec::new();
        Ok(match encoding.coding {
            Coding::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                made,
                4096,
                encoding.level.into(),
                encoding.window.unwrap_or(22).into(),
            ))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(made, encoding.level.into())?;
                encoder.set_pledged_src_size(encoding.length)?;
                if let Some(window) = encoding.window {
                    encoder.window_log(window.into())?;
                }
                Self::Zstd(encoder)
            }
            Coding::Gzip | Coding::Identity => Self::Gzip(flate2::write::GzEncoder::new(
                made,
                flate2::Compression::new(encoding.level.into()),
            )),
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
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
        let mut made = std::mem::take(made);
        made.shrink_to_fit();
        made.into()
    }

    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        let mut made = match self {
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Gzip(encoder) => encoder.finish()?,
        };
        made.shrink_to_fit();
        Ok(made)
    }
}

/// A body that is compressed as it is sent.
struct Compressing {
    source: Body,
    /// Whether what the source gives is sent on at once, as events want it.
    flushes: bool,
    state: State,
    /// Bytes that were compressed since the last flush.
    unflushed: usize,
    /// What the source gave and is not compressed yet.
    pending: Bytes,
    file: Option<FileRange>,
    /// A piece of the file that has to come from a disk.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    trailers: Option<Headers>,
    /// What the compressor takes. It is given back with it.
    memory: Option<ConnectionReservation>,
}

/// How far a body is compressed.
enum State {
    /// The compressor is made when the client can take something.
    Unstarted(Encoding),
    Started(Box<Encoder>),
    Ended,
}

impl Compressing {
    /// Compresses a piece of what is pending, and gives what came of it.
    fn advance(&mut self) -> io::Result<Bytes> {
        let Some(encoder) = self.state.start()? else {
            return Ok(Bytes::new());
        };
        let piece = self.pending.split_to(self.pending.len().min(PIECE));
        encoder.write(&piece)?;
        self.unflushed = self.unflushed.saturating_add(piece.len());
        let is_wanted = self.pending.is_empty() && self.flushes && self.file.is_none();
        let is_much = self.unflushed >= FLUSH_AFTER && matches!(encoder, Encoder::Brotli(_));
        if is_wanted || is_much {
            encoder.flush()?;
            self.unflushed = 0;
        }
        Ok(encoder.take())
    }

    /// Ends the compressed content, and gives the last of it.
    fn finish(&mut self) -> io::Result<Bytes> {
        self.state.start()?;
        let rest = match std::mem::replace(&mut self.state, State::Ended) {
            State::Started(encoder) => encoder.finish()?.into(),
            State::Unstarted(_) | State::Ended => Bytes::new(),
        };
        self.memory = None;
        Ok(rest)
    }

    /// Reads on in a file that the source gave: at once if it is in the page cache, else on a thread
    /// that may wait for the disk.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(range) = &mut self.file else {
            return Poll::Ready(Ok(()));
        };
        let len = usize::try_from(range.len).map_or(PIECE, |len| len.min(PIECE));
        let mut read = match &mut self.reading {
            Some(_) => Err(io::ErrorKind::WouldBlock.into()),
            None => {
                let mut piece = BytesMut::zeroed(len);
                read_cached(&range.file, &mut piece, range.offset).map(|read| {
                    piece.truncate(read);
                    piece.freeze()
                })
            }
        };
        if read
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        {
            let reading = self.reading.get_or_insert_with(|| {
                let (file, offset) = (range.file.clone(), range.offset);
                spawn_blocking(move || {
                    let mut piece = BytesMut::zeroed(len);
                    file.read_exact_at(&mut piece, offset)?;
                    Ok(piece.freeze())
                })
            });
            read = ready!(Pin::new(reading).poll(cx)).unwrap_or_else(|error| Err(error.into()));
            self.reading = None;
        }
        let piece = read?;
        if piece.is_empty() {
            // It became shorter than it was when its length was told.
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        range.offset = range.offset.saturating_add(piece.len() as u64);
        range.len = range.len.saturating_sub(piece.len() as u64);
        if range.len == 0 {
            self.file = None;
        }
        self.pending = piece;
        Poll::Ready(Ok(()))
    }
}

impl State {
    /// The compressor, made if it has to be; `None` once the content has ended.
    fn start(&mut self) -> io::Result<Option<&mut Encoder>> {
        if let Self::Unstarted(encoding) = self {
            *self = Self::Started(Box::new(Encoder::new(*encoding)?));
        }
        Ok(match self {
            Self::Started(encoder) => Some(encoder),
            Self::Unstarted(_) | Self::Ended => None,
        })
    }
}

impl BodyStream for Compressing {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if self.pending.is_empty() {
                ready!(self.poll_file(cx))?;
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
            if matches!(self.state, State::Ended) {
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
                    let rest = self.finish()?;
                    if !rest.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::Data(rest))));
                    }
                }
            }
        }
    }

    fn waits_for_window(&self) -> bool {
        !matches!(self.state, State::Ended)
    }
}
