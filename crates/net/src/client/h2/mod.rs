//! HTTP/2 to an origin (RFC 9113): many requests over a connection with a task of its own.
//!
//! [`Http2Client`] is a handle. A sender puts its request into a queue and waits; the task opens a stream for
//! it, sends its body as the windows of the origin allow, and passes the response's body to its reader, who
//! opens our windows by reading. Nothing is locked, because all of it is on the thread of one worker.
//!
//! # Memory
//!
//! An idle connection holds its codec and TLS. An origin can make it hold [`RECEIVE_WINDOW`] bytes of bodies
//! that were not read, a share of that for each stream, so that a slow reader holds up no other; and a field
//! section for each stream. A response that has ended belongs to its reader, together with the bytes that
//! were not read. Of the bytes that the origin does not take, it holds at most [`BATCH`] beside the current
//! frame of each stream, and [`OUT_MOST`] of replies to frames, past which it reads no more.

mod driver;
mod receive;
mod requests;
mod response_slot;
mod send;
mod stream;
mod timers;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use self::driver::Http2ClientDriver;
use self::response_slot::ResponseSlot;
pub(super) use self::response_slot::StreamResponse;
use super::origin_exchange::{OriginExchange, OriginExchangeState};
use super::{ClientRequest, FailureCause, RequestFailure, RequestPhase, Timeouts};
use crate::clock::coarse_now;
use crate::h2::write::BATCH;
use crate::transport::Transport;

/// Streams that are open at once, if the origin allows as many. A pool opens another connection then.
const STREAMS: usize = 120;

/// The most bytes of bodies that an origin may have sent and that were not read yet.
const RECEIVE_WINDOW: u32 = 32 * 1024 * 1024;

/// The most bytes of output; past it nothing more is read.
const OUT_MOST: usize = 2 * BATCH;

/// A connection that speaks HTTP/2: a handle, cheap to clone. When the last one is dropped, the connection
/// ends as soon as the pending responses were read.
pub struct Http2Client {
    shared: Rc<ConnectionState>,
}

/// The state that the handles and the task of a connection share.
struct ConnectionState {
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
    request: ClientRequest,
    response_slot: Rc<ResponseSlot>,
}

impl Http2Client {
    /// Starts HTTP/2 over a new connection, on a task of this thread. `timeouts` are those of the connection
    /// as a whole: how long the origin may take none of what is written; and, because a PING travels no
    /// further than the first packets of a connection, how long its acknowledgement may take.
    pub(super) fn start(transport: Transport, timeouts: &Timeouts) -> Self {
        let now = coarse_now();
        let shared = Rc::new(ConnectionState {
            queue: RefCell::default(),
            task: RefCell::default(),
            open: Cell::new(0),
            room: Cell::new(0),
            closed: Cell::new(false),
            requests: Cell::new(0),
            opened_at: now,
            idle_since: Cell::new(now),
        });
        let driver = Http2ClientDriver::new(transport, timeouts, Rc::clone(&shared));
        driver.update_capacity();
        tokio::task::spawn_local(driver.run());
        Self { shared }
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

    /// Sends a request, for the response or a [`RequestFailure`]. Dropping the future, or the body of the
    /// response, cancels it.
    pub fn send(&self, request: ClientRequest) -> OriginExchange {
        if !self.has_room() {
            let cause = match self.is_closed() {
                true => FailureCause::Closed,
                false => FailureCause::Refused,
            };
            return OriginExchange::failed(unsent(request, cause));
        }
        let response_slot = Rc::new(ResponseSlot::default());
        self.shared.queue.borrow_mut().push_back(QueuedRequest {
            request,
            response_slot: Rc::clone(&response_slot),
        });
        self.shared.wake();
        OriginExchange(OriginExchangeState::Http2(StreamResponse(response_slot)))
    }
}

/// The failure of a request that was not sent.
fn unsent(request: ClientRequest, cause: FailureCause) -> RequestFailure {
    RequestFailure {
        body: Some(request.body),
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

impl Clone for Http2Client {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

impl Drop for Http2Client {
    fn drop(&mut self) {
        // This handle and the task have one reference each.
        if Rc::strong_count(&self.shared) <= 2 {
            self.shared.wake();
        }
    }
}

impl fmt::Debug for Http2Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Client")
            .field("open_streams", &self.open_streams())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
