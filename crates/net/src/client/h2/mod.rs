//! HTTP/2 to an origin (RFC 9113): many requests over a connection with a task of its own.
//!
//! [`Http2`] is a handle. Whoever sends puts the request into a queue and waits; the task opens a
//! stream for it, and from then on moves what is at hand: content of requests as the windows of the
//! origin allow, content of responses to its readers, who open our windows by reading. Nothing is
//! locked, since all of it is on the thread of one worker.
//!
//! # Memory
//!
//! A connection on which nothing happens holds its codec and TLS. An origin can have it hold
//! [`RECEIVE_WINDOW`] bytes of content that nobody has read, a share of that for each stream, so that
//! a reader who is slow holds up no other; and a field section for each stream. A response that has
//! come to its end is its reader's, with what of that share he has not read. What the origin does
//! not take is at most [`BATCH`] bytes beside the frame at hand of each stream, and when it has to be
//! answered [`OUT_MOST`], past which nothing more is read from it.

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
use self::response_slot::{ResponseFuture, ResponseSlot};
use super::{ClientRequest, ClientResponse, FailureCause, RequestFailure, RequestPhase, Timeouts};
use crate::clock::coarse_now;
use crate::transport::Transport;

/// ClientStreams that are open at once, if the origin allows as many. A pool opens another connection then.
const STREAMS: usize = 120;

/// Bytes of content that an origin may have sent without anybody having read them.
const RECEIVE_WINDOW: u32 = 32 * 1024 * 1024;

/// Bytes that one write takes, eight full TLS records.
const BATCH: usize = 128 * 1024;

/// Bytes that are to be written past which nothing more is read.
const OUT_MOST: usize = 2 * BATCH;

/// A connection that speaks HTTP/2: a handle, cheap to clone. When the last one is dropped, the
/// connection ends as soon as the responses that are on their way were read.
pub struct Http2Client {
    shared: Rc<ConnectionState>,
}

/// What the handles and the task of a connection share.
struct ConnectionState {
    /// Requests for which no stream was opened yet.
    queue: RefCell<VecDeque<QueuedRequest>>,
    task: RefCell<Option<Waker>>,
    /// ClientStreams that are open.
    open: Cell<usize>,
    /// ClientStreams that could be opened beside those.
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
    /// Speaks HTTP/2 over a fresh connection, on a task of this thread. `timeouts` are those of the
    /// connection as a whole: how long the origin may take nothing of what is written, and, as a
    /// question whether it is still there goes no longer way than a connection's first packets, how
    /// long it may take to answer that.
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
        driver.tell_room();
        tokio::task::spawn_local(driver.run());
        Self { shared }
    }

    /// Whether another request can be sent now. One that is sent without room fails as refused.
    pub fn has_room(&self) -> bool {
        !self.is_closed() && self.shared.queue.borrow().len() < self.shared.room.get()
    }

    /// Whether no further request can be sent: the connection has ended, or the origin is about to
    /// end it.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.get()
    }

    /// Requests that are being sent and answered.
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

    /// Since when there is no request, to about a quarter of a second. Of no meaning while there is
    /// one.
    pub fn idle_since(&self) -> Instant {
        self.shared.idle_since.get()
    }

    /// Sends a request. Dropping the future, or the content of the response, takes it back.
    ///
    /// # Errors
    /// There is no response; see [`RequestFailure`].
    pub async fn send(&self, request: ClientRequest) -> Result<ClientResponse, RequestFailure> {
        if !self.has_room() {
            let cause = match self.is_closed() {
                true => FailureCause::Closed,
                false => FailureCause::Refused,
            };
            return Err(unsent(request, cause));
        }
        let response_slot = Rc::new(ResponseSlot::default());
        self.shared.queue.borrow_mut().push_back(QueuedRequest {
            request,
            response_slot: Rc::clone(&response_slot),
        });
        self.shared.wake();
        ResponseFuture(response_slot).await
    }
}

/// What becomes of a request that was not sent.
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
        // This one and the task's own.
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
