//! Requests to workers and their responses.

use apus_codec::fastcgi;
use apus_codec::h1::HeadLimits;
use apus_http::{Body, BodyError, Frame, Headers, Interim, Method, RequestId, StatusCode};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::WorkerError;
use crate::log_line::LoggedRequest;
use crate::wire::{BodyTransfer, MAX_INLINE_BODY, RequestFrame, WorkerResponseHead};

/// A request to a worker.
#[derive(Debug)]
pub struct WorkerRequest {
    /// The frame with the variables, which is not finished yet.
    pub message: RequestFrame,
    /// The method: a response to HEAD has no body, and idempotent requests may be retried.
    pub method: Method,
    /// The request ID in logs.
    pub id: RequestId,
    /// Where interim responses go.
    pub interim: Interim,
    /// The body.
    pub body: Body,
}

/// A request without its body.
#[derive(Debug)]
pub(crate) struct WorkerRequestHead {
    pub(crate) message: RequestFrame,
    pub(crate) method: Method,
    /// The request ID in logs, if a client sent the request.
    pub(crate) id: Option<RequestId>,
    /// The id of the WebSocket, if the request is an event of one.
    pub(crate) socket: Option<Bytes>,
    /// Where interim responses go.
    pub(crate) interim: Interim,
}

impl WorkerRequestHead {
    pub(crate) fn logged(&self) -> LoggedRequest {
        LoggedRequest {
            method: self.method.clone(),
            target: self.message.target().to_vec(),
            id: self.id.clone(),
        }
    }
}

/// The response of a worker.
#[derive(Debug)]
pub struct WorkerResponse {
    /// The status.
    pub status: StatusCode,
    /// The header fields, without connection-specific ones.
    pub headers: Headers,
    /// The body, which ends with an error if it is incomplete. If it is dropped before its end, PHP sees that the
    /// client disconnected.
    pub body: Body,
    /// The process ID of the worker.
    pub pid: i32,
}

/// The body of a request to a worker.
#[derive(Debug)]
pub(crate) enum WorkerRequestBody {
    /// A short body in the frame of the request, which can be sent again.
    Inline(SmallVec<[Bytes; 4]>),
    /// A body that is sent when the worker requests it.
    OnPull(Body),
}

impl WorkerRequestBody {
    /// Reads a short body completely, so that no worker has to wait for it.
    pub(crate) async fn of(mut body: Body) -> Result<Self, WorkerError> {
        match body.len() {
            Some(len) if len <= MAX_INLINE_BODY => {}
            _ => return Ok(Self::OnPull(body)),
        }
        let mut pieces: SmallVec<[Bytes; 4]> = SmallVec::new();
        let mut room = MAX_INLINE_BODY;
        while let Some(frame) = body.frame().await {
            match frame.map_err(WorkerError::RequestBody)? {
                Frame::Data(bytes) => {
                    room = room
                        .checked_sub(bytes.len() as u64)
                        .ok_or(WorkerError::RequestBody(BodyError::TooLarge))?;
                    pieces.push(bytes);
                }
                Frame::Trailers(_) => break,
                // A body in a file is read when a worker requests it, so that queued requests do not take memory.
                file @ Frame::File(_) => {
                    let read = pieces.into_iter().map(Frame::Data).chain([file]);
                    return Ok(Self::OnPull(body.preceded_by(read)));
                }
            }
        }
        Ok(Self::Inline(pieces))
    }

    pub(crate) fn transfer(&self) -> BodyTransfer {
        match self {
            Self::Inline(pieces) => BodyTransfer::Inline(pieces.iter().map(Bytes::len).sum()),
            Self::OnPull(_) => BodyTransfer::Frames,
        }
    }
}

/// Parses the head of a worker's response. A status of 200 is the default, which a `Status` line of a CGI script may
/// replace (RFC 3875 section 6.3.3).
pub(crate) fn head(
    response: &WorkerResponseHead,
    is_head: bool,
) -> Result<fastcgi::CgiResponseHead, WorkerError> {
    let status = Some(response.status).filter(|status| *status != StatusCode::OK);
    fastcgi::CgiResponseHead::from_block(status, &response.block, is_head, &LIMITS)
        .map_err(WorkerError::Head)
}

/// Parses the field lines of an interim response.
pub(crate) fn interim_headers(block: &Bytes) -> Result<Headers, WorkerError> {
    fastcgi::CgiResponseHead::from_block(Some(StatusCode::OK), block, false, &LIMITS)
        .map(|head| head.headers)
        .map_err(WorkerError::Head)
}

/// The limits of a head, which the limits of the wire protocol keep small already.
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
    fn data_before_a_file_is_sent_before_the_file() {
        let file = tempfile::tempfile().unwrap();
        let file = Frame::File(apus_http::FileRange {
            file: std::sync::Arc::new(file),
            offset: 0,
            len: 100,
        });
        let pieces = ["one", "two"].map(|text| Frame::Data(text.into()));
        let body = Body::Empty.preceded_by(pieces.into_iter().chain([file]));
        assert_eq!(body.len(), Some(106));
        let Ok(WorkerRequestBody::OnPull(mut body)) = now(WorkerRequestBody::of(body)) else {
            panic!("it is in the frame");
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
