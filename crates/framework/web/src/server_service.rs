//! `ServerService`: rejects invalid paths and adds a body to error responses of a service.

use std::error::Error;
use std::rc::Rc;

use apus_handler::error_page::{DEFAULT_FORMAT, ErrorDetails, lacks_body, write_body};
use apus_http::{Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory};

/// Makes the service that the server calls.
pub(crate) struct ServerServiceFactory<F>(pub(crate) F);

impl<F: ServiceFactory> ServiceFactory for ServerServiceFactory<F> {
    fn service(&self) -> Rc<dyn Service> {
        let outermost = self.0.outermost_service();
        outermost.unwrap_or_else(|| Rc::new(ServerService(self.0.service())))
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.check_outermost()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.0.routes()
    }
}

struct ServerService(Rc<dyn Service>);

impl Service for ServerService {
    fn call(&self, request: Request) -> ResponseFuture {
        let format = request.error_format().unwrap_or(DEFAULT_FORMAT);
        let language = request.error_page_language();
        let future = match request.plain_path() {
            Ok(_) => self.0.call(request),
            Err(_) => Response::new(request.invalid_path_status()).into(),
        };
        future.map(move |mut response| {
            if lacks_body(&response) {
                let details = ErrorDetails::in_language(language);
                write_body(&mut response, format, details);
            }
            response
        })
    }
}
