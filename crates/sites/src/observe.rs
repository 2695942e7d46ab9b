//! What watches the requests of a site, as an access log does.

use std::rc::Rc;
use std::thread;
use std::time::Instant;

use apus_http::{Completion, Outcome, Request, Response, StatusCode};
use apus_net::coarse_now;

/// The status that logs have for a request whose client went away before there was a response; as in
/// nginx. No client ever gets it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Watches the requests of a site; makes what does so on each worker.
pub trait Observer: Send + Sync {
    /// The observer of the calling worker.
    fn worker(&self) -> Rc<dyn WorkerObserver>;
}

/// Watches the requests of a site on one worker.
pub trait WorkerObserver {
    /// Sees a request before anything was changed in it. What is returned is called once the
    /// response was sent or broke off; `None` is not to be told. If the client is gone before there
    /// is a response, the status is 499.
    fn begin(&self, request: &Request) -> Option<OnCompletion>;
}

/// Called when a response was sent or broke off.
pub type OnCompletion = Box<dyn FnOnce(&Completion)>;

/// Sees to it that an observer hears of every request, also of one that never gets a response, or
/// whose response is dropped before it ends.
pub(super) struct Observed {
    on_completion: Option<OnCompletion>,
    since: Instant,
    /// That of the response, once there is one.
    status: Option<StatusCode>,
}

impl Observed {
    pub(super) fn begin(observer: &dyn WorkerObserver, request: &Request) -> Option<Self> {
        Some(Self {
            on_completion: Some(observer.begin(request)?),
            since: coarse_now(),
            status: None,
        })
    }

    /// Leaves it to the response to tell how it ended.
    pub(super) fn hand_over(mut self, response: &mut Response) {
        self.status = Some(response.status());
        let source = response.source().cloned();
        let cache = response.cache();
        response.on_complete(move |completion| {
            if let Some(on_completion) = self.on_completion.take() {
                match source.is_some() || cache.is_some() {
                    false => on_completion(completion),
                    true => on_completion(&Completion {
                        source,
                        cache,
                        ..completion.clone()
                    }),
                }
            }
        });
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let Some(on_completion) = self.on_completion.take() else {
            return;
        };
        let (status, outcome) = match self.status {
            Some(status) => (status, Outcome::ClientGone),
            // A handler that panics makes the connection answer 500.
            None if thread::panicking() => {
                (StatusCode::INTERNAL_SERVER_ERROR, Outcome::SourceFailed)
            }
            None => (
                StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or(StatusCode::REQUEST_TIMEOUT),
                Outcome::ClientGone,
            ),
        };
        on_completion(&Completion {
            status,
            body_bytes: 0,
            bytes: 0,
            duration: coarse_now().saturating_duration_since(self.since),
            outcome,
            source: None,
            cache: None,
        });
    }
}
