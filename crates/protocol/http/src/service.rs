//! The traits of services, which respond to requests.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::{Request, Response, RouteInfo};

/// A service responds to requests: a file tree, a proxy, a handler, or a combination of services.
///
/// A service belongs to one worker, which calls it for each of its requests, so it needs no locks. A
/// [`ServiceFactory`] creates one for each worker.
pub trait Service {
    /// Responds to one request.
    ///
    /// It must not block. A service that has to wait moves its data into the future of
    /// [`ResponseFuture::Later`]; a service that has the response returns it, which costs no allocation.
    fn call(&self, request: Request) -> ResponseFuture;
}

/// A response, at once or later.
pub enum ResponseFuture {
    /// The response.
    Now(Response),
    /// A future of the response. It is dropped if the client closes the connection.
    Later(Pin<Box<dyn Future<Output = Response>>>),
}

impl ResponseFuture {
    /// The response that `future` will return.
    pub fn later(future: impl Future<Output = Response> + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// The response that `change` makes of this one.
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

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(response) => f.debug_tuple("Now").field(response).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl From<Response> for ResponseFuture {
    fn from(response: Response) -> Self {
        Self::Now(response)
    }
}

/// Creates the service of each worker. The factory is shared by all threads, its services are not.
pub trait ServiceFactory: Send + Sync {
    /// A new service for the calling thread.
    fn service(&self) -> Rc<dyn Service>;

    /// A new service for the calling thread that a server calls directly. Such a service rejects invalid paths
    /// and gives all error responses a body; if there is none, the server does so around
    /// [`Self::service`].
    #[doc(hidden)]
    fn outermost_service(&self) -> Option<Rc<dyn Service>> {
        None
    }

    /// Checks the definition of the services. A server calls it before it listens.
    ///
    /// # Errors
    /// The fault and its place in the source code, such as two routes for the same requests.
    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    /// As [`Self::check`], if a server calls the service directly: no other service adds to its requests what it
    /// needs.
    #[doc(hidden)]
    fn check_outermost(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.check()
    }

    /// The routes of its services that are known in advance, for people to read.
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

/// Creates a service from a function.
pub fn service_fn<F: Fn(Request) -> ResponseFuture>(call: F) -> impl Service {
    ServiceFn(call)
}

struct ServiceFn<F>(F);

impl<F: Fn(Request) -> ResponseFuture> Service for ServiceFn<F> {
    fn call(&self, request: Request) -> ResponseFuture {
        (self.0)(request)
    }
}
