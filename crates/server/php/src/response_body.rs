//! The body of a worker's response.

use std::task::{Context, Poll, ready};

use apus_codec::fastcgi::BodyLength;
use apus_http::{Body, BodyError, BodyStream, Frame};

use crate::error::WorkerError;
use crate::exchange::WorkerExchange;
use crate::wire::{WorkerEvent, WorkerResponseHead};

/// The body of a response whose head was read. If the body was read with the head, the worker is idle after
/// this call.
pub(crate) fn response_body(
    exchange: WorkerExchange,
    length: BodyLength,
    head: &WorkerResponseHead,
) -> Body {
    exchange.remember_memory(head.memory);
    let (wanted, declared) = match length {
        BodyLength::None => (false, None),
        BodyLength::Length(bytes) => (true, Some(bytes)),
        BodyLength::UntilEnd => (true, head.content_length),
    };
    let mut stream = WorkerResponseBody {
        exchange,
        left: declared,
        is_wanted: wanted,
    };
    // The body may have been read with the head.
    let mut cx = Context::from_waker(std::task::Waker::noop());
    if head.content_length.is_none() {
        return Body::stream(stream);
    }
    match stream.poll_frame(&mut cx) {
        Poll::Ready(None) => Body::Empty,
        Poll::Ready(Some(Ok(Frame::Data(bytes)))) => match stream.left {
            Some(0) => match stream.poll_frame(&mut cx) {
                Poll::Ready(None) => Body::Bytes(bytes),
                _ => Body::stream(stream).preceded_by([Frame::Data(bytes)]),
            },
            _ => Body::stream(stream).preceded_by([Frame::Data(bytes)]),
        },
        _ => Body::stream(stream),
    }
}

struct WorkerResponseBody {
    exchange: WorkerExchange,
    /// The number of remaining bytes, if it is known.
    left: Option<u64>,
    is_wanted: bool,
}

impl BodyStream for WorkerResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            let event = ready!(self.exchange.poll_event(cx));
            self.exchange.pause_execution_limit();
            match event {
                Ok(WorkerEvent::Body(mut bytes)) => {
                    if !self.is_wanted {
                        continue;
                    }
                    if let Some(left) = &mut self.left {
                        // Bytes behind the Content-Length of the application are not part of the body.
                        bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                        *left = left.saturating_sub(bytes.len() as u64);
                    }
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::Data(bytes))));
                    }
                }
                Ok(WorkerEvent::End(end)) => {
                    self.exchange.finish(end);
                    let is_short = self.is_wanted && self.left.is_some_and(|left| left > 0);
                    if end.is_truncated || is_short {
                        return Poll::Ready(Some(Err(BodyError::Disconnected)));
                    }
                    return Poll::Ready(None);
                }
                Ok(WorkerEvent::Failed(_) | WorkerEvent::Bye(_)) => {}
                Ok(_) => continue,
                Err(error) => {
                    let error = if self.exchange.is_killed() {
                        WorkerError::TimedOut
                    } else {
                        error
                    };
                    tracing::error!(
                        pid = self.exchange.pid(),
                        path = %self.exchange.request.message.target().escape_ascii(),
                        cause = %error,
                        "the response of a worker is incomplete"
                    );
                    self.exchange.abort();
                    return Poll::Ready(Some(Err(BodyError::Disconnected)));
                }
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        if !self.is_wanted {
            return Some(0);
        }
        self.left
    }
}
