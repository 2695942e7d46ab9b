//! A request for a worker, and what comes back.

use apus_http::h1::HeadLimits;
use apus_http::{Body, BodyError, Frame, Headers, Method, StatusCode, fastcgi};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::Failure;
use crate::wire::{Content, INLINE_CONTENT, Message, ResponseHead};

/// A request for a worker.
#[derive(Debug)]
pub struct WorkerRequest {
    /// Its variables: a message that is not finished yet.
    pub message: Message,
    /// The method: HEAD has no content in its answer, and what is idempotent may be sent again.
    pub method: Method,
    /// What logs tell it apart by.
    pub id: u64,
    /// The content.
    pub body: Body,
}

/// The answer of a worker.
#[derive(Debug)]
pub struct WorkerResponse {
    /// The status.
    pub status: StatusCode,
    /// The field lines; none is about a connection.
    pub headers: Headers,
    /// The content. It ends in order only if it is whole. Dropped before, PHP is told that the client is
    /// gone.
    pub body: Body,
    /// The process that gave it.
    pub pid: i32,
}

/// Content on its way to a worker.
#[derive(Debug)]
pub(crate) enum Upload {
    /// It travels in the frame of its request, and can be sent again.
    Inline(SmallVec<[Bytes; 4]>),
    /// It follows when the worker asks for it.
    OnPull(Body),
}

impl Upload {
    /// Takes in content that is short, before a worker has to wait for it.
    pub(crate) async fn of(mut body: Body) -> Result<Self, Failure> {
        match body.len() {
            Some(len) if len <= INLINE_CONTENT => {}
            _ => return Ok(Self::OnPull(body)),
        }
        if matches!(body, Body::File(_)) {
            // What was put aside in a file is read in the course of things.
            return Ok(Self::OnPull(body));
        }
        let mut pieces = SmallVec::new();
        let mut room = INLINE_CONTENT;
        while let Some(frame) = body.frame().await {
            match frame.map_err(Failure::Content)? {
                Frame::Data(bytes) => {
                    room = room
                        .checked_sub(bytes.len() as u64)
                        .ok_or(Failure::Content(BodyError::TooLarge))?;
                    pieces.push(bytes);
                }
                Frame::Trailers(_) => break,
                Frame::File(range) => return Ok(Self::OnPull(Body::File(range))),
            }
        }
        Ok(Self::Inline(pieces))
    }

    pub(crate) fn content(&self) -> Content {
        match self {
            Self::Inline(pieces) => Content::Inline(pieces.iter().map(Bytes::len).sum()),
            Self::OnPull(_) => Content::Frames,
        }
    }
}

/// The head of an answer as HTTP has it. A status other than 200 is the application's; with 200 a
/// `Status` line may tell another, as scripts for CGI write it (RFC 3875 section 6.3.3).
pub(crate) fn head(answer: &ResponseHead, is_head: bool) -> Result<fastcgi::ResponseHead, Failure> {
    let status = Some(answer.status).filter(|status| *status != StatusCode::OK);
    fastcgi::ResponseHead::from_block(status, &answer.block, is_head, &LIMITS)
        .map_err(Failure::Head)
}

/// The wire has bounds of its own.
const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 64 * 1024,
    fields: 512,
};
