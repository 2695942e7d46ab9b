//! The I/O of a WebSocket: moves bytes between the codec and the transport, sends pings, and polls the handler.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::codec::{CloseCode, WebSocketEvent};
use apus_http::Duplex;
use apus_net::TunnelLimits;
use apus_transport::SendRate;
use bytes::BytesMut;
use tokio::time::{Instant, Sleep};

use super::memory;
use super::state::{DisconnectReason, SharedSocket, SocketState};

/// The size of one read.
const READ_SIZE: usize = 16 * 1024;

thread_local! {
    /// The read buffer that the sockets of this thread share, so that an idle socket holds none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_SIZE]);
}

/// The handler of one socket.
pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs a socket and its handler until both are done. The handler is never cancelled: its socket reports
/// that the client is gone.
pub(super) async fn run(duplex: Box<dyn Duplex>, shared: Rc<SharedSocket>, handler: Task) {
    let mut driver = SocketDriver::new(duplex, shared);
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
            driver.note_memory();
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

struct SocketDriver {
    duplex: Box<dyn Duplex>,
    shared: Rc<SharedSocket>,
    /// Whether the transport may hold written bytes that are not flushed.
    is_unflushed: bool,
    /// Bytes that were read and are not decoded yet.
    input: BytesMut,
    stage: TransportStage,
    timer: Pin<Box<Sleep>>,
    last_read_at: Instant,
    /// Whether a ping was sent since the last read.
    has_pinged: bool,
    /// Since when a message of the client is incomplete.
    message_since: Option<Instant>,
    /// Whether the client takes what is written.
    send_rate: SendRate,
    /// The bytes that were written so far.
    written: u64,
    started: Instant,
    limits: TunnelLimits,
    /// When the close frame was sent.
    closing_at: Option<Instant>,
    /// Ready when the worker stops.
    stopping: Option<Task>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportStage {
    Open,
    /// Both close frames were exchanged; the transport is shut down for writing.
    ShuttingDown,
    /// Bytes that the client still sends are read and dropped: otherwise a reset could make it miss our close.
    Draining,
    Done,
}

impl SocketDriver {
    fn new(duplex: Box<dyn Duplex>, shared: Rc<SharedSocket>) -> Self {
        let now = Instant::now();
        let settings = &shared.settings;
        let first_deadline = now + settings.ping_interval.unwrap_or(settings.idle_timeout);
        Self {
            timer: Box::pin(tokio::time::sleep_until(first_deadline)),
            duplex,
            shared,
            is_unflushed: false,
            input: BytesMut::new(),
            stage: TransportStage::Open,
            last_read_at: now,
            has_pinged: false,
            message_since: None,
            send_rate: SendRate::default(),
            written: 0,
            started: now,
            limits: TunnelLimits::of_worker(),
            closing_at: None,
            stopping: Some(Box::pin(apus_net::worker_stop())),
        }
    }

    /// Makes all progress that is possible now. Ready once the transport is no longer needed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stage == TransportStage::Done {
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
        let result = if state.is_evicted {
            self.input = BytesMut::new();
            // The client gets the reason if it reads.
            let _ = self.write(state, cx);
            Err(DisconnectReason::Evicted)
        } else {
            self.transfer(state, cx)
                .and_then(|()| self.check_timeouts(state, cx))
        };
        if let Err(reason) = result {
            self.stage = TransportStage::Done;
            state.connection.drop_output();
            state.disconnect(reason);
        }
        if state.disconnect_reason.is_some() {
            wake(state.receiver.take(), cx);
            shared.leave_rooms();
        }
        if state.disconnect_reason.is_some()
            || state.connection.output_len() < shared.settings.send_buffer
        {
            state
                .senders
                .drain(..)
                .for_each(|waker| wake(Some(waker), cx));
        }
        match self.stage {
            TransportStage::Done => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    fn transfer(
        &mut self,
        state: &mut SocketState,
        cx: &mut Context<'_>,
    ) -> Result<(), DisconnectReason> {
        let max = self.shared.settings.max_message;
        while self.stage == TransportStage::Open {
            while state.can_read_more(max)
                && let Some(event) = state.connection.handle_input(&mut self.input)
            {
                handle_event(state, event, cx);
                if !state.connection.is_inside_message() {
                    self.message_since = None;
                }
            }
            self.note_message(
                state.can_read_more(max),
                state.connection.is_inside_message(),
            );
            state.respond_to_close();
            let is_written = self.write(state, cx).map_err(lost)?;
            if state.connection.is_finished() {
                self.stage = TransportStage::ShuttingDown;
            } else if !state.can_read_more(max) || !self.read(state, cx)? {
                if is_written && self.input.is_empty() {
                    self.input = BytesMut::new();
                }
                return Ok(());
            }
        }
        if self.stage == TransportStage::ShuttingDown {
            match self.duplex.poll_shutdown(cx) {
                Poll::Ready(Ok(())) => self.stage = TransportStage::Draining,
                Poll::Ready(Err(error)) => return Err(lost(error)),
                Poll::Pending => return Ok(()),
            }
        }
        while self.stage == TransportStage::Draining {
            match SCRATCH.with_borrow_mut(|scratch| self.duplex.poll_read(cx, scratch)) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => self.stage = TransportStage::Done,
                Poll::Pending => return Ok(()),
            }
        }
        Ok(())
    }

    /// Notes since when a message or a frame is incomplete. What waits for the handler is not late.
    fn note_message(&mut self, reads: bool, is_inside_message: bool) {
        let is_begun = reads && (is_inside_message || !self.input.is_empty());
        if is_begun {
            _ = self.message_since.get_or_insert_with(Instant::now)
        } else {
            self.message_since = None
        }
    }

    /// Has the memory of the socket counted.
    fn note_memory(&self) {
        let bytes = self.shared.state.borrow().memory();
        memory::note(&self.shared, bytes.saturating_add(self.input.capacity()));
    }

    /// Writes the output; returns whether all of it was written.
    fn write(&mut self, state: &mut SocketState, cx: &mut Context<'_>) -> io::Result<bool> {
        while !state.connection.output().is_empty() {
            match self.duplex.poll_write(cx, state.connection.output()) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => {
                    state.connection.consume_output(written);
                    self.written = self.written.saturating_add(written as u64);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.wait_for_client();
                    return Ok(false);
                }
            }
            self.is_unflushed = true;
        }
        if self.is_unflushed {
            match self.duplex.poll_flush(cx) {
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(())) => self.is_unflushed = false,
                // The next poll flushes the rest.
                Poll::Pending => self.wait_for_client(),
            }
        }
        if !self.is_unflushed && self.send_rate.is_blocked() {
            self.send_rate.unblock(self.started.elapsed());
        }
        Ok(true)
    }

    /// Begins the time in which the client has to take some of the output.
    fn wait_for_client(&mut self) {
        if !self.send_rate.is_blocked() {
            let (written, duplex) = (self.written, &self.duplex);
            let taken = || written.saturating_sub(duplex.undelivered());
            self.send_rate.block(self.started.elapsed(), taken);
        }
    }

    /// The bytes that the client has taken so far.
    fn taken(&self) -> u64 {
        self.written.saturating_sub(self.duplex.undelivered())
    }

    /// Reads available bytes; returns whether there were any.
    fn read(
        &mut self,
        state: &mut SocketState,
        cx: &mut Context<'_>,
    ) -> Result<bool, DisconnectReason> {
        let missing = state.connection.missing(&self.input);
        let len = self.input.len();
        let polled = if missing.min(len) >= READ_SIZE {
            // A long message: read into its own buffer, without a copy. The buffer grows with what has arrived, and
            // not with what the client announces.

            self.input
                .resize(len.saturating_add(missing.min(len).min(4 * READ_SIZE)), 0);
            let room = self.input.get_mut(len..).unwrap_or_default();
            let polled = self.duplex.poll_read(cx, room);
            let read = match &polled {
                Poll::Ready(Ok(read)) => *read,
                _ => 0,
            };
            self.input.truncate(len.saturating_add(read));
            polled
        } else {
            SCRATCH.with_borrow_mut(|scratch| {
                let polled = self.duplex.poll_read(cx, scratch);
                if let Poll::Ready(Ok(read)) = &polled {
                    let read = scratch.get(..*read).unwrap_or_default();
                    self.input.extend_from_slice(read);
                }
                polled
            })
        };
        match polled {
            Poll::Ready(Ok(0)) => Err(DisconnectReason::Lost(io::ErrorKind::UnexpectedEof)),
            Poll::Ready(Ok(_)) => {
                self.last_read_at = Instant::now();
                self.has_pinged = false;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(lost(error)),
            Poll::Pending => Ok(false),
        }
    }

    /// Sends pings, and disconnects a client that stays silent.
    fn check_timeouts(
        &mut self,
        state: &mut SocketState,
        cx: &mut Context<'_>,
    ) -> Result<(), DisconnectReason> {
        let is_closing = state.connection.is_closing() || state.disconnect_reason.is_some();
        if self.closing_at.is_none() && is_closing {
            self.closing_at = Some(Instant::now());
        }
        loop {
            let deadline = self.deadline(state);
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
            if self.closing_at.is_none() {
                let now = Instant::now();
                if self.message_deadline(state).is_some_and(|end| end <= now) {
                    let _ = state.connection.close_with(CloseCode::POLICY);
                    self.write(state, cx).map_err(lost)?;
                    return Err(DisconnectReason::TimedOut);
                }
                if self.send_deadline().is_some_and(|end| end <= now) {
                    let (taken, rate) = (self.taken(), self.limits.send_rate);
                    let elapsed = self.started.elapsed();
                    if !self.send_rate.check(elapsed, taken, rate) {
                        return Err(DisconnectReason::TimedOut);
                    }
                    continue;
                }
                if self.input_deadline() > now {
                    continue;
                }
            }
            if self.closing_at.is_none() && !state.can_read_more(self.shared.settings.max_message) {
                // Nothing is read while the handler is behind, so the client may not be silent.
                self.last_read_at = Instant::now();
                continue;
            }
            if self.closing_at.is_some() || self.is_last_deadline() {
                // The handler did not receive the messages before the close, so no response was sent yet.
                state.connection.respond_to_close();
                self.write(state, cx).map_err(lost)?;
                return Err(DisconnectReason::TimedOut);
            }
            self.has_pinged = true;
            // It cannot fail: the connection is open.
            let _ = state.connection.ping(b"");
            self.write(state, cx).map_err(lost)?;
        }
    }

    fn deadline(&self, state: &SocketState) -> Instant {
        if let Some(closing_at) = self.closing_at {
            return closing_at + self.shared.settings.close_timeout;
        }
        let others = [self.message_deadline(state), self.send_deadline()];
        let others = others.into_iter().flatten();
        others.fold(self.input_deadline(), Instant::min)
    }

    /// When the client is sent a ping, or was silent for too long.
    fn input_deadline(&self) -> Instant {
        let settings = &self.shared.settings;
        match settings.ping_interval {
            Some(interval) if !self.is_last_deadline() => self.last_read_at + interval,
            _ => self.last_read_at + settings.idle_timeout,
        }
    }

    /// When the message of the client has to be complete: a long one may take as long as it needs at the least rate.
    fn message_deadline(&self, state: &SocketState) -> Option<Instant> {
        let len = state.connection.partial_len();
        let len = len.saturating_add(self.input.len()) as u64;
        let time = Duration::from_secs(len.checked_div(self.limits.receive_rate)?);
        Some(self.message_since? + time.max(self.shared.settings.message_timeout))
    }

    /// When the client must have taken some of the output.
    fn send_deadline(&self) -> Option<Instant> {
        let deadline = self.send_rate.deadline(self.limits.send_timeout)?;
        Some(self.started + deadline)
    }

    /// Whether the next deadline is the idle timeout, and not the deadline of a ping.
    fn is_last_deadline(&self) -> bool {
        let settings = &self.shared.settings;
        let interval = settings.ping_interval;
        self.has_pinged || interval.is_none_or(|interval| interval >= settings.idle_timeout)
    }
}

fn handle_event(state: &mut SocketState, event: WebSocketEvent, cx: &Context<'_>) {
    match event {
        WebSocketEvent::Message(message) => {
            state.push(message);
            wake(state.receiver.take(), cx);
        }
        WebSocketEvent::Ping(_) | WebSocketEvent::Pong(_) => {}
        WebSocketEvent::Close(close) => state.disconnect(DisconnectReason::Closed(close)),
        WebSocketEvent::Failed(error) => state.disconnect(DisconnectReason::Failed(error)),
    }
}

fn lost(error: io::Error) -> DisconnectReason {
    DisconnectReason::Lost(error.kind())
}

/// Wakes a task, unless it is the driver's own: that one is polled next anyway.
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

    use crate::codec::{CodecSettings, WebSocketConnection};

    use super::super::{WebSocket, WebSocketSettings};
    use super::*;

    /// A client that sends a message for each response, and closes the connection after the last.
    struct EchoClient {
        left: usize,
        has_response: bool,
        calls: Rc<CallCounts>,
    }

    #[derive(Default)]
    struct CallCounts {
        reads: Cell<usize>,
        writes: Cell<usize>,
        flushes: Cell<usize>,
    }

    fn count(calls: &Cell<usize>) {
        calls.set(calls.get() + 1);
    }

    impl Duplex for EchoClient {
        fn poll_read(
            &mut self,
            cx: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            if !std::mem::take(&mut self.has_response) {
                return Poll::Pending;
            }
            // Reports readiness as a readable socket does.
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
            self.has_response = true;
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
    fn an_echo_takes_one_read_and_one_write() {
        let calls = Rc::<CallCounts>::default();
        let client = EchoClient {
            left: 100,
            has_response: true,
            calls: Rc::clone(&calls),
        };
        let shared = SharedSocket::new(
            WebSocketConnection::server(&CodecSettings::default()),
            WebSocketSettings::default(),
            None,
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
