//! Requests over a connection that carries many at once: what HTTP/2 and HTTP/3 to origins share.
//!
//! [`MultiplexedClient`] is a handle. A sender puts its request into a queue and waits; the task of the connection opens
//! a stream for it, sends its body as the windows of the origin allow, and passes the response's body to its reader,
//! who opens our windows by reading. Nothing is locked, because all of it is on the thread of one worker.
//!
//! A driver in `h2` or `h3` runs the task. It has an [`OriginStreams`], which holds the requests, and the codec
//! behind [`ClientProtocol`].

mod deadlines;
mod protocol;
mod requests;
mod response_slot;
mod responses;
mod send;
mod table;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use apus_codec::stream_table::StreamKey;
use apus_http::{Body, BodyError, Version};
use apus_transport::{StreamWakers, coarse_now};

pub(crate) use self::protocol::ClientProtocol;
use self::response_slot::ResponseSlot;
pub(crate) use self::response_slot::StreamResponse;
use self::table::{ClientStream, ClientStreams, ResponseState};
use crate::{FailureCause, RequestFailure, RequestPhase, RequestTemplate};

/// Streams that are open at once, if the origin allows as many. A pool opens another connection then.
pub(crate) const STREAMS: usize = 120;

/// The most bytes of bodies that an origin may have sent over a connection and that were not read yet.
pub(crate) const RECEIVE_WINDOW: u32 = 32 * 1024 * 1024;

/// A connection that carries many requests at once, over HTTP/2 or HTTP/3: a handle, cheap to clone. When the last one
/// is dropped, the connection ends as soon as the pending responses were read.
pub struct MultiplexedClient {
    shared: Rc<ConnectionState>,
}

/// The state that the handles and the task of a connection share.
pub(crate) struct ConnectionState {
    version: Version,
    /// Requests without a stream.
    queue: RefCell<VecDeque<QueuedRequest>>,
    task: RefCell<Option<Waker>>,
    /// Streams that are open.
    open: Cell<usize>,
    /// Streams that could be opened beside those.
    room: Cell<usize>,
    /// Whether no further request can be sent.
    closed: Cell<bool>,
    requests: Cell<u64>,
    opened_at: Instant,
    idle_since: Cell<Instant>,
}

/// A request in the queue.
struct QueuedRequest {
    template: RequestTemplate,
    body: Body,
    response_slot: Rc<ResponseSlot>,
}

/// The requests of a connection, with its codec.
pub(crate) struct OriginStreams<P: ClientProtocol> {
    shared: Rc<ConnectionState>,
    pub(crate) protocol: P,
    table: ClientStreams<P::Id>,
    wakers: StreamWakers,
    /// The slots that are polled now; stored to reuse their memory.
    woken: Vec<usize>,
    /// Streams whose responses are to be delivered.
    pending: Vec<StreamKey<P::Id>>,
    /// When the deadlines of the streams have to be checked.
    pub(crate) examine_at: Option<Instant>,
    /// Whether a part of a response arrived.
    has_received: bool,
}

/// Why a connection ends. `F` is the error of its protocol.
#[derive(Debug)]
pub(crate) enum CloseReason<F> {
    /// No handle is left, or the origin ended the connection in order.
    Closed,
    Io(io::Error),
    TimedOut,
    Protocol(F),
}

impl MultiplexedClient {
    /// A handle of a new connection, with the requests for its driver.
    pub(crate) fn new<P: ClientProtocol>(protocol: P) -> (Self, OriginStreams<P>) {
        let now = coarse_now();
        let shared = Rc::new(ConnectionState {
            version: P::VERSION,
            queue: RefCell::default(),
            task: RefCell::default(),
            open: Cell::new(0),
            room: Cell::new(0),
            closed: Cell::new(false),
            requests: Cell::new(0),
            opened_at: now,
            idle_since: Cell::new(now),
        });
        let streams = OriginStreams {
            shared: Rc::clone(&shared),
            protocol,
            table: ClientStreams::default(),
            wakers: StreamWakers::default(),
            woken: Vec::new(),
            pending: Vec::new(),
            examine_at: None,
            has_received: false,
        };
        streams.update_capacity(false);
        (Self { shared }, streams)
    }

    /// The version of HTTP that it speaks.
    pub fn version(&self) -> Version {
        self.shared.version
    }

    /// Whether another request can be sent now. A request that is sent anyway fails as refused.
    pub fn has_room(&self) -> bool {
        !self.is_closed() && self.shared.queue.borrow().len() < self.shared.room.get()
    }

    /// Whether no further request can be sent: the connection has ended, or the origin is about to end it.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.get()
    }

    /// Requests without a complete response.
    pub fn open_streams(&self) -> usize {
        self.shared.open.get() + self.shared.queue.borrow().len()
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.shared.requests.get()
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.shared.opened_at
    }

    /// When the last request ended, to about a quarter of a second. It has no meaning while a request is
    /// open.
    pub fn idle_since(&self) -> Instant {
        self.shared.idle_since.get()
    }

    /// Puts a request into the queue.
    pub(crate) fn begin(
        &self,
        template: &RequestTemplate,
        body: Body,
    ) -> Result<StreamResponse, RequestFailure> {
        if !self.has_room() {
            let cause = if self.is_closed() {
                FailureCause::Closed
            } else {
                FailureCause::Refused
            };
            return Err(unsent(body, cause));
        }
        let response_slot = Rc::new(ResponseSlot::default());
        self.shared.queue.borrow_mut().push_back(QueuedRequest {
            template: template.clone(),
            body,
            response_slot: Rc::clone(&response_slot),
        });
        self.shared.wake();
        Ok(StreamResponse(response_slot))
    }
}

/// The failure of a request that was not sent.
fn unsent(body: Body, cause: FailureCause) -> RequestFailure {
    RequestFailure {
        body: Some(body),
        ..RequestFailure::unsent(RequestPhase::Send, cause)
    }
}

impl ConnectionState {
    fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
}

impl Clone for MultiplexedClient {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

impl Drop for MultiplexedClient {
    fn drop(&mut self) {
        // This handle and the task have one reference each.
        if Rc::strong_count(&self.shared) <= 2 {
            self.shared.wake();
        }
    }
}

impl fmt::Debug for MultiplexedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiplexedClient")
            .field("version", &self.version())
            .field("open_streams", &self.open_streams())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl<P: ClientProtocol> OriginStreams<P> {
    /// Registers the task to wake.
    pub(crate) fn watch(&mut self, cx: &Context<'_>) {
        self.wakers.bind(cx.waker());
        let mut task = self.shared.task.borrow_mut();
        match &*task {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
    }

    /// The time since the connection was opened.
    pub(crate) fn age(&self) -> Duration {
        coarse_now().saturating_duration_since(self.shared.opened_at)
    }

    /// Updates how many streams are open, and how many more can be; none if the connection `ends`.
    pub(crate) fn update_capacity(&self, ends: bool) {
        let (open, before) = (self.protocol.open_streams(), self.shared.open.get());
        if open == 0 && before > 0 {
            self.shared.idle_since.set(coarse_now());
        }
        self.shared.open.set(open);
        self.shared.room.set(self.protocol.available_streams());
        if self.protocol.is_shutting_down() || ends {
            self.shared.closed.set(true);
        }
    }

    /// Whether there are requests without a complete response.
    pub(crate) fn is_used(&self) -> bool {
        self.protocol.open_streams() > 0 || !self.shared.queue.borrow().is_empty()
    }

    /// Whether no further request will follow: no handle is left, or the connection is shutting down.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.protocol.is_shutting_down() || Rc::strong_count(&self.shared) == 1
    }

    /// Returns once whether a part of a response arrived.
    pub(crate) fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.has_received)
    }

    /// Polls the streams that were woken; returns whether there were any.
    pub(crate) fn poll_streams(&mut self) -> bool {
        if !self.wakers.is_any_woken() {
            return false;
        }
        let mut woken = std::mem::take(&mut self.woken);
        self.wakers.take_woken(self.table.slots(), &mut woken);
        for slot in woken.drain(..) {
            let Some(key) = self.table.key(slot) else {
                continue;
            };
            let waker = self.wakers.waker(slot, STREAMS);
            let mut cx = Context::from_waker(&waker);
            self.poll_sending(key, &mut cx);
            self.note_progress(key, &cx);
        }
        self.woken = woken;
        true
    }

    /// Cancels a request: resets its stream.
    fn cancel(&mut self, key: StreamKey<P::Id>) -> Option<Box<ClientStream<P::Id>>> {
        self.protocol.cancel(key);
        self.table.remove(key)
    }

    /// Reports a failure to the sender that waits for a response, or to the reader of its body.
    fn fail(&self, stream: ClientStream<P::Id>, cause: FailureCause, error: BodyError) {
        let ClientStream {
            response_slot,
            request_body,
            response,
            begins_at,
            ..
        } = stream;
        if let Some(response_slot) = response_slot {
            // A request whose bytes still wait in the output can be sent again with any method.
            let request_sent = !matches!(cause, FailureCause::Refused)
                && self.protocol.has_written_behind(begins_at);
            response_slot.settle(Err(RequestFailure {
                phase: if request_body.ended {
                    RequestPhase::Head
                } else {
                    RequestPhase::Send
                },
                cause,
                request_sent,
                body: request_body.give_back(),
            }));
        } else if let ResponseState::Body(sender) = response {
            // The reader waits in a separate task, with another waker than this one, and is woken.
            let cx = Context::from_waker(Waker::noop());
            sender.end(Err(error), &cx);
        }
    }

    /// Fails all streams and all queued requests: the connection has ended.
    pub(crate) fn fail_all(&mut self, reason: &CloseReason<P::Fault>) {
        self.shared.closed.set(true);
        for key in self.table.keys() {
            if let Some(stream) = self.table.remove(key) {
                let error = match reason {
                    CloseReason::TimedOut => BodyError::TimedOut,
                    CloseReason::Protocol(_) => BodyError::Malformed,
                    CloseReason::Closed | CloseReason::Io(_) => BodyError::Disconnected,
                };
                self.fail(*stream, reason.cause(), error);
            }
        }
        self.shared.open.set(0);
        loop {
            // A separate statement: `while let` would hold the borrow during the loop, in which senders are woken
            // and bodies dropped.
            let next = self.shared.queue.borrow_mut().pop_front();
            let Some(waiting) = next else { break };
            let failure = unsent(waiting.body, reason.cause());
            waiting.response_slot.settle(Err(failure));
        }
    }
}

/// The runtime may end before the connection does, and a panic ends it.
impl<P: ClientProtocol> Drop for OriginStreams<P> {
    fn drop(&mut self) {
        self.fail_all(&CloseReason::Closed);
    }
}

impl<F: Error + Clone + Send + Sync + 'static> CloseReason<F> {
    /// The cause of the failure of one request.
    pub(crate) fn cause(&self) -> FailureCause {
        match self {
            Self::Closed => FailureCause::Closed,
            Self::Io(error) => FailureCause::Io(io::Error::new(error.kind(), error.to_string())),
            Self::TimedOut => FailureCause::TimedOut,
            Self::Protocol(error) => FailureCause::Protocol(Box::new(error.clone())),
        }
    }
}

impl<F> From<io::Error> for CloseReason<F> {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
