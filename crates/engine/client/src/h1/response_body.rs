//! The body of an HTTP/1.1 response on its way to its reader.

use std::task::{Context, Poll, ready};

use apus_codec::h1::{BodyFraming, Http1ResponseHead};
use apus_http::{Body, BodyError, BodyStream, Frame};
use apus_transport::tunnel::Http1Tunnel;

use super::Http1ClientConnection;
use super::response_part::Http1ResponsePart;
use crate::exchange::{ClientExchange, SerialConnection};
use crate::{ClientResponse, FailureCause};

/// The part of a response's body that was read, and the connection that the rest comes over.
struct Http1ResponseBody {
    /// `None` when all was read.
    connection: Option<Box<Http1ClientConnection>>,
    ahead: Ahead,
    /// Bytes that were not taken yet, if the head has a length.
    remaining: Option<u64>,
}

/// The frames that were read and not taken yet: at most two, since no more are parsed ahead.
#[derive(Default)]
struct Ahead {
    next: Option<Frame>,
    behind: Option<Frame>,
}

/// The response with this head.
pub(super) fn respond(
    inner: Box<Http1ClientConnection>,
    head: Http1ResponseHead,
) -> ClientResponse {
    let Http1ResponseHead {
        status,
        version,
        headers,
        body: framing,
    } = head;
    let mut response = ClientResponse {
        status,
        version,
        headers,
        body: Body::Empty,
        tunnel: None,
    };
    if inner.serial.codec.is_tunnel() {
        let SerialConnection {
            transport, input, ..
        } = inner.serial;
        // Bytes behind the head of 101 belong to the tunnel already.
        response.tunnel = Some(Box::new(Http1Tunnel::new(transport, input)));
        return response;
    }
    response.body = match framing {
        BodyFraming::None => {
            // Before the response is passed on, so that the next request can have the connection meanwhile.
            inner.give_back();
            Body::Empty
        }
        BodyFraming::Length(length) => body(inner, Some(length)),
        BodyFraming::Chunked | BodyFraming::UntilClose => body(inner, None),
    };
    response
}

/// The body that follows: bytes if all of it came with the head.
fn body(connection: Box<Http1ClientConnection>, remaining: Option<u64>) -> Body {
    let mut incoming = Http1ResponseBody {
        connection: Some(connection),
        ahead: Ahead::default(),
        remaining,
    };
    incoming.look_ahead();
    // A second time for the end, which is often behind the data and gives the connection back.
    if incoming.ahead.next.is_some() {
        incoming.look_ahead();
    }
    if incoming.connection.is_none() && incoming.ahead.behind.is_none() {
        match incoming.ahead.pop() {
            None => return Body::Empty,
            Some(Frame::Data(bytes)) => return bytes.into(),
            Some(frame) => incoming.ahead.push(frame),
        }
    }
    Body::stream(incoming)
}

impl Ahead {
    fn push(&mut self, frame: Frame) {
        match self.next {
            None => self.next = Some(frame),
            Some(_) => self.behind = Some(frame),
        }
    }

    fn pop(&mut self) -> Option<Frame> {
        std::mem::replace(&mut self.next, self.behind.take())
    }
}

impl Http1ResponseBody {
    /// Takes a frame from the input, or the end, which gives the connection back.
    fn look_ahead(&mut self) {
        if let Some(connection) = &mut self.connection
            // The codec returns an error again after the data.
            && let Ok(Some(received)) = connection.parse_part()
        {
            self.take(received);
        }
    }

    fn take(&mut self, received: Http1ResponsePart) {
        match received {
            Http1ResponsePart::Data(bytes) => self.ahead.push(Frame::Data(bytes)),
            Http1ResponsePart::End(trailers) => {
                if let Some(trailers) = trailers {
                    self.ahead.push(Frame::Trailers(trailers));
                }
                if let Some(connection) = self.connection.take() {
                    connection.give_back();
                }
            }
            // Only the end follows a body.
            Http1ResponsePart::Head(_) => self.connection = None,
        }
    }
}

impl BodyStream for Http1ResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if let Some(frame) = self.ahead.pop() {
                if let (Frame::Data(bytes), Some(remaining)) = (&frame, &mut self.remaining) {
                    *remaining = remaining.saturating_sub(bytes.len() as u64);
                }
                // The end may be in the input. Found now, the connection is free before the reader polls again.
                if self.ahead.next.is_none() {
                    self.look_ahead();
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(None);
            };
            match ready!(connection.poll_body_part(cx)) {
                Ok(received) => self.take(received),
                Err(cause) => {
                    self.connection = None;
                    return Poll::Ready(Some(Err(match cause {
                        FailureCause::TimedOut => BodyError::TimedOut,
                        FailureCause::Protocol(_) => BodyError::Malformed,
                        _ => BodyError::Disconnected,
                    })));
                }
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}
