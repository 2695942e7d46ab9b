//! A body between the driver of its connection and its reader.
//!
//! Over HTTP/1.1 the driver adds one chunk at a time, and only when the reader waits for it, so that a slow
//! reader slows its client down and no body gathers in memory. Over HTTP/2 the other streams of the
//! connection must not wait for that reader: chunks gather here up to the window of the stream, which opens
//! when they are read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_http::{BodyError, BodyStream, Frame, Headers};
use bytes::Bytes;

/// Chunks that wait are joined up to this size, so that a client which sends many small ones costs little
/// more memory than their bytes.
const JOINED: usize = 64 * 1024;

/// The driver's end. If it is dropped before the body is whole, the reader gets an error; the reader may
/// outlive the response.
pub struct BodySender(Rc<RefCell<BodyState>>);

/// The reader's end: the stream behind the request's body.
pub struct BodyReceiver(Rc<RefCell<BodyState>>);

struct BodyState {
    next: Option<Bytes>,
    /// The chunks behind `next`.
    more: VecDeque<Vec<u8>>,
    end: Option<Result<Option<Headers>, BodyError>>,
    /// Bytes that were not read yet, if the request has a length.
    remaining: Option<u64>,
    /// Bytes that were read or discarded and not reported to the driver yet.
    used: usize,
    wanted: bool,
    /// Whether the reader was dropped.
    abandoned: bool,
    driver: Option<Waker>,
    reader: Option<Waker>,
    /// What the bodies of the connection have that was not read.
    unread: Option<UnreadBytes>,
}

/// The bytes of all bodies of a connection that arrived and were not read.
#[derive(Clone, Debug, Default)]
pub struct UnreadBytes(Rc<Cell<usize>>);

impl UnreadBytes {
    /// How many there are.
    pub fn get(&self) -> usize {
        self.0.get()
    }

    fn add(&self, bytes: usize) {
        self.0.set(self.0.get().saturating_add(bytes));
    }

    fn remove(&self, bytes: usize) {
        self.0.set(self.0.get().saturating_sub(bytes));
    }
}

/// What the reader did since the driver's last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyProgress {
    /// How many bytes were read or discarded.
    pub used: usize,
    /// Whether the reader waits for more.
    pub wanted: bool,
}

impl BodySender {
    /// The two ends of a body, whose length is given if the message has one.
    pub fn new(length: Option<u64>) -> (Self, BodyReceiver) {
        Self::of_connection(length, None)
    }

    /// As [`BodySender::new`]; the bytes of [`BodySender::push_behind`] are counted until they are read.
    pub fn counted(length: Option<u64>, unread: &UnreadBytes) -> (Self, BodyReceiver) {
        Self::of_connection(length, Some(unread.clone()))
    }

    fn of_connection(length: Option<u64>, unread: Option<UnreadBytes>) -> (Self, BodyReceiver) {
        let state = Rc::new(RefCell::new(BodyState {
            next: None,
            more: VecDeque::new(),
            end: None,
            remaining: length,
            used: 0,
            wanted: false,
            abandoned: false,
            driver: None,
            reader: None,
            unread,
        }));
        (Self(Rc::clone(&state)), BodyReceiver(state))
    }

    /// Whether the reader waits for more. If not, `cx` is woken when it does.
    pub fn poll_wanted(&self, cx: &Context<'_>) -> bool {
        let mut state = self.0.borrow_mut();
        if state.is_wanted() {
            return true;
        }
        state.watch(cx);
        false
    }

    /// The reader's progress; `cx` is woken when there is more.
    pub fn progress(&self, cx: &Context<'_>) -> BodyProgress {
        let mut state = self.0.borrow_mut();
        state.watch(cx);
        BodyProgress {
            used: std::mem::take(&mut state.used),
            wanted: state.is_wanted(),
        }
    }

    /// Whether the end was added.
    pub fn is_ended(&self) -> bool {
        self.0.borrow().end.is_some()
    }

    /// Whether the reader was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.0.borrow().abandoned
    }

    /// Adds a chunk. If the reader belongs to the task of `cx`, the caller polls it next.
    pub fn push(&self, bytes: Bytes, cx: &Context<'_>) {
        let mut state = self.0.borrow_mut();
        if !state.abandoned {
            state.next = Some(bytes);
        }
        state.wake_reader(cx);
    }

    /// Adds a copy of a chunk behind those that were not read yet. Returns whether the reader waits for it
    /// with `cx`, so that the caller has to poll the reader.
    pub fn push_behind(&self, piece: &[u8], cx: &Context<'_>) -> bool {
        let mut state = self.0.borrow_mut();
        // What nobody reads counts as used all the same, or the windows of the connection would stay closed for its
        // other streams.
        if state.abandoned {
            state.used = state.used.saturating_add(piece.len());
            return false;
        }
        if piece.is_empty() {
            return false;
        }
        if let Some(unread) = &state.unread {
            unread.add(piece.len());
        }
        if state.next.is_none() {
            state.next = Some(Bytes::copy_from_slice(piece));
        } else {
            match state.more.back_mut() {
                Some(last) if last.len() + piece.len() <= JOINED => last.extend_from_slice(piece),
                _ => state.more.push_back(piece.to_vec()),
            }
        }
        state.wake_reader(cx)
    }

    /// Adds the end, as [`BodySender::push_behind`] adds a chunk.
    pub fn end(&self, end: Result<Option<Headers>, BodyError>, cx: &Context<'_>) -> bool {
        let mut state = self.0.borrow_mut();
        // The first end stays: an error of the connection after it is no error of this body.
        if state.end.is_none() {
            state.end = Some(end);
        }
        state.wake_reader(cx)
    }
}

impl BodyState {
    fn is_wanted(&self) -> bool {
        self.wanted && self.next.is_none() && self.end.is_none()
    }

    fn watch(&mut self, cx: &Context<'_>) {
        match &self.driver {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => self.driver = Some(cx.waker().clone()),
        }
    }

    /// Wakes the reader. Returns true instead if the reader waits with `cx`.
    fn wake_reader(&mut self, cx: &Context<'_>) -> bool {
        self.wanted = false;
        match self.reader.take() {
            // To wake the task that runs would only make it run once more.
            Some(reader) if reader.will_wake(cx.waker()) => true,
            Some(reader) => {
                reader.wake();
                false
            }
            None => false,
        }
    }

    /// Wakes the driver, unless it is the caller. The driver registers again each time.
    fn wake_driver(&mut self, cx: Option<&Context<'_>>) {
        if let Some(driver) = self.driver.take()
            && !cx.is_some_and(|cx| driver.will_wake(cx.waker()))
        {
            driver.wake();
        }
    }

    fn waiting(&self) -> usize {
        let more = self.more.iter().map(Vec::len).sum::<usize>();
        self.next.as_ref().map_or(0, Bytes::len) + more
    }
}

impl BodyStream for BodyReceiver {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut state = self.0.borrow_mut();
        if let Some(bytes) = state.next.take() {
            state.next = state.more.pop_front().map(Bytes::from);
            if let Some(remaining) = &mut state.remaining {
                *remaining = remaining.saturating_sub(bytes.len() as u64);
            }
            state.used = state.used.saturating_add(bytes.len());
            if let Some(unread) = &state.unread {
                unread.remove(bytes.len());
            }
            state.wake_driver(Some(cx));
            return Poll::Ready(Some(Ok(Frame::Data(bytes))));
        }
        match state.end.take() {
            Some(Ok(trailers)) => {
                // A poll after the trailers returns the end again.
                state.end = Some(Ok(None));
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::Trailers(trailers))));
            }
            Some(Err(error)) => {
                state.end = Some(Ok(None));
                return Poll::Ready(Some(Err(error)));
            }
            None => {}
        }
        // If the driver polls the handler from its own task, it sees `wanted` at once and has no other waker
        // than this one.
        if !state.wanted {
            state.wanted = true;
            state.wake_driver(Some(cx));
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

impl Drop for BodySender {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        if state.end.is_none() {
            // A body with a length is whole when all of it has come, also if the connection ends before the end was
            // noted.
            let whole = state.remaining == Some(state.waiting() as u64);
            state.end = Some(if whole {
                Ok(None)
            } else {
                Err(BodyError::Disconnected)
            });
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}

impl Drop for BodyReceiver {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.abandoned = true;
        let unread = state.waiting();
        state.used = state.used.saturating_add(unread);
        if let Some(of_connection) = &state.unread {
            of_connection.remove(unread);
        }
        state.next = None;
        state.more = VecDeque::new();
        state.wanted = false;
        if unread > 0 || state.end.is_none() {
            // The driver may receive more of the body, which is discarded now.
            state.wake_driver(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(polled: Poll<Option<Result<Frame, BodyError>>>) -> Bytes {
        match polled {
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => bytes,
            other => panic!("no data: {other:?}"),
        }
    }

    #[test]
    fn small_pieces_that_wait_are_joined_and_count_as_used_when_read() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (sender, mut receiver) = BodySender::new(None);
        for byte in 0..=255 {
            sender.push_behind(&[byte], cx);
        }
        sender.end(Ok(None), cx);
        assert_eq!(sender.progress(cx).used, 0);
        assert_eq!(data(receiver.poll_frame(cx)).len(), 1);
        assert_eq!(sender.progress(cx).used, 1);
        assert_eq!(data(receiver.poll_frame(cx)).len(), 255);
        assert_eq!(sender.progress(cx).used, 255);
        assert!(matches!(receiver.poll_frame(cx), Poll::Ready(None)));
    }

    #[test]
    fn what_is_not_read_of_all_bodies_is_counted() {
        let cx = &mut Context::from_waker(Waker::noop());
        let unread = UnreadBytes::default();
        let (first, mut receiver) = BodySender::counted(None, &unread);
        let (second, dropped) = BodySender::counted(None, &unread);
        for sender in [&first, &second] {
            sender.push_behind(&[0; 100], cx);
            sender.push_behind(&[0; 50], cx);
        }
        assert_eq!(unread.get(), 300);
        assert_eq!(data(receiver.poll_frame(cx)).len(), 100);
        assert_eq!(unread.get(), 200);
        drop(dropped);
        second.push_behind(&[0; 100], cx);
        assert_eq!(unread.get(), 50);
        // The reader may outlive its connection.
        drop(first);
        assert_eq!(data(receiver.poll_frame(cx)).len(), 50);
        assert_eq!(unread.get(), 0);
    }

    #[test]
    fn bytes_that_a_dropped_reader_left_count_as_used() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (sender, receiver) = BodySender::new(None);
        sender.push_behind(&[0; 100], cx);
        sender.push_behind(&[0; 100], cx);
        drop(receiver);
        sender.push_behind(&[0; 100], cx);
        assert!(sender.is_abandoned());
        assert_eq!(sender.progress(cx).used, 300);
    }

    #[test]
    fn a_body_that_is_whole_when_its_connection_ends_can_be_read_to_its_end() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (sender, mut receiver) = BodySender::new(Some(5));
        sender.push_behind(b"ab", cx);
        sender.push_behind(b"cde", cx);
        drop(sender);
        assert_eq!(data(receiver.poll_frame(cx)), "ab");
        assert_eq!(data(receiver.poll_frame(cx)), "cde");
        assert!(matches!(receiver.poll_frame(cx), Poll::Ready(None)));
    }
}
