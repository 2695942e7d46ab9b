//! The life of a connection with several requests at once (HTTP/2, HTTP/3): it is opened when a request is due, and opened again
//! when it was closed.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::{LoadUser, RECONNECT_AFTER, WorkerContext};
use crate::LoadFailure;
use crate::think_time::ThinkPause;

/// Where a connection gets its requests from.
pub(crate) struct RequestSource {
    id: usize,
    pub(crate) context: Rc<WorkerContext>,
    pub(crate) user: LoadUser,
    /// A request that is due and was not begun, as there is no connection or no stream for it.
    pub(crate) waiting: Option<Instant>,
    pause: ThinkPause,
}

impl RequestSource {
    /// The requests of the connection `id` of a worker.
    pub(crate) fn new(id: usize, context: Rc<WorkerContext>) -> Self {
        Self {
            id,
            user: context.user(),
            context,
            waiting: None,
            pause: ThinkPause::default(),
        }
    }

    /// Waits for the next request; when it was due. `None` if there is none any more.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        ready!(self.pause.poll(cx, (self.id, &self.context.arrivals)));
        match self.waiting.take() {
            Some(due) => Poll::Ready(Some(due)),
            None => self.context.arrivals.poll_next(self.id, cx),
        }
    }

    /// Begins the pause after a response, if there is one.
    pub(crate) fn pause(&mut self) {
        self.context.pause(&mut self.pause, &self.user);
    }

    /// Says that the connection takes no requests until it is open.
    pub(crate) fn leave(&self) {
        self.context.arrivals.leave(self.id);
    }

    /// Counts the request that waits, if there is one, as failed.
    pub(crate) fn fail_waiting(&mut self, kind: LoadFailure) {
        if let Some(due) = self.waiting.take() {
            let request = self.context.choose(&mut self.user);
            let begun = self.context.begin(due, request);
            self.context.failed(kind, begun, &mut self.user);
        }
    }
}

/// Why a connection is not used any more.
pub(crate) enum StreamsEnd<F> {
    /// No request is left.
    Done,
    /// It was shut down, and all its requests are complete.
    ShutDown,
    /// It failed, with everything in flight.
    Failed(F),
}

/// A connection of the load that carries several requests at once.
pub(crate) trait StreamsLoad {
    /// What a connection fails of.
    type Failure;

    fn source(&mut self) -> &mut RequestSource;

    fn is_open(&self) -> bool;

    /// Opens the connection. What is said about a failure is recorded.
    async fn open(&mut self) -> Result<(), LoadFailure>;

    /// Drives the connection to its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<StreamsEnd<Self::Failure>>;

    /// Counts what is in flight as failed, and closes the connection.
    fn fail(&mut self, failure: Self::Failure);

    /// Closes the connection, over which nothing is in flight.
    fn close(&mut self);
}

/// Sends requests until there are no more.
pub(crate) async fn run(mut load: impl StreamsLoad) {
    loop {
        if !load.is_open() {
            let Some(due) = poll_fn(|cx| load.source().poll_due(cx)).await else {
                return;
            };
            // Until the connection is open, so that the request is counted if the load ends meanwhile.
            load.source().waiting = Some(due);
            if let Err(kind) = load.open().await {
                load.source().fail_waiting(kind);
                tokio::time::sleep(RECONNECT_AFTER).await;
                continue;
            }
        }
        match poll_fn(|cx| load.poll(cx)).await {
            StreamsEnd::Done => return load.close(),
            StreamsEnd::ShutDown => load.close(),
            StreamsEnd::Failed(failure) => load.fail(failure),
        }
    }
}
