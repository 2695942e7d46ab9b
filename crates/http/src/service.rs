//! The one contract between the engine and everything that answers requests.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::{Request, Response, RouteInfo};

/// Something that answers requests: a file tree, a proxy, a handler, or services put together.
///
/// A service lives on one worker and is called for every request of that worker, so it needs no
/// locks. A [`ServiceFactory`] makes one for each worker.
pub trait Service {
    /// Answers one request.
    ///
    /// It must not block. A service that has to wait moves what it needs into the future of
    /// [`Answer::Later`]; one that has its answer at hand returns it and costs no allocation.
    fn call(&self, request: Request) -> Answer;
}

/// A response, at once or later.
pub enum Answer {
    /// The response is here.
    Now(Response),
    /// The response has to be waited for. Dropped unfinished when the client is gone.
    Later(Pin<Box<dyn Future<Output = Response>>>),
}

impl Answer {
    /// An answer that `future` will give.
    pub fn later(future: impl Future<Output = Response> + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// The same answer after `change`.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Response) -> Response + 'static) -> Self {
        match self {
            Self::Now(response) => Self::Now(change(response)),
            Self::Later(future) => Self::later(async move { change(future.await) }),
        }
    }

    /// Waits for the response.
    pub async fn wait(self) -> Response {
        match self {
            Self::Now(response) => response,
            Self::Later(future) => future.await,
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(response) => f.debug_tuple("Now").field(response).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Now(response)
    }
}

/// Makes the service of one worker. Shared by all threads; its products are not.
pub trait ServiceFactory: Send + Sync {
    /// A new service, for the thread that calls.
    fn service(&self) -> Rc<dyn Service>;

    /// Whether its services can be all that they are meant to be. A server asks before it listens.
    ///
    /// # Errors
    /// What cannot be, and where it was written: two routes for the same requests, for one.
    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    /// What its services answer, as far as that is known before they are asked: for people to read.
    fn routes(&self) -> Vec<RouteInfo> {
        Vec::new()
    }
}

impl<F, S> ServiceFactory for F
where
    F: Fn() -> S + Send + Sync,
    S: Service + 'static,
{
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(self())
    }
}

/// A service from a function.
pub fn service_fn<F: Fn(Request) -> Answer>(call: F) -> impl Service {
    ServiceFn(call)
}

struct ServiceFn<F>(F);

impl<F: Fn(Request) -> Answer> Service for ServiceFn<F> {
    fn call(&self, request: Request) -> Answer {
        (self.0)(request)
    }
}
