//! The content of a request for as many attempts as there may be.

use apus_http::Body;

/// The content of a request.
pub(super) enum Content {
    /// Content that can be sent any number of times, without copying it.
    Whole(Body),
    /// Content that can be sent once: `None` once it was begun.
    Once(Option<Body>),
}

impl Content {
    pub(super) fn new(body: Body) -> Self {
        match body {
            Body::Stream(_) => Self::Once(Some(body)),
            whole => Self::Whole(whole),
        }
    }

    /// Whether it can be sent.
    pub(super) fn is_available(&self) -> bool {
        !matches!(self, Self::Once(None))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Whole(body) if body.is_empty())
    }

    /// The content for an attempt; nothing if it is not [available](Self::is_available).
    pub(super) fn take(&mut self) -> Body {
        match self {
            Self::Whole(whole) => whole.share().unwrap_or_default(),
            Self::Once(body) => body.take().unwrap_or_default(),
        }
    }

    /// Takes back what an attempt did not begin.
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

    struct Endless;

    impl BodyStream for Endless {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            Poll::Pending
        }
    }

    #[test]
    fn sends_what_is_in_memory_again() {
        let mut content = Content::new("content".into());
        for _ in 0..3 {
            assert!(content.is_available() && !content.is_empty());
            assert_eq!(content.take().len(), Some(7));
        }
        assert!(Content::new(Body::Empty).is_empty());
    }

    #[test]
    fn sends_a_stream_again_only_if_it_was_not_begun() {
        let mut content = Content::new(Body::stream(Endless));
        let body = content.take();
        assert!(!content.is_available());
        content.put_back(Some(body));
        assert!(content.is_available());
        drop(content.take());
        content.put_back(None);
        assert!(!content.is_available());
    }
}
