//! A representation of a file, and its responses: complete, ranges, or 304 (RFC 9110 sections 13 to
//! 15).

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use apus_http::fields::{
    ByteRange, Coding, EntityTag, Precondition, Ranges, Validators, http_date_text,
};
use apus_http::{
    Body, BodyError, BodyStream, FileRange, Frame, Headers, Method, Request, Response,
    SealedMemory, StatusCode,
};
use bytes::Bytes;

use crate::body::FileBytes;
use crate::tree::FileIdentity;

/// The header fields that all variants of a file have in common.
pub(crate) struct FileHeaders {
    pub(crate) media_type: String,
    pub(crate) is_negotiated: bool,
    pub(crate) cache_control: Option<Box<[u8]>>,
    pub(crate) extra: Headers,
}

/// A file in one content coding.
pub(crate) struct Representation {
    pub(crate) coding: Coding,
    headers: Rc<Headers>,
    not_modified: OnceCell<Rc<Headers>>,
    pub(crate) body: FileBytes,
    entity_tag: Option<Box<[u8]>>,
    last_modified: SystemTime,
    /// Whether no other version has the same time of modification.
    is_date_strong: bool,
    /// Whether there are, or can be, other representations with the same date.
    is_negotiated: bool,
}

impl Representation {
    pub(crate) fn new(
        about: &FileHeaders,
        body: FileBytes,
        coding: Coding,
        identity: &FileIdentity,
    ) -> Self {
        let last_modified = identity.last_modified();
        let entity_tag = entity_tag(&body, coding, identity);
        let mut headers = Headers::with_capacity(256);
        {
            let mut line = |name: &str, value: &[u8]| {
                // No value can contain a control character; an invalid one is not sent.
                let _ = headers.try_append(name, value);
            };
            line("content-type", about.media_type.as_bytes());
            line("content-length", body.len().to_string().as_bytes());
            if coding != Coding::Identity {
                line("content-encoding", coding.as_str().as_bytes());
            }
            if about.is_negotiated {
                line("vary", b"accept-encoding");
            }
            if let Some(tag) = &entity_tag {
                line("etag", format!("\"{tag}\"").as_bytes());
            }
            line("last-modified", http_date_text(last_modified).as_bytes());
            line("accept-ranges", b"bytes");
            if let Some(cache_control) = &about.cache_control {
                line("cache-control", cache_control);
            }
        }
        for (name, value) in about.extra.iter() {
            let _ = headers.try_insert(name, value);
        }
        headers.shrink_to_fit();
        Self {
            coding,
            headers: Rc::new(headers),
            not_modified: OnceCell::new(),
            body,
            entity_tag: entity_tag.map(|tag| tag.into_bytes().into()),
            last_modified,
            is_date_strong: identity.is_modified_when_changed(),
            is_negotiated: about.is_negotiated,
        }
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        let body = match &self.body {
            FileBytes::Memory { bytes, .. } => bytes.len(),
            FileBytes::File { .. } => 0,
        };
        let headers = self.headers.wire().len();
        // Twice, because of the fields of 304, plus the overhead of the structures.
        body.saturating_add(headers.saturating_mul(2))
            .saturating_add(1024) as u64
    }

    /// The response to a GET or HEAD.
    pub(crate) fn respond(&self, request: &Request) -> Response {
        self.respond_by(request, true)
    }

    /// The same with the complete body, regardless of `Range`: a server may ignore it (RFC 9110
    /// section 14.2).
    pub(crate) fn respond_whole(&self, request: &Request) -> Response {
        self.respond_by(request, false)
    }

    fn respond_by(&self, request: &Request, has_ranges: bool) -> Response {
        let headers = request.headers();
        let is_plain = |name: &[u8]| !matches!(name, [b'i', b'f', b'-', ..] | b"range");
        if headers.names().all(is_plain) {
            return self.whole();
        }
        let validators = Validators {
            entity_tag: self.entity_tag.as_deref().map(|opaque| EntityTag {
                weak: false,
                opaque,
            }),
            last_modified: Some(self.last_modified),
        };
        // A condition with a date that is no strong validator is false (section 13.1.5). All variants have the same
        // date: it does not say which of them the client has a part of.
        let of_range = Validators {
            last_modified: validators
                .last_modified
                .filter(|_| self.is_date_strong && !self.is_negotiated),
            ..validators
        };
        match validators.evaluate(request.method(), headers) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                return Response::with_shared_headers(
                    StatusCode::NOT_MODIFIED,
                    Rc::clone(
                        self.not_modified
                            .get_or_init(|| self.not_modified_headers()),
                    ),
                    Body::Empty,
                );
            }
            Precondition::Failed => return Response::new(StatusCode::PRECONDITION_FAILED),
        }
        // Range is defined for GET only (section 14.2), and is not a list of lines.
        let mut ranges = headers.get_all("range");
        match (ranges.next(), ranges.next()) {
            (Some(range), None)
                if has_ranges
                    && *request.method() == Method::GET
                    && of_range.allow_range(headers) =>
            {
                self.ranges(range)
            }
            _ => self.whole(),
        }
    }

    /// The response with the complete body.
    pub(crate) fn whole(&self) -> Response {
        let all = ByteRange {
            start: 0,
            len: self.body.len(),
        };
        let body = self.body.range(all);
        Response::with_shared_headers(StatusCode::OK, Rc::clone(&self.headers), body)
    }

    /// The fields of a 200, except those that describe the body (section 15.4.5).
    fn not_modified_headers(&self) -> Rc<Headers> {
        let mut headers = Headers::clone(&self.headers);
        for name in [
            "content-type",
            "content-length",
            "content-encoding",
            "accept-ranges",
        ] {
            headers.remove(name);
        }
        headers.shrink_to_fit();
        Rc::new(headers)
    }

    fn ranges(&self, range: &[u8]) -> Response {
        let complete = self.body.len();
        let parts = match Ranges::parse(range, complete) {
            Ranges::Whole => return self.whole(),
            Ranges::Unsatisfiable => {
                let mut response = Response::new(StatusCode::RANGE_NOT_SATISFIABLE);
                let _ = response
                    .headers_mut()
                    .try_append("content-range", format!("bytes */{complete}"));
                return response;
            }
            Ranges::Parts(parts) => parts,
        };
        let mut headers = Headers::clone(&self.headers);
        let body = if let [part] = *parts {
            let _ = headers.try_insert("content-length", part.len.to_string());
            let _ = headers.try_append("content-range", part.content_range(complete).to_string());
            self.body.range(part)
        } else {
            let body = self.multipart(&parts, &mut headers);
            let _ = headers.try_insert("content-length", body.remaining.to_string());
            Body::stream(body)
        };
        Response::with_headers(StatusCode::PARTIAL_CONTENT, headers, body)
    }

    /// `multipart/byteranges` (section 14.6).
    fn multipart(&self, parts: &[ByteRange], headers: &mut Headers) -> MultipartByteranges {
        // The boundary has 128 unpredictable bits, so that no file can contain it on purpose.
        let random = || RandomState::new().hash_one(self.body.len());
        let boundary = format!("{:016x}{:016x}", random(), random());
        let media_type = headers
            .get_str("content-type")
            .unwrap_or_default()
            .to_owned();
        let _ = headers.try_insert(
            "content-type",
            format!("multipart/byteranges; boundary={boundary}"),
        );
        let complete = self.body.len();
        let mut body = MultipartByteranges::default();
        for part in parts {
            let mut head = String::new();
            // Writing to a string does not fail.
            let _ = write!(
                head,
                "\r\n--{boundary}\r\ncontent-type: {media_type}\r\ncontent-range: {}\r\n\r\n",
                part.content_range(complete)
            );
            body.push(Frame::Data(head.into()));
            body.push(self.body.frame(*part));
        }
        body.push(Frame::Data(format!("\r\n--{boundary}--\r\n").into()));
        body
    }
}

/// The opaque part of the entity tag, which differs for different bytes. For bytes in memory it is
/// a hash of them. For a file it is made of its metadata, and there is none until these are settled:
/// with the inode and its change time, because a build that is reproducible, or a copy that keeps
/// times, has the length and modification time of the version before it.
fn entity_tag(body: &FileBytes, coding: Coding, identity: &FileIdentity) -> Option<String> {
    let mut tag = match body {
        FileBytes::Memory { bytes, hash, .. } => format!("{:x}-{hash:x}", bytes.len()),
        FileBytes::File { len, .. } if identity.is_settled() => {
            format!("{len:x}-{:x}", identity.fingerprint())
        }
        FileBytes::File { .. } => return None,
    };
    if coding != Coding::Identity {
        tag.push('-');
        tag.push_str(coding.as_str());
    }
    Some(tag)
}

impl FileBytes {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory { bytes, .. } => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    fn range(&self, part: ByteRange) -> Body {
        match self {
            Self::Memory { bytes, sealed, .. } => {
                let within = within(bytes, part);
                match sealed {
                    Some(sealed) if within.len() >= SealedMemory::SHORTEST => {
                        sealed.slice(within).into()
                    }
                    _ => bytes.slice(within).into(),
                }
            }
            Self::File { file, .. } => Body::File(file_range(file, part)),
        }
    }

    fn frame(&self, part: ByteRange) -> Frame {
        match self {
            Self::Memory { bytes, .. } => Frame::Data(bytes.slice(within(bytes, part))),
            Self::File { file, .. } => Frame::File(file_range(file, part)),
        }
    }
}

fn within(bytes: &Bytes, part: ByteRange) -> Range<usize> {
    let at = |position| usize::try_from(position).map_or(bytes.len(), |at| at.min(bytes.len()));
    let start = at(part.start);
    start..at(part.start.saturating_add(part.len)).max(start)
}

fn file_range(file: &Arc<File>, part: ByteRange) -> FileRange {
    FileRange {
        file: Arc::clone(file),
        offset: part.start,
        len: part.len,
    }
}

/// The body of `multipart/byteranges`: the parts and their delimiters.
#[derive(Default)]
struct MultipartByteranges {
    frames: VecDeque<Frame>,
    remaining: u64,
}

impl MultipartByteranges {
    fn push(&mut self, frame: Frame) {
        self.remaining = self.remaining.saturating_add(size(&frame));
        self.frames.push_back(frame);
    }
}

fn size(frame: &Frame) -> u64 {
    match frame {
        Frame::Data(bytes) => bytes.len() as u64,
        Frame::File(range) => range.len,
        Frame::Trailers(_) => 0,
    }
}

impl BodyStream for MultipartByteranges {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let frame = self.frames.pop_front();
        let sent = frame.as_ref().map_or(0, size);
        self.remaining = self.remaining.saturating_sub(sent);
        Poll::Ready(frame.map(Ok))
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.remaining)
    }
}
