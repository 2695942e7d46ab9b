//! A FastCGI response on its way to its reader: its head, then its body.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_codec::fastcgi::{BodyLength, CgiResponseHead, FastCgiError};
use apus_http::{Body, BodyError, BodyStream, Frame, Method, Version};
use bytes::Bytes;
use tokio::time::timeout;

use super::exchange::FastCgiResponsePart;
use super::{FastCgiClientConnection, SentRequest};
use crate::exchange::ClientExchange;
use crate::{ClientResponse, FailureCause, RequestFailure, RequestPhase};

/// How long the end of a response without a body is waited for before the response is passed on. Most applications
/// send it with the head, and the connection can then be used again at once.
const END_PATIENCE: Duration = Duration::from_millis(10);

/// The most output, in bytes, that an application may send after the end of a response: its process works on, for
/// nobody if it writes more.
const MAX_EXCESS: u64 = 1 << 20;

/// The connection that a response comes over, and what was read of it. If it is dropped early, the
/// application is asked to abort.
pub(super) struct FastCgiResponseBody {
    /// `None` when all was read.
    connection: Option<Box<FastCgiClientConnection>>,
    /// Data that was read and not taken yet.
    ahead: Option<Bytes>,
    /// Bytes that were not taken yet, if the head has a length.
    remaining: Option<u64>,
}

impl FastCgiResponseBody {
    pub(super) fn new(connection: Box<FastCgiClientConnection>) -> Self {
        Self {
            connection: Some(connection),
            ahead: None,
            remaining: None,
        }
    }

    /// Waits for the head, and returns the response. Calls `observe` each time it is polled before.
    pub(super) async fn respond(
        mut self,
        mut observe: impl FnMut(&mut Context<'_>, &SentRequest<'_>),
    ) -> Result<ClientResponse, RequestFailure> {
        let head = poll_fn(|cx| match &mut self.connection {
            Some(connection) => {
                let head = connection.poll_head(cx);
                if head.is_pending() {
                    observe(cx, &SentRequest(connection));
                }
                head.map_err(|error| connection.failure(error))
            }
            None => Poll::Ready(Err(RequestFailure::unsent(
                RequestPhase::Send,
                FailureCause::Closed,
            ))),
        });
        let CgiResponseHead {
            status,
            headers,
            body: length,
            invalid_line: _,
        } = head.await?;
        let body = match length {
            BodyLength::None => {
                if (timeout(END_PATIENCE, poll_fn(|cx| self.poll_end(cx))).await).is_err() {
                    self.leave();
                }
                Body::Empty
            }
            BodyLength::Length(length) => self.body(Some(length)),
            BodyLength::UntilEnd => self.body(None),
        };
        Ok(ClientResponse {
            status,
            version: Version::HTTP_11,
            headers,
            body,
            tunnel: None,
        })
    }

    /// Lets the application go on without its client, which has the whole response. A response to HEAD is aborted, as
    /// nginx does: PHP does not notice that before it sends output, and it sends none then. Other scripts have said
    /// that there is no body, to work on behind the response, and may do so.
    fn leave(mut self) {
        let is_head = |connection: &FastCgiClientConnection| {
            let head = connection.head.as_ref();
            head.is_none_or(|head| head.method == Method::HEAD)
        };
        if self
            .connection
            .as_deref()
            .is_some_and(|connection| !is_head(connection))
        {
            tokio::task::spawn_local(async move { poll_fn(|cx| self.poll_end(cx)).await });
        }
    }

    /// Waits until the application ends a response without a body. A failure does not matter any more.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        let part = connection.poll_body_part(cx);
        if part.is_pending() && connection.serial.codec.excess() <= MAX_EXCESS {
            return Poll::Pending;
        }
        if let Poll::Ready(Ok(FastCgiResponsePart::End)) = part {
            self.end();
        }
        Poll::Ready(())
    }

    /// The body that follows: bytes if all of it came with the head.
    fn body(mut self, length: Option<u64>) -> Body {
        self.remaining = length;
        // Head, body and end often come in one read. Then the connection serves the next request before the client
        // has this response.
        self.look_ahead();
        if self.ahead.is_some() {
            self.look_for_end();
        }
        match (&self.connection, self.ahead.take()) {
            (None, None) => Body::Empty,
            (None, Some(bytes)) => bytes.into(),
            (Some(_), ahead) => {
                self.ahead = ahead;
                Body::stream(self)
            }
        }
    }

    /// Takes data, or the end, from the input.
    fn look_ahead(&mut self) {
        if let Some(connection) = &mut self.connection
            // The codec returns an error again after the data.
            && let Ok(Some(received)) = connection.parse_part()
        {
            self.take(received);
        }
    }

    /// Takes the end, if it is in the input behind the data, so that the connection is given back early.
    fn look_for_end(&mut self) {
        if let Some(connection) = &self.connection
            && connection.is_done()
        {
            self.end();
        }
    }

    fn take(&mut self, received: FastCgiResponsePart) {
        match received {
            FastCgiResponsePart::Data(bytes) => self.ahead = Some(bytes),
            FastCgiResponsePart::End => self.end(),
            // The codec returns one head.
            FastCgiResponsePart::Head(_) => self.connection = None,
        }
    }

    fn end(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.give_back();
        }
    }
}

impl BodyStream for FastCgiResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if let Some(bytes) = self.ahead.take() {
                if let Some(remaining) = &mut self.remaining {
                    *remaining = remaining.saturating_sub(bytes.len() as u64);
                }
                self.look_for_end();
                return Poll::Ready(Some(Ok(Frame::Data(bytes))));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(None);
            };
            match ready!(connection.poll_body_part(cx)) {
                Ok(received) => self.take(received),
                Err(cause) => {
                    let error = match cause {
                        FailureCause::TimedOut => BodyError::TimedOut,
                        // A mistake of a script does not count against the health of its node, as one of the FastCGI
                        // server does.
                        FailureCause::Protocol(error) if is_of_script(&*error) => {
                            BodyError::Source(error)
                        }
                        FailureCause::Protocol(_) => BodyError::Malformed,
                        _ => BodyError::Disconnected,
                    };
                    connection.abort();
                    self.connection = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}

/// Whether an error is a mistake of the script.
fn is_of_script(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(FastCgiError::is_of_script)
}

impl Drop for FastCgiResponseBody {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.abort();
        }
    }
}
