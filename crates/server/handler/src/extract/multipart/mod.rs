//! Extractors of forms with files: `multipart/form-data` (RFC 7578).

mod form;
mod limits;
mod upload;

use std::io;
use std::sync::Arc;

use apus_http::{Body, BodyError, Frame, Request, StatusCode};
use bytes::{Bytes, BytesMut};

pub use self::form::{MultipartForm, Uploads};
pub use self::limits::UploadLimits;
pub use self::upload::Upload;

use super::body::incomplete;
use super::{FromRequest, Rejection};
use crate::body_limit::BodyLimit;
use crate::multipart::{FormTypeError, MultipartEvent, MultipartParser, PartHead};

/// The parts of a form, one after the other; see [`MultipartForm`] for all at once.
///
/// [`UploadLimits`] limit the form, and the body limit of the application limits what its parts keep in
/// memory together.
pub struct Multipart {
    body: Body,
    parser: MultipartParser,
    limits: Arc<UploadLimits>,
    /// The limit of a layer.
    body_limit: Option<u64>,
    /// The bytes that were received.
    total: u64,
    parts: usize,
    /// The bytes that parts may still keep in memory.
    in_memory: u64,
    is_in_part: bool,
}

impl Multipart {
    /// Replaces the limits of a layer. Call it before the first part is read.
    #[must_use]
    pub fn limits(mut self, limits: UploadLimits) -> Self {
        self.limits = Arc::new(limits);
        self
    }

    /// The next part; `None` after the last. Unread data of the previous part is skipped.
    ///
    /// # Errors
    /// 400 if the body is not a form or is incomplete, 408 if it arrives too slowly, and 413 if it is too
    /// long.
    pub async fn next(&mut self) -> Result<Option<Part<'_>>, Rejection> {
        loop {
            match self.event().await? {
                MultipartEvent::Part(head) => {
                    self.parts = self.parts.saturating_add(1);
                    if self.parts > self.limits.parts {
                        return Err(too_large(format_args!(
                            "the form must not have more than {} parts",
                            self.limits.parts
                        )));
                    }
                    self.is_in_part = true;
                    return Ok(Some(Part { head, form: self }));
                }
                MultipartEvent::Data(_) => {}
                MultipartEvent::PartEnd => self.is_in_part = false,
                MultipartEvent::End => return Ok(None),
            }
        }
    }

    /// The next event of the parser, which reads as much of the body as it needs.
    async fn event(&mut self) -> Result<MultipartEvent, Rejection> {
        loop {
            let event = self.parser.next().map_err(|why| {
                Rejection::new(
                    StatusCode::BAD_REQUEST,
                    format_args!("the form is broken: {why}"),
                )
            })?;
            if let Some(event) = event {
                return Ok(event);
            }
            let piece = match self.body.frame().await {
                Some(Ok(Frame::Data(piece))) => piece,
                Some(Ok(Frame::File(_) | Frame::Trailers(_))) => continue,
                Some(Err(BodyError::TooLarge)) => {
                    let limit = self.body_limit.unwrap_or(self.limits.total);
                    return Err(too_large(BodyLimit::message(limit)));
                }
                Some(Err(error)) => return Err(incomplete(&error)),
                None => {
                    return Err(Rejection::new(
                        StatusCode::BAD_REQUEST,
                        "the form ends without its last boundary",
                    ));
                }
            };
            self.total = self.total.saturating_add(piece.len() as u64);
            self.check_total(self.total)?;
            self.parser.push(piece);
        }
    }

    fn check_total(&self, total: u64) -> Result<(), Rejection> {
        if total > self.limits.total {
            Err(too_large(BodyLimit::message(self.limits.total)))
        } else {
            Ok(())
        }
    }
}

impl FromRequest for Multipart {
    type Rejection = Rejection;

    async fn from_request(mut request: Request, body_limit: u64) -> Result<Self, Rejection> {
        let content_type = request.headers().get_str("content-type").unwrap_or("");
        let parser =
            MultipartParser::for_content_type(content_type).map_err(|error| match error {
                FormTypeError::OtherType => Rejection::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "the content type must be multipart/form-data",
                ),
                FormTypeError::NoBoundary => Rejection::new(
                    StatusCode::BAD_REQUEST,
                    "the content type has no valid boundary",
                ),
            })?;
        let limits = request.extensions().get::<Arc<UploadLimits>>().cloned();
        let form = Self {
            body_limit: BodyLimit::of_body(&request),
            body: request.take_body(),
            parser,
            limits: limits.unwrap_or_default(),
            total: 0,
            parts: 0,
            in_memory: body_limit,
            is_in_part: false,
        };
        // The length is checked before a client with `Expect: 100-continue` gets a 100.
        form.check_total(form.body.len().unwrap_or(0))?;
        Ok(form)
    }
}

impl std::fmt::Debug for Multipart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Multipart")
            .field("limits", &self.limits)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

/// A part of a form: a field, or a file.
#[derive(Debug)]
pub struct Part<'a> {
    head: PartHead,
    form: &'a mut Multipart,
}

impl Part<'_> {
    /// The name of the form's field.
    pub fn name(&self) -> &str {
        &self.head.name
    }

    /// The name of the file, if it is one; as [`Upload::file_name`].
    pub fn file_name(&self) -> Option<&str> {
        self.head.file_name.as_deref()
    }

    /// The media type, as the client sent it.
    pub fn content_type(&self) -> Option<&str> {
        self.head.content_type.as_deref()
    }

    /// Waits for the next piece of data; `None` after the last.
    ///
    /// # Errors
    /// As [`Multipart::next`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Rejection> {
        if !self.form.is_in_part {
            return Ok(None);
        }
        match self.form.event().await? {
            MultipartEvent::Data(bytes) => Ok(Some(bytes)),
            _ => {
                self.form.is_in_part = false;
                Ok(None)
            }
        }
    }

    /// All data, in memory.
    ///
    /// # Errors
    /// As [`Multipart::next`], and 413 if the parts in memory are longer than the body limit of the
    /// application.
    pub async fn bytes(mut self) -> Result<Bytes, Rejection> {
        let mut first = Bytes::new();
        let mut data = BytesMut::new();
        while let Some(piece) = self.chunk().await? {
            let left = self.form.in_memory.checked_sub(piece.len() as u64);
            self.form.in_memory =
                left.ok_or_else(|| too_large("the fields of the form are too long"))?;
            if first.is_empty() && data.is_empty() {
                first = piece;
            } else {
                data.extend_from_slice(&std::mem::take(&mut first));
                data.extend_from_slice(&piece);
            }
        }
        Ok(if data.is_empty() {
            first
        } else {
            data.freeze()
        })
    }

    /// All data as text.
    ///
    /// # Errors
    /// As [`Part::bytes`], and 400 if the data is not UTF-8.
    pub async fn text(self) -> Result<String, Rejection> {
        String::from_utf8(self.bytes().await?.into())
            .map_err(|_| Rejection::new(StatusCode::BAD_REQUEST, "a field is not UTF-8"))
    }

    /// All data, in memory or in a temporary file.
    ///
    /// # Errors
    /// As [`Multipart::next`], 413 if the file is too long, and 507 or 500 if it cannot be stored.
    pub async fn store(mut self) -> Result<Upload, Rejection> {
        let limits = self.form.limits.clone();
        let mut buffer = upload::UploadBuffer::new();
        let mut length: u64 = 0;
        while let Some(piece) = self.chunk().await? {
            length = length.saturating_add(piece.len() as u64);
            if length > limits.file {
                return Err(too_large(format_args!(
                    "a file must not be longer than {} bytes",
                    limits.file
                )));
            }
            buffer.push(piece, &limits).await.map_err(not_stored)?;
        }
        let upload = buffer.finish(self.head, &limits).await;
        upload.map_err(not_stored)
    }
}

fn too_large(reason: impl std::fmt::Display) -> Rejection {
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
}

fn not_stored(error: io::Error) -> Rejection {
    tracing::error!(%error, "an upload could not be stored");
    let status = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Rejection::new(status, "the file could not be stored")
}
