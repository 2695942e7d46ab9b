//! The content of an answer that comes in pieces.

use std::task::{Context, Poll, ready};

use apus_codec::fastcgi::ResponseContent;
use apus_http::{Body, BodyError, BodyStream, Frame};

use crate::error::Failure;
use crate::exchange::Exchange;
use crate::wire::{Event, ResponseHead};

/// The content of the answer whose head was read. If all of it is there already, the worker is free
/// from here on.
pub(crate) fn content(exchange: Exchange, length: ResponseContent, head: &ResponseHead) -> Body {
    exchange.remember_memory(head.memory);
    let (wanted, declared) = match length {
        ResponseContent::None => (false, None),
        ResponseContent::Length(bytes) => (true, Some(bytes)),
        ResponseContent::UntilEnd => (true, head.content_length),
    };
    let mut stream = ContentStream {
        exchange,
        left: declared,
        is_wanted: wanted,
    };
    // What is there was read with the head.
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

struct ContentStream {
    exchange: Exchange,
    /// Bytes that are to come, if that is known.
    left: Option<u64>,
    is_wanted: bool,
}

impl BodyStream for ContentStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            let event = ready!(self.exchange.poll_event(cx));
            self.exchange.rest();
            match event {
                Ok(Event::Content(mut bytes)) => {
                    if !self.is_wanted {
                        continue;
                    }
                    if let Some(left) = &mut self.left {
                        // What is behind the length that the application told is no content.
                        bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                        *left = left.saturating_sub(bytes.len() as u64);
                    }
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::Data(bytes))));
                    }
                }
                Ok(Event::End(ending)) => {
                    self.exchange.finish(ending);
                    let is_short = self.is_wanted && self.left.is_some_and(|left| left > 0);
                    if ending.broke_off || is_short {
                        return Poll::Ready(Some(Err(BodyError::Disconnected)));
                    }
                    return Poll::Ready(None);
                }
                Ok(Event::Failed(_) | Event::Bye(_)) => {}
                Ok(_) => continue,
                Err(failure) => {
                    let failure = match self.exchange.is_killed() {
                        true => Failure::TimedOut,
                        false => failure,
                    };
                    tracing::error!(
                        pid = self.exchange.pid(),
                        path = %self.exchange.request.message.target().escape_ascii(),
                        cause = %failure,
                        "the answer of a worker broke off"
                    );
                    self.exchange.give_up();
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
