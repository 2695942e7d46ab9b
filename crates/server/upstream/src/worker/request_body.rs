//! The body of a request, which each attempt takes if it can still be sent.

use apus_http::Body;

/// The body of a request.
pub(super) enum RequestBody {
    /// A body that can be sent any number of times, without copying it.
    Replayable(Body),
    /// A stream, which can be sent once: `None` once its sending began.
    Once(Option<Body>),
}

impl RequestBody {
    pub(super) fn new(body: Body) -> Self {
        match body {
            // A stream is not kept for a retry: an upload of gigabytes would have to be buffered for a failure that
            // hardly ever comes.
            Body::Stream(_) => Self::Once(Some(body)),
            whole => Self::Replayable(whole),
        }
    }

    /// Whether the body can be sent.
    pub(super) fn is_available(&self) -> bool {
        !matches!(self, Self::Once(None))
    }

    /// Whether the request has no body.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Replayable(body) if body.is_empty())
    }

    /// Takes the body for an attempt; it is empty if none is [available](Self::is_available).
    pub(super) fn take(&mut self) -> Body {
        match self {
            Self::Replayable(whole) => whole.share().unwrap_or_default(),
            Self::Once(body) => body.take().unwrap_or_default(),
        }
    }

    /// Puts back a stream of which an attempt sent nothing.
    pub(super) fn put_back(&mut self, unsent: Option<Body>) {
        if let (Self::Once(body), Some(unsent)) = (self, unsent) {
            *body = Some(unsent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use apus_http::{BodyError, BodyStream, Frame};

    use super::*;

    struct PendingBody;

    impl BodyStream for PendingBody {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            Poll::Pending
        }
    }

    #[test]
    fn sends_what_is_in_memory_again() {
        let mut body = RequestBody::new("content".into());
        for _ in 0..3 {
            assert!(body.is_available() && !body.is_empty());
            assert_eq!(body.take().len(), Some(7));
        }
        assert!(RequestBody::new(Body::Empty).is_empty());
    }

    #[test]
    fn sends_a_stream_again_only_if_it_was_not_begun() {
        let mut body = RequestBody::new(Body::stream(PendingBody));
        let stream = body.take();
        assert!(!body.is_available());
        body.put_back(Some(stream));
        assert!(body.is_available());
        drop(body.take());
        body.put_back(None);
        assert!(!body.is_available());
    }
}
