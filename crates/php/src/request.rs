//! A request for a worker, and what comes back.

use apus_codec::fastcgi;
use apus_codec::h1::HeadLimits;
use apus_http::{Body, BodyError, Frame, Headers, Method, StatusCode};
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
        let mut pieces: SmallVec<[Bytes; 4]> = SmallVec::new();
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
                // What was put aside in a file is read in the course of things, behind what came
                // before it, so that requests that wait for a worker do not take memory for it.
                file @ Frame::File(_) => {
                    let taken = pieces.into_iter().map(Frame::Data).chain([file]);
                    return Ok(Self::OnPull(body.preceded_by(taken)));
                }
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn what_came_before_a_file_is_put_back_in_front_of_it() {
        let file = tempfile::tempfile().unwrap();
        let file = Frame::File(apus_http::FileRange {
            file: std::sync::Arc::new(file),
            offset: 0,
            len: 100,
        });
        let pieces = ["one", "two"].map(|text| Frame::Data(text.into()));
        let body = Body::Empty.preceded_by(pieces.into_iter().chain([file]));
        assert_eq!(body.len(), Some(106));
        let Ok(Upload::OnPull(mut body)) = now(Upload::of(body)) else {
            panic!("it travels in the frame");
        };
        assert_eq!(body.len(), Some(106));
        for expected in ["one", "two"] {
            match now(body.frame()) {
                Some(Ok(Frame::Data(bytes))) => assert_eq!(bytes, expected),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(now(body.frame()), Some(Ok(Frame::File(range))) if range.len == 100));
        assert!(now(body.frame()).is_none());
    }
}
