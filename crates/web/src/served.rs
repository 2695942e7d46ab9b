//! An application as a server has it: paths are valid, and errors have a body.

use std::error::Error;
use std::rc::Rc;

use apus_error_page::{Details, ErrorFormat, fill, lacks_content};
use apus_http::path::refusal;
use apus_http::{Answer, Request, Response, RouteInfo, Service, ServiceFactory};

/// Makes the service that a server calls.
pub(crate) struct Served<F>(pub(crate) F);

impl<F: ServiceFactory> ServiceFactory for Served<F> {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(ServedService(self.0.service()))
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.0.routes()
    }
}

struct ServedService(Rc<dyn Service>);

impl Service for ServedService {
    fn call(&self, request: Request) -> Answer {
        let format = ErrorFormat::of(&request);
        let answer = match request.plain_path() {
            Ok(_) => self.0.call(request),
            Err(_) => Response::new(refusal(&request)).into(),
        };
        answer.map(move |mut response| {
            if lacks_content(&response) {
                fill(&mut response, format, Details::default());
            }
            response
        })
    }
}
