//! The filter of trailer sections, which forwards only fields that it would forward as headers (RFC 9110 section 6.5).

use std::task::{Context, Poll};

use apus_http::{Body, BodyError, BodyStream, Frame, Headers, is_identity_field};

use super::request_headers::Forwarding;

/// Filters the trailers of a request body. The codecs already removed fields that cannot be trailers, and those
/// that `Connection` names.
pub(super) fn of_request(body: Body, forwarding: &Forwarding) -> Body {
    let underscores = forwarding.underscores;
    // The identity of the client is in the headers.
    filtered(body, move |name| {
        !is_identity_field(name) && (underscores || !name.contains(&b'_'))
    })
}

/// Filters the trailers of a response body by the names that are hidden from the client.
pub(super) fn of_response(body: Body, hidden: &[Box<str>]) -> Body {
    if hidden.is_empty() {
        return body;
    }
    let hidden = hidden.to_vec();
    filtered(body, move |name| {
        !hidden.iter().any(|other| other.as_bytes() == name)
    })
}

fn filtered(body: Body, is_kept: impl Fn(&[u8]) -> bool + 'static) -> Body {
    match body {
        Body::Stream(inner) => Body::stream(TrailerFilter { inner, is_kept }),
        // Only a stream has trailers.
        whole => whole,
    }
}

struct TrailerFilter<F> {
    inner: Box<dyn BodyStream>,
    is_kept: F,
}

impl<F: Fn(&[u8]) -> bool> BodyStream for TrailerFilter<F> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.inner.poll_frame(cx) {
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
        self.inner.remaining()
    }
}
