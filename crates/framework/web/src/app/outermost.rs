//! The outermost part of an application on a worker: the span of a request, and the form of errors and panics that
//! no inner part gave them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use apus_handler::rendering::Rendering;
use apus_handler::{PanicError, RequestSpan};
use apus_http::{Request, Response, ResponseFuture, Service};
use tracing::Span;

use super::service::{AppService, RequestPath};

/// The service of an application.
pub(super) struct OutermostService {
    pub(super) app: Rc<AppService>,
    /// Whether the server calls it. All errors get a body then; else those without one and without rules are left to
    /// the service around the application.
    pub(super) is_served: bool,
}

impl Service for OutermostService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        let span = RequestSpan::begin(&mut request);
        let outermost = Outermost {
            errors: (self.is_served || self.app.has_error_rules())
                .then(|| ResponseErrors::new(self, &request)),
            span,
        };
        let entered = outermost.span.enter();
        let returned = outermost.catch(|| self.app.call_outer(0, request));
        drop(entered);
        match returned {
            Ok(ResponseFuture::Now(response)) => outermost.form(response).into(),
            Ok(ResponseFuture::Later(future)) => {
                ResponseFuture::later(OutermostFuture { future, outermost })
            }
            Err(response) => response.into(),
        }
    }
}

/// What happens to the response of a request at last.
struct Outermost {
    errors: Option<ResponseErrors>,
    span: Span,
}

impl Outermost {
    fn form(&self, response: Response) -> Response {
        match &self.errors {
            Some(errors) => errors.form(response),
            None => response,
        }
    }

    /// Calls a function, and makes a response of its panic. Without rules for errors the service around the application, such
    /// as a site, gives it its form.
    fn catch<T>(&self, run: impl FnOnce() -> T) -> Result<T, Response> {
        let caught = catch_unwind(AssertUnwindSafe(run));
        caught.map_err(|panic| self.form(PanicError::new(&*panic).into_response()))
    }
}

/// The future of a response.
struct OutermostFuture {
    future: Pin<Box<dyn Future<Output = Response>>>,
    outermost: Outermost,
}

impl Future for OutermostFuture {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let Self { future, outermost } = self.get_mut();
        let _entered = outermost.span.enter();
        match outermost.catch(|| future.as_mut().poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(response)) => Poll::Ready(outermost.form(response)),
            Err(response) => Poll::Ready(response),
        }
    }
}

/// The form of the errors of a request.
struct ResponseErrors {
    rendering: Rendering,
    /// The path that the client sent, where it determines the rules.
    path: Option<Box<(Rc<AppService>, RequestPath)>>,
    is_served: bool,
}

impl ResponseErrors {
    fn new(service: &OutermostService, request: &Request) -> Self {
        let app = &service.app;
        let path = || Box::new((app.clone(), RequestPath::of(request)));
        Self {
            rendering: Rendering::of(request, app.errors_of(0)),
            path: app.has_group_errors.then(path),
            is_served: service.is_served,
        }
    }

    fn form(&self, response: Response) -> Response {
        if !Rendering::changes(&response) {
            return response;
        }
        let rendering = match &self.path {
            Some(path) => {
                let (app, path) = &**path;
                &self.rendering.clone().with_rules(app.errors_of_path(path))
            }
            None => &self.rendering,
        };
        if self.is_served {
            rendering.complete(response)
        } else {
            rendering.apply(response)
        }
    }
}
