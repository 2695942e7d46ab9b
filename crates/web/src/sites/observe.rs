//! What watches the requests of a site, as an access log does.

use std::rc::Rc;

use apus_http::{Completion, Request};

/// Watches the requests of a site; makes what does so on each worker.
pub trait Observer: Send + Sync {
    /// The observer of the calling worker.
    fn worker(&self) -> Rc<dyn WorkerObserver>;
}

/// Watches the requests of a site on one worker.
pub trait WorkerObserver {
    /// Sees a request before anything was changed in it. What is returned is called once the
    /// response was sent or broke off; `None` is not to be told.
    fn begin(&self, request: &Request) -> Option<OnCompletion>;
}

/// Called when a response was sent or broke off.
pub type OnCompletion = Box<dyn FnOnce(&Completion)>;
