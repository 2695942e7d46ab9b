//! HTTP/1.1 (RFC 9112): one request after another over a connection, or several at once by pipelining.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_codec::h1::{
    ClientConnection, HeadLimits, Http1ClientEvent, InvalidRequest, OutgoingRequest,
};
use apus_transport::Transport;
use tokio::time::Sleep;

use super::{
    BegunRequest, LoadUser, RECONNECT_AFTER, ReceivedBody, WorkerContext, poll_read, poll_write,
};
use crate::pace::BytePace;
use crate::plan::LoadPlan;
use crate::think_time::ThinkPause;
use crate::{BenchError, LoadFailure, PlannedRequest};

/// What a response may have. Servers under test are not hostile, but may be broken.
const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 256 * 1024,
    fields: 1000,
};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// The bytes of a request.
pub(crate) fn encode(request: &PlannedRequest, plan: &LoadPlan) -> Result<Vec<u8>, BenchError> {
    let mut out = Vec::new();
    let mut connection = ClientConnection::new(LIMITS);
    if !plan.keeps_alive {
        connection.close();
    }
    let head = OutgoingRequest {
        method: &request.method,
        target: request.url.path(),
        host: request.host(),
        headers: &request.headers,
        content_length: Some(request.body.len() as u64),
        upgrade: None,
        te_trailers: false,
        expects_continue: false,
    };
    connection
        .send_request(head, &mut out)
        .map_err(|error: InvalidRequest| {
            BenchError::plan(format!("{} cannot be requested: {error}", request.url))
        })?;
    out.extend_from_slice(&request.body);
    connection.send_end(None, &mut out);
    Ok(out)
}

/// A connection of the load, which is opened again when it was closed.
pub(crate) struct Http1Load {
    id: usize,
    context: Rc<WorkerContext>,
    /// The bytes of the requests of the plan.
    requests: Rc<[Vec<u8>]>,
    transport: Option<Transport>,
    codec: ClientConnection,
    input: Vec<u8>,
    /// Bytes of `input` that were handled.
    handled: usize,
    out: Vec<u8>,
    written: usize,
    in_flight: VecDeque<BegunRequest>,
    response: ReceivedBody,
    /// Whether bytes of the current response were received.
    has_begun: bool,
    pause: ThinkPause,
    user: LoadUser,
    receive_pace: BytePace,
    send_pace: BytePace,
    /// Requests that were begun over this connection, and when it was opened.
    begun: u64,
    opened: Instant,
    /// The time of the last look at the clock.
    now: Instant,
    /// Wakes the task when the oldest request may be too old.
    timer: Pin<Box<Sleep>>,
}

impl Http1Load {
    pub(crate) fn new(id: usize, context: Rc<WorkerContext>, requests: Rc<[Vec<u8>]>) -> Self {
        let now = Instant::now();
        let timer = Box::pin(tokio::time::sleep(context.plan.timeout));
        let speed = context.plan.speed;
        Self {
            id,
            user: context.user(),
            context,
            requests,
            transport: None,
            codec: ClientConnection::new(LIMITS),
            input: Vec::with_capacity(READ_BYTES),
            handled: 0,
            out: Vec::new(),
            written: 0,
            in_flight: VecDeque::new(),
            response: ReceivedBody::default(),
            has_begun: false,
            pause: ThinkPause::default(),
            receive_pace: BytePace::new(speed.receive),
            send_pace: BytePace::new(speed.send),
            begun: 0,
            opened: now,
            now,
            timer,
        }
    }

    /// Opens the connection before the load, if it is kept. A failure is found again, and counted, by the first request.
    pub(crate) async fn prepare(&mut self) {
        if self.context.plan.keeps_alive {
            let _ = self.open().await;
        }
    }

    /// Sends requests until there are no more.
    pub(crate) async fn run(mut self) {
        self.now = Instant::now();
        while self.begin_requests().await {
            if self.transport.is_none()
                && let Err(kind) = self.open().await
            {
                self.fail(kind);
                tokio::time::sleep(RECONNECT_AFTER).await;
                self.now = Instant::now();
                continue;
            }
            if let Err(kind) = poll_fn(|cx| self.poll_exchange(cx)).await {
                self.fail(kind);
            }
        }
    }

    async fn open(&mut self) -> Result<(), LoadFailure> {
        self.context.arrivals.leave(self.id);
        let opened = self.context.open().await?;
        self.transport = Some(opened.transport);
        self.codec = ClientConnection::new(LIMITS);
        if !self.context.plan.keeps_alive {
            self.codec.close();
        }
        self.input.clear();
        self.handled = 0;
        self.has_begun = false;
        self.begun = u64::try_from(self.in_flight.len()).unwrap_or(0);
        self.opened = Instant::now();
        Ok(())
    }

    /// Begins as many requests as may be in flight. Waits for one if none is; returns whether any is.
    async fn begin_requests(&mut self) -> bool {
        let arrivals_are_closed = self.context.arrivals.is_closed_loop();
        if self.pause.is_going_on() {
            poll_fn(|cx| self.poll_pause(cx)).await;
            self.now = Instant::now();
        }
        if self.in_flight.is_empty() && self.is_spent() {
            self.transport = None;
            self.begun = 0;
        }
        if self.in_flight.is_empty() && !arrivals_are_closed {
            match poll_fn(|cx| self.poll_due(cx)).await {
                Some(due) => {
                    self.now = Instant::now();
                    self.begin(due);
                }
                None => return false,
            }
        }
        if arrivals_are_closed {
            let most = self.context.plan.in_flight.get();
            while self.in_flight.len() < most
                && (self.in_flight.is_empty() || !self.is_spent())
                && let Some(due) = self.context.arrivals.next_of_closed_loop(self.now)
            {
                self.begin(due);
            }
        }
        !self.in_flight.is_empty()
    }

    /// Waits for a request that is due, and notices meanwhile when the server closes the idle connection.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        let polled = self.context.arrivals.poll_next(self.id, cx);
        if polled.is_pending() {
            self.poll_idle(cx);
        }
        polled
    }

    /// Waits for the end of the pause before the next request.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.pause.poll(cx, (self.id, &self.context.arrivals));
        if polled.is_pending() {
            self.poll_idle(cx);
        }
        polled
    }

    /// Notices when the server closes the idle connection.
    fn poll_idle(&mut self, cx: &mut Context<'_>) {
        if let Some(transport) = &mut self.transport {
            self.input.clear();
            self.handled = 0;
            // Neither data nor an error is expected.
            if transport.poll_read(cx, &mut self.input).is_ready() {
                self.transport = None;
            }
        }
    }

    /// Whether no further request is to be sent over this connection.
    fn is_spent(&self) -> bool {
        self.context.plan.is_spent(self.begun, self.opened)
    }

    fn begin(&mut self, due: Instant) {
        let request = self.context.choose(&mut self.user);
        self.begun += 1;
        match &self.user {
            Some(user) => {
                // A request that cannot be encoded is never sent, and so fails by its time limit.
                if let Ok(bytes) = encode(user.request(), &self.context.plan) {
                    self.out.extend_from_slice(&bytes);
                }
            }
            None => {
                if let Some(bytes) = self.requests.get(request) {
                    self.out.extend_from_slice(bytes);
                }
            }
        }
        self.in_flight.push_back(BegunRequest {
            due,
            began: self.now,
            request,
        });
    }

    /// Writes the requests, and reads until at least one response was complete.
    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LoadFailure>> {
        if self.codec.response_body_done() && self.expect().is_err() {
            // The last response ended the connection, but requests were sent after it.
            return Poll::Ready(Err(LoadFailure::ClosedBeforeResponse));
        }
        let Some(transport) = &mut self.transport else {
            return Poll::Ready(Err(LoadFailure::Io));
        };
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match poll_write(transport, cx, (rest, &mut self.send_pace)) {
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(_)) => {
                    // The server may have responded before it closed; reading tells.
                    self.out.clear();
                    self.written = 0;
                }
                Poll::Pending => break,
            }
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
            let _ = transport.poll_flush(cx);
        }
        loop {
            let Some(transport) = &mut self.transport else {
                return Poll::Ready(Ok(()));
            };
            if self.handled == self.input.len() {
                self.input.clear();
                self.handled = 0;
            } else if self.handled > 0 {
                self.input.drain(..self.handled);
                self.handled = 0;
            }
            if self.input.capacity() - self.input.len() < READ_BYTES / 2 {
                self.input.reserve(READ_BYTES);
            }
            match poll_read(transport, cx, (&mut self.input, &mut self.receive_pace)) {
                Poll::Ready(Ok(0)) => return Poll::Ready(self.handle_eof()),
                Poll::Ready(Ok(_)) => match self.handle_input() {
                    Ok(false) => {}
                    Ok(true) => return Poll::Ready(Ok(())),
                    Err(kind) => return Poll::Ready(Err(kind)),
                },
                Poll::Ready(Err(error)) => {
                    let kind = LoadFailure::of_io(&error);
                    self.note_cause(kind, || error.to_string());
                    return Poll::Ready(Err(kind));
                }
                Poll::Pending => return self.poll_timer(cx),
            }
        }
    }

    fn expect(&mut self) -> Result<(), InvalidRequest> {
        let plan = &self.context.plan;
        let request = self
            .in_flight
            .front()
            .and_then(|begun| plan.requests.get(begun.request));
        match request {
            Some(request) => self.codec.expect_response(&request.method),
            None => Ok(()),
        }
    }

    /// Handles what was read; returns whether a response was complete.
    fn handle_input(&mut self) -> Result<bool, LoadFailure> {
        let mut is_complete = false;
        loop {
            let input = self.input.get(self.handled..).unwrap_or_default();
            self.has_begun |= !input.is_empty();
            let (consumed, event) = self.codec.handle_input(input).map_err(|error| {
                let kind = LoadFailure::of_http1(error);
                self.context
                    .recorder
                    .borrow_mut()
                    .cause(kind, || error.to_string());
                kind
            })?;
            match event {
                Http1ClientEvent::Incomplete => {
                    self.handled += consumed;
                    return Ok(is_complete);
                }
                Http1ClientEvent::Informational(..) => self.handled += consumed,
                Http1ClientEvent::Response(head) => {
                    self.handled += consumed;
                    self.response.status = head.status.as_u16();
                    if let Some(user) = &mut self.user {
                        user.note_headers(&head.headers);
                    }
                    if self.codec.is_tunnel() {
                        self.note_cause(LoadFailure::Malformed, || {
                            "the server switched the protocol".to_owned()
                        });
                        return Err(LoadFailure::Malformed);
                    }
                    if self.codec.response_body_done() && !self.complete(&mut is_complete)? {
                        return Ok(true);
                    }
                }
                Http1ClientEvent::Data(range) => {
                    let data = input.get(range).unwrap_or_default();
                    self.context
                        .receive(&mut self.response, data, &mut self.user);
                    self.handled += consumed;
                }
                Http1ClientEvent::End(_) => {
                    self.handled += consumed;
                    if !self.complete(&mut is_complete)? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Records a complete response. Returns whether another one is expected over this connection.
    fn complete(&mut self, is_complete: &mut bool) -> Result<bool, LoadFailure> {
        self.record();
        *is_complete = true;
        if !self.codec.keeps_alive() {
            self.transport = None;
            if !self.in_flight.is_empty() {
                return Err(LoadFailure::ClosedBeforeResponse);
            }
            return Ok(false);
        }
        if self.in_flight.is_empty() {
            // Further input is an error, which the codec finds.
            if self.handled < self.input.len() {
                self.note_cause(LoadFailure::Malformed, || {
                    "data without a request".to_owned()
                });
                self.transport = None;
            }
            return Ok(false);
        }
        match self.expect() {
            Ok(()) => Ok(true),
            Err(_) => Err(LoadFailure::ClosedBeforeResponse),
        }
    }

    fn record(&mut self) {
        let Some(begun) = self.in_flight.pop_front() else {
            return;
        };
        self.now = Instant::now();
        let response = std::mem::take(&mut self.response);
        self.has_begun = false;
        self.context
            .complete(begun, (&response, self.now), &mut self.user);
        self.context.pause(&mut self.pause, &self.user);
    }

    fn handle_eof(&mut self) -> Result<(), LoadFailure> {
        let is_cut_off = self.transport.as_ref().is_some_and(Transport::is_cut_off);
        match self.codec.handle_eof() {
            Ok(Http1ClientEvent::End(_)) if !is_cut_off => {
                self.record();
                self.transport = None;
                if self.in_flight.is_empty() {
                    Ok(())
                } else {
                    Err(LoadFailure::ClosedBeforeResponse)
                }
            }
            _ if self.has_begun => Err(LoadFailure::ClosedInResponse),
            _ => Err(LoadFailure::ClosedBeforeResponse),
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LoadFailure>> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let oldest = self.in_flight.front().map_or(now, |begun| begun.began);
            let deadline = oldest + self.context.plan.timeout;
            if deadline <= now {
                let next = now + self.context.plan.timeout;
                self.timer.as_mut().reset(next.into());
                return Poll::Ready(Err(LoadFailure::Timeout));
            }
            self.timer.as_mut().reset(deadline.into());
        }
        Poll::Pending
    }

    fn note_cause(&self, kind: LoadFailure, cause: impl FnOnce() -> String) {
        self.context.recorder.borrow_mut().cause(kind, cause);
    }

    /// Counts the requests in flight as failed, and closes the connection.
    fn fail(&mut self, kind: LoadFailure) {
        for begun in self.in_flight.drain(..) {
            self.context.failed(kind, begun, &mut self.user);
        }
        self.transport = None;
        self.out.clear();
        self.written = 0;
        self.input.clear();
        self.handled = 0;
        self.response = ReceivedBody::default();
        self.has_begun = false;
        self.now = Instant::now();
    }
}

impl Drop for Http1Load {
    fn drop(&mut self) {
        if !self.in_flight.is_empty() && !self.context.arrivals.is_interrupted() {
            self.fail(LoadFailure::Timeout);
        }
    }
}
