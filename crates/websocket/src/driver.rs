//! Drives a socket: bytes between its connection and its transport, pings, and the handler beside it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::codec::{CloseCode, Event};
use apus_http::Duplex;
use bytes::BytesMut;
use tokio::time::{Instant, Sleep};

use super::state::{Ended, Shared, State};

/// What is read at once.
const READ: usize = 16 * 1024;

thread_local! {
    /// What sockets of this thread read into, so that those that wait hold no buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// A handler of one socket.
pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs a socket and its handler until both are done. The handler is never cut short: it learns from
/// its socket that the client is gone.
pub(super) async fn run(duplex: Box<dyn Duplex>, shared: Rc<Shared>, handler: Task) {
    let mut driver = Driver::new(duplex, shared);
    let mut handler = Some(handler);
    poll_fn(|cx| {
        loop {
            let transport = driver.poll(cx);
            if let Some(task) = &mut handler
                && task.as_mut().poll(cx).is_ready()
            {
                handler = None;
                driver.shared.state.borrow_mut().discard();
                // It may be closed already.
                let _ = driver
                    .shared
                    .state
                    .borrow_mut()
                    .connection
                    .close_with(CloseCode::NORMAL);
            }
            if transport.is_ready() && handler.is_none() {
                return Poll::Ready(());
            }
            let mut state = driver.shared.state.borrow_mut();
            if transport.is_ready() || !state.is_dirty {
                state.driver = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    })
    .await;
}

struct Driver {
    duplex: Box<dyn Duplex>,
    shared: Rc<Shared>,
    /// Whether the transport may keep back some of what was written.
    is_unflushed: bool,
    /// What was read and not understood yet.
    input: BytesMut,
    stage: Stage,
    timer: Pin<Box<Sleep>>,
    heard_at: Instant,
    /// Whether a ping was sent since.
    has_pinged: bool,
    /// When the close was sent.
    closing_at: Option<Instant>,
    /// Until the worker stops.
    stopping: Option<Task>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// Everything was said; the transport's end is to be sent.
    Ending,
    /// What the client still sends is read and dropped: otherwise it could miss our close.
    Draining,
    Done,
}

impl Driver {
    fn new(duplex: Box<dyn Duplex>, shared: Rc<Shared>) -> Self {
        let now = Instant::now();
        let settings = &shared.settings;
        let first = settings.ping_interval.unwrap_or(settings.idle_timeout);
        Self {
            timer: Box::pin(tokio::time::sleep_until(now + first)),
            duplex,
            shared,
            is_unflushed: false,
            input: BytesMut::new(),
            stage: Stage::Open,
            heard_at: now,
            has_pinged: false,
            closing_at: None,
            stopping: Some(Box::pin(apus_net::stopping())),
        }
    }

    /// Does all that can be done. Ready once the transport is of no more use.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stage == Stage::Done {
            return Poll::Ready(());
        }
        let shared = Rc::clone(&self.shared);
        let state = &mut *shared.state.borrow_mut();
        state.driver = None;
        state.is_dirty = false;
        if let Some(stopping) = &mut self.stopping
            && stopping.as_mut().poll(cx).is_ready()
        {
            self.stopping = None;
            // It may be closed already.
            let _ = state.connection.close_with(CloseCode::GOING_AWAY);
        }
        let moved = self.exchange(state, cx);
        let timed = moved.and_then(|()| self.look_at_time(state, cx));
        if let Err(ended) = timed {
            self.stage = Stage::Done;
            state.connection.drop_output();
            state.end(ended);
        }
        if state.ended.is_some() {
            wake(state.receiver.take(), cx);
            shared.leave_rooms();
        }
        if state.ended.is_some() || state.connection.output_len() < shared.settings.send_buffer {
            state
                .senders
                .drain(..)
                .for_each(|waker| wake(Some(waker), cx));
        }
        match self.stage {
            Stage::Done => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    fn exchange(&mut self, state: &mut State, cx: &mut Context<'_>) -> Result<(), Ended> {
        let max = self.shared.settings.max_message;
        while self.stage == Stage::Open {
            while state.takes_more(max)
                && let Some(event) = state.connection.handle_input(&mut self.input)
            {
                take(state, event, cx);
            }
            state.answer_close();
            let is_written = self.write(state, cx).map_err(lost)?;
            if state.connection.is_finished() {
                self.stage = Stage::Ending;
            } else if !state.takes_more(max) || !self.read(state, cx)? {
                if is_written && self.input.is_empty() {
                    self.input = BytesMut::new();
                }
                return Ok(());
            }
        }
        if self.stage == Stage::Ending {
            match self.duplex.poll_shutdown(cx) {
                Poll::Ready(Ok(())) => self.stage = Stage::Draining,
                Poll::Ready(Err(error)) => return Err(lost(error)),
                Poll::Pending => return Ok(()),
            }
        }
        while self.stage == Stage::Draining {
            match SCRATCH.with_borrow_mut(|scratch| self.duplex.poll_read(cx, scratch)) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => self.stage = Stage::Done,
                Poll::Pending => return Ok(()),
            }
        }
        Ok(())
    }

    /// Sends what waits; tells whether all of it could be sent.
    fn write(&mut self, state: &mut State, cx: &mut Context<'_>) -> io::Result<bool> {
        while !state.connection.output().is_empty() {
            match self.duplex.poll_write(cx, state.connection.output()) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => state.connection.consume_output(written),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(false),
            }
            self.is_unflushed = true;
        }
        if self.is_unflushed {
            match self.duplex.poll_flush(cx) {
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(())) => self.is_unflushed = false,
                // The rest of it leaves when there is room, while others are read and written.
                Poll::Pending => {}
            }
        }
        Ok(true)
    }

    /// Reads what is there; tells whether anything was.
    fn read(&mut self, state: &mut State, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let missing = state.connection.missing(&self.input);
        let polled = match missing >= READ {
            // Much of one message: straight to its place.
            true => {
                let len = self.input.len();
                self.input
                    .resize(len.saturating_add(missing.min(4 * READ)), 0);
                let room = self.input.get_mut(len..).unwrap_or_default();
                let polled = self.duplex.poll_read(cx, room);
                let read = match &polled {
                    Poll::Ready(Ok(read)) => *read,
                    _ => 0,
                };
                self.input.truncate(len.saturating_add(read));
                polled
            }
            false => SCRATCH.with_borrow_mut(|scratch| {
                let polled = self.duplex.poll_read(cx, scratch);
                if let Poll::Ready(Ok(read)) = &polled {
                    let read = scratch.get(..*read).unwrap_or_default();
                    self.input.extend_from_slice(read);
                }
                polled
            }),
        };
        match polled {
            Poll::Ready(Ok(0)) => Err(Ended::Lost(io::ErrorKind::UnexpectedEof)),
            Poll::Ready(Ok(_)) => {
                self.heard_at = Instant::now();
                self.has_pinged = false;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(lost(error)),
            Poll::Pending => Ok(false),
        }
    }

    /// Sends pings, and gives up a client that says nothing.
    fn look_at_time(&mut self, state: &mut State, cx: &mut Context<'_>) -> Result<(), Ended> {
        if self.closing_at.is_none() && (state.connection.is_closing() || state.ended.is_some()) {
            self.closing_at = Some(Instant::now());
        }
        loop {
            let deadline = self.deadline();
            // The timer is moved only when it fires, or would fire too late.
            if self.timer.deadline() > deadline {
                self.timer.as_mut().reset(deadline);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            if self.timer.deadline() < deadline {
                self.timer.as_mut().reset(deadline);
                continue;
            }
            if self.closing_at.is_none() && !state.takes_more(self.shared.settings.max_message) {
                // Nothing is read while the handler is behind: the silence is ours.
                self.heard_at = Instant::now();
                continue;
            }
            if self.closing_at.is_some() || self.is_last_deadline() {
                // For a handler that never took what came before the close.
                state.connection.answer_close();
                self.write(state, cx).map_err(lost)?;
                return Err(Ended::TimedOut);
            }
            self.has_pinged = true;
            // Open, as it is not closing.
            let _ = state.connection.ping(b"");
            self.write(state, cx).map_err(lost)?;
        }
    }

    fn deadline(&self) -> Instant {
        let settings = &self.shared.settings;
        match (self.closing_at, settings.ping_interval) {
            (Some(closing_at), _) => closing_at + settings.close_timeout,
            (None, Some(interval)) if !self.is_last_deadline() => self.heard_at + interval,
            (None, _) => self.heard_at + settings.idle_timeout,
        }
    }

    /// Whether the next deadline is that of the client.
    fn is_last_deadline(&self) -> bool {
        let settings = &self.shared.settings;
        let interval = settings.ping_interval;
        self.has_pinged || interval.is_none_or(|interval| interval >= settings.idle_timeout)
    }
}

fn take(state: &mut State, event: Event, cx: &Context<'_>) {
    match event {
        Event::Message(message) => {
            state.push(message);
            wake(state.receiver.take(), cx);
        }
        Event::Ping(_) | Event::Pong(_) => {}
        Event::Close(close) => state.end(Ended::Closed(close)),
        Event::Failed(error) => state.end(Ended::Failed(error)),
    }
}

fn lost(error: io::Error) -> Ended {
    Ended::Lost(error.kind())
}

/// Wakes who is not polled next anyway: the handler, if it waits in the driver's own task.
fn wake(waker: Option<Waker>, cx: &Context<'_>) {
    if let Some(waker) = waker
        && !waker.will_wake(cx.waker())
    {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::codec::{Connection, Settings};

    use super::super::{WebSocket, WebSocketSettings};
    use super::*;

    /// A client that sends a message each time it has an answer, and goes away behind the last.
    struct Asking {
        left: usize,
        has_answer: bool,
        calls: Rc<Calls>,
    }

    #[derive(Default)]
    struct Calls {
        reads: Cell<usize>,
        writes: Cell<usize>,
        flushes: Cell<usize>,
    }

    fn count(calls: &Cell<usize>) {
        calls.set(calls.get() + 1);
    }

    impl Duplex for Asking {
        fn poll_read(
            &mut self,
            cx: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            if !std::mem::take(&mut self.has_answer) {
                return Poll::Pending;
            }
            // As a socket that is readable again.
            cx.waker().wake_by_ref();
            if self.left == 0 {
                return Poll::Ready(Ok(0));
            }
            self.left -= 1;
            count(&self.calls.reads);
            let message = b"\x81\x85\0\0\0\0hello";
            buffer[..message.len()].copy_from_slice(message);
            Poll::Ready(Ok(message.len()))
        }

        fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            assert_eq!(bytes, b"\x81\x05hello");
            self.has_answer = true;
            count(&self.calls.writes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            count(&self.calls.flushes);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn an_echo_is_one_read_and_one_write() {
        let calls = Rc::<Calls>::default();
        let client = Asking {
            left: 100,
            has_answer: true,
            calls: Rc::clone(&calls),
        };
        let shared = Shared::new(
            Connection::server(&Settings::default()),
            WebSocketSettings::default(),
        );
        let mut socket = WebSocket::new(&shared, None);
        let task = Box::pin(async move {
            while let Some(message) = socket.recv().await {
                socket.send(message).await.unwrap();
            }
        });
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(run(Box::new(client), shared, task));
        for calls in [&calls.reads, &calls.writes, &calls.flushes] {
            assert_eq!(calls.get(), 100);
        }
    }
}
