//! The body of an HTTP/1.1 response, sent from where it is.
//!
//! If its source fails, it ends so that the client notices.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, ready};

use apus_codec::h1::{BodyFraming, ServerConnection};
use apus_http::{Body, BodyError, Frame};

use super::Http1Connection;
use super::request_body::Http1RequestBody;
use super::write::{BodySendError, MAX_COPY};

/// Encoded bytes that are gathered before a write, while more are available.
pub(super) const GATHER: usize = 32 * 1024;

impl Http1Connection<'_> {
    /// Adds a body to its head if it is in memory and small; returns its length.
    pub(super) fn append_small_body(&mut self, body: &Body) -> Option<u64> {
        let bytes: &[u8] = match body {
            Body::Empty => &[],
            Body::Bytes(bytes) if bytes.len() <= MAX_COPY => bytes,
            _ => return None,
        };
        self.out.extend_from_slice(bytes);
        self.codec.send_end(None, &mut self.out);
        Some(bytes.len() as u64)
    }

    /// Sends a body; returns its length.
    pub(super) async fn send_body(
        &mut self,
        body: Body,
        framing: BodyFraming,
        request_body: &mut Option<Http1RequestBody>,
    ) -> Result<u64, BodySendError> {
        match body {
            Body::Empty => {
                self.codec.send_end(None, &mut self.out);
                Ok(0)
            }
            Body::Bytes(bytes) => {
                self.send_bytes(&bytes)
                    .await
                    .map_err(|error| BodySendError::Client { error, sent: 0 })?;
                self.codec.send_end(None, &mut self.out);
                Ok(bytes.len() as u64)
            }
            Body::Sealed(sealed) => {
                self.send_sealed(&sealed)
                    .await
                    .map_err(|error| BodySendError::Client { error, sent: 0 })?;
                self.codec.send_end(None, &mut self.out);
                Ok(sealed.bytes().len() as u64)
            }
            Body::File(range) => {
                self.send_file(&range).await?;
                self.codec.send_end(None, &mut self.out);
                Ok(range.len)
            }
            Body::Stream(_) => self.send_stream(body, framing, request_body).await,
        }
    }

    async fn send_stream(
        &mut self,
        mut body: Body,
        framing: BodyFraming,
        request_body: &mut Option<Http1RequestBody>,
    ) -> Result<u64, BodySendError> {
        let mut sent = 0;
        let length = match framing {
            BodyFraming::Length(length) => Some(length),
            _ => None,
        };
        let mut trailers = None;
        while let Some(frame) = self.next_frame(&mut body, request_body).await {
            let frame = frame.map_err(|error| BodySendError::Client { error, sent })?;
            let len = match &frame {
                Ok(Frame::Data(bytes)) => bytes.len() as u64,
                Ok(Frame::File(range)) => range.len,
                Ok(Frame::Trailers(_)) => 0,
                Err(error) => {
                    tracing::warn!(%error, "the body of a response broke off");
                    return Err(BodySendError::Source { sent });
                }
            };
            // Nothing beyond the announced length is sent: the client would read it as the next response.
            if length.is_some_and(|length| sent + len > length) {
                tracing::error!("the body of a response is longer than its head says");
                return Err(BodySendError::Source { sent });
            }
            match frame {
                Ok(Frame::Data(bytes)) => {
                    self.encode_framing(|codec, out| codec.send_chunk_start(bytes.len(), out));
                    let result = self.send_bytes(&bytes).await;
                    result.map_err(|error| BodySendError::Client { error, sent })?;
                    self.encode_framing(ServerConnection::send_chunk_end);
                    if self.out.len() >= GATHER {
                        let result = self.flush().await;
                        result.map_err(|error| BodySendError::Client { error, sent })?;
                    }
                }
                Ok(Frame::File(range)) => {
                    let len = usize::try_from(range.len).unwrap_or(usize::MAX);
                    self.encode_framing(|codec, out| codec.send_chunk_start(len, out));
                    self.send_file(&range)
                        .await
                        .map_err(|broken| broken.after(sent))?;
                    self.encode_framing(ServerConnection::send_chunk_end);
                }
                Ok(Frame::Trailers(section)) => trailers = Some(section),
                Err(_) => {}
            }
            sent += len;
        }
        // The connection has to end: a client would wait for the rest for ever, or a cache would store a part as the
        // whole.
        if length.is_some_and(|length| sent < length) {
            tracing::error!("the body of a response is shorter than its head says");
            return Err(BodySendError::Source { sent });
        }
        self.encode_framing(|codec, out| codec.send_end(trailers.as_ref(), out));
        Ok(sent)
    }

    /// Encodes the framing around data, and counts it.
    fn encode_framing(&mut self, encode: impl FnOnce(&mut ServerConnection, &mut Vec<u8>)) {
        let before = self.out.len();
        encode(&mut self.codec, &mut self.out);
        self.framing_bytes += (self.out.len() - before) as u64;
    }

    /// The next frame of a response. Encoded bytes are written before the wait.
    async fn next_frame(
        &mut self,
        body: &mut Body,
        request_body: &mut Option<Http1RequestBody>,
    ) -> Option<io::Result<Result<Frame, BodyError>>> {
        let mut flushed = self.out.is_empty();
        let frame = poll_fn(|cx| {
            self.slot.register(cx);
            loop {
                let polled = catch_unwind(AssertUnwindSafe(|| body.poll_frame(cx)));
                match polled {
                    Ok(Poll::Ready(frame)) => return Poll::Ready(Ok(frame)),
                    Ok(Poll::Pending) => {}
                    Err(_) => {
                        self.panicked();
                        let error = BodyError::Source("its source panicked".into());
                        return Poll::Ready(Ok(Some(Err(error))));
                    }
                }
                // A source that makes the client wait, as one of events does, must not hold back what was sent before.
                if !flushed {
                    ready!(self.poll_flush_out(cx))?;
                    flushed = true;
                    self.slot.clear_deadline();
                    self.release_buffers();
                }
                if self.poll_while_waiting(cx, request_body)?.is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
        match frame {
            Ok(frame) => frame.map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}
