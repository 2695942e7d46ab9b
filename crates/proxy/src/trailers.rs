//! Trailer sections through the proxy (RFC 9110 section 6.5).
//!
//! Fields that are not passed on in a head are not passed on behind the body either.
//!
//! What may not be a trailer field at all, and what `Connection` names, the codecs leave out.

use std::task::{Context, Poll};

use apus_http::{Body, BodyError, BodyStream, Frame, Headers, is_identity_field};

use super::forward::Forwarding;

/// A request's content on its way to an origin, or to a copy of the request.
pub(super) fn of_request(body: Body, forwarding: &Forwarding) -> Body {
    let underscores = forwarding.underscores;
    // Who the client is stands in the head.
    filtered(body, move |name| {
        !is_identity_field(name) && (underscores || !name.contains('_'))
    })
}

/// A response's content on its way to the client, without the fields that are hidden from it.
pub(super) fn of_response(body: Body, hidden: &[Box<str>]) -> Body {
    if hidden.is_empty() {
        return body;
    }
    let hidden = hidden.to_vec();
    filtered(body, move |name| {
        !hidden.iter().any(|other| **other == *name)
    })
}

fn filtered(body: Body, is_kept: impl Fn(&str) -> bool + 'static) -> Body {
    match body {
        Body::Stream(content) => Body::stream(FilteredTrailers { content, is_kept }),
        // Only a stream has trailers.
        whole => whole,
    }
}

struct FilteredTrailers<F> {
    content: Box<dyn BodyStream>,
    is_kept: F,
}

impl<F: Fn(&str) -> bool> BodyStream for FilteredTrailers<F> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.content.poll_frame(cx) {
            Poll::Ready(Some(Ok(Frame::Trailers(lines)))) => {
                let mut kept = Headers::new();
                kept.append_from(&lines, |name, _| (self.is_kept)(name));
                let trailers = Some(kept).filter(|kept| !kept.is_empty());
                Poll::Ready(trailers.map(|kept| Ok(Frame::Trailers(kept))))
            }
            polled => polled,
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.content.remaining()
    }
}
