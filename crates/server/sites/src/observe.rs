//! Observers of a site's requests, such as the access log.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use apus_conditions::{Condition, RequestFacts};
use apus_http::{Completion, Request, Response, ResponseOutcome, StatusCode};
use apus_transport::coarse_now;

/// The status that is logged when the client closes the connection before there is a response, as in
/// nginx. It is never sent.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Observes the requests of a site; creates the observer of each worker.
pub trait Observer: Send + Sync {
    /// The observer of the calling worker.
    fn worker(&self) -> Rc<dyn WorkerObserver>;
}

/// Observes the requests of a site on one worker.
pub trait WorkerObserver {
    /// Sees a request before anything changes it. The returned function is called once the response
    /// was sent or aborted. If the client closes the connection before there is a response, the
    /// status is 499.
    ///
    /// Its [`RemoteUserSlot`](apus_http::RemoteUserSlot), if it has one, has the user later.
    fn begin(&self, request: &Request) -> Option<OnCompletion>;

    /// Whether it needs the variables that rules set: their [`RequestVariables`](apus_conditions::RequestVariables) have them later.
    fn needs_variables(&self) -> bool {
        false
    }

    /// Whether it needs the user of requests.
    fn needs_user(&self) -> bool {
        false
    }

    /// Whether it needs the field lines of responses: [`Completion::fields`] has them.
    fn needs_sent_fields(&self) -> bool {
        false
    }
}

/// Observes the requests for which a condition holds when they arrive.
pub(crate) struct ConditionalObserver {
    pub(crate) condition: Condition,
    pub(crate) observer: Rc<dyn WorkerObserver>,
}

impl WorkerObserver for ConditionalObserver {
    fn begin(&self, request: &Request) -> Option<OnCompletion> {
        let holds = self.condition.holds(&RequestFacts::new(request));
        holds.then(|| self.observer.begin(request)).flatten()
    }

    fn needs_user(&self) -> bool {
        self.observer.needs_user()
    }

    fn needs_variables(&self) -> bool {
        self.observer.needs_variables()
    }

    fn needs_sent_fields(&self) -> bool {
        self.observer.needs_sent_fields()
    }
}

/// Called when a response was sent or aborted.
pub type OnCompletion = Box<dyn FnOnce(&Completion)>;

/// Calls the observer for every request, also if it never gets a response or its response is dropped.
pub struct RequestObservation {
    on_completion: Option<OnCompletion>,
    /// Counts the request, whether the observer sees it or not.
    count: Option<OnCompletion>,
    /// Whether the observer needs the field lines of the response.
    needs_fields: bool,
    since: Instant,
    /// The status of the response, once there is one.
    status: Option<StatusCode>,
}

impl RequestObservation {
    /// Begins to observe a request; `None` if the observer is not interested in it.
    pub fn begin(observer: &dyn WorkerObserver, request: &Request) -> Option<Self> {
        Some(Self {
            on_completion: Some(observer.begin(request)?),
            count: None,
            needs_fields: observer.needs_sent_fields(),
            since: coarse_now(),
            status: None,
        })
    }

    /// Begins to observe a request that is counted, too, whether there is an observer that is interested or not.
    pub(crate) fn counted(
        observer: Option<&dyn WorkerObserver>,
        request: &Request,
        count: OnCompletion,
    ) -> Self {
        Self {
            on_completion: observer.and_then(|observer| observer.begin(request)),
            count: Some(count),
            needs_fields: observer.is_some_and(|observer| observer.needs_sent_fields()),
            since: coarse_now(),
            status: None,
        }
    }

    /// Forgets the request: the observer is not called. If the request is counted, that is done when `response` completes.
    pub fn discard(mut self, response: &mut Response) {
        self.on_completion = None;
        if self.count.is_some() {
            self.attach(response);
        }
    }

    /// Calls the observer when `response` completes.
    pub fn attach(mut self, response: &mut Response) {
        self.status = Some(response.status());
        let origin = response.origin().cloned();
        let cache = response.cache();
        let fields = self
            .needs_fields
            .then(|| Arc::new(response.headers().clone()));
        response.on_complete(move |completion| {
            if origin.is_some() || cache.is_some() || fields.is_some() {
                self.complete(&Completion {
                    origin,
                    cache,
                    fields,
                    ..completion.clone()
                });
            } else {
                self.complete(completion);
            }
        });
    }

    fn complete(&mut self, completion: &Completion) {
        if let Some(on_completion) = self.on_completion.take() {
            on_completion(completion);
        }
        if let Some(count) = self.count.take() {
            count(completion);
        }
    }
}

impl fmt::Debug for RequestObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestObservation")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Drop for RequestObservation {
    fn drop(&mut self) {
        if self.on_completion.is_none() && self.count.is_none() {
            return;
        }
        let (status, outcome) = match self.status {
            Some(status) => (status, ResponseOutcome::ClientGone),
            // The connection responds with 500 when a handler panics.
            None if thread::panicking() => (
                StatusCode::INTERNAL_SERVER_ERROR,
                ResponseOutcome::SourceFailed,
            ),
            None => (
                StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or(StatusCode::REQUEST_TIMEOUT),
                ResponseOutcome::ClientGone,
            ),
        };
        self.complete(&Completion {
            status,
            body_bytes: 0,
            bytes: 0,
            duration: coarse_now().saturating_duration_since(self.since),
            first_byte: None,
            outcome,
            origin: None,
            cache: None,
            fields: None,
        });
    }
}
