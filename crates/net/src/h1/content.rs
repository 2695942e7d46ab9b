//! The content of a request on its way from the connection's driver to whoever reads it.
//!
//! The driver puts in one piece at a time and only when somebody waits for it, so that a slow
//! reader slows its client and no content gathers in memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_http::{BodyError, BodyStream, Frame, Headers};
use bytes::Bytes;

/// The driver's end. When it is dropped, content that is not whole breaks off for its reader, who
/// may have outlived the answer.
pub(super) struct Content(Rc<RefCell<State>>);

/// The reader's end: the stream behind the request's body.
pub(super) struct ContentStream(Rc<RefCell<State>>);

struct State {
    next: Option<Bytes>,
    end: Option<Result<Option<Headers>, BodyError>>,
    /// Bytes that were not read yet, where the request tells how many there are.
    remaining: Option<u64>,
    wanted: bool,
    /// Whether the reader's end is gone.
    abandoned: bool,
    driver: Option<Waker>,
    reader: Option<Waker>,
}

impl Content {
    pub(super) fn new(length: Option<u64>) -> (Self, ContentStream) {
        let state = Rc::new(RefCell::new(State {
            next: None,
            end: None,
            remaining: length,
            wanted: false,
            abandoned: false,
            driver: None,
            reader: None,
        }));
        (Self(Rc::clone(&state)), ContentStream(state))
    }

    /// Whether the reader waits for more. If not, `cx` is woken when it does.
    pub(super) fn poll_wanted(&self, cx: &Context<'_>) -> bool {
        let mut state = self.0.borrow_mut();
        if state.wanted && state.next.is_none() && state.end.is_none() {
            return true;
        }
        match &state.driver {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => state.driver = Some(cx.waker().clone()),
        }
        false
    }

    /// Whether nobody can read it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.borrow().abandoned
    }

    /// Hands over a piece. The caller polls the reader next if it is of the task of `cx`.
    pub(super) fn push(&self, bytes: Bytes, cx: &Context<'_>) {
        let mut state = self.0.borrow_mut();
        if !state.abandoned {
            state.next = Some(bytes);
        }
        state.wake_reader(cx);
    }

    /// Hands over the end, as [`Content::push`] a piece.
    pub(super) fn end(&self, end: Result<Option<Headers>, BodyError>, cx: &Context<'_>) {
        let mut state = self.0.borrow_mut();
        if state.end.is_none() {
            state.end = Some(end);
        }
        state.wake_reader(cx);
    }
}

impl State {
    fn wake_reader(&mut self, cx: &Context<'_>) {
        self.wanted = false;
        if let Some(reader) = self.reader.take()
            && !reader.will_wake(cx.waker())
        {
            reader.wake();
        }
    }
}

impl BodyStream for ContentStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut state = self.0.borrow_mut();
        if let Some(bytes) = state.next.take() {
            if let Some(remaining) = &mut state.remaining {
                *remaining = remaining.saturating_sub(bytes.len() as u64);
            }
            return Poll::Ready(Some(Ok(Frame::Data(bytes))));
        }
        match state.end.take() {
            Some(Ok(trailers)) => {
                // Polled once more after the trailers, it says that there is nothing.
                state.end = Some(Ok(None));
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::Trailers(trailers))));
            }
            Some(Err(error)) => {
                state.end = Some(Ok(None));
                return Poll::Ready(Some(Err(error)));
            }
            None => {}
        }
        // The driver polls the handler from its own task, in which case it sees `wanted` at once
        // and has no other waker than this one.
        if !state.wanted {
            state.wanted = true;
            if let Some(driver) = state.driver.take()
                && !driver.will_wake(cx.waker())
            {
                driver.wake();
            }
        }
        match &state.reader {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => state.reader = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn remaining(&self) -> Option<u64> {
        self.0.borrow().remaining
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        if state.end.is_none() {
            let pending = state.next.as_ref().map_or(0, Bytes::len) as u64;
            let whole = state.remaining == Some(pending);
            state.end = Some(match whole {
                true => Ok(None),
                false => Err(BodyError::Disconnected),
            });
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}

impl Drop for ContentStream {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.abandoned = true;
        state.next = None;
        state.wanted = false;
    }
}
