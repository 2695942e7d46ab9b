//! The response of a site to requests during its maintenance.

use std::rc::Rc;

use apus_http::trace::{Step, StepKind, Trace};
use apus_http::{Request, RequestEvent, Response, ResponseCount, ResponseFuture};

use super::accel;
use super::{RequestState, SiteState};

const NOT_ALLOWED: &str = "the site is in maintenance, and the client is in no network of `allow`";

impl SiteState {
    /// Completes the response to a request that does not pass: with the page of the maintenance or the site's error page
    /// for 503, with the fields of the site, and in its access log.
    #[cold]
    pub(super) fn respond_in_maintenance(
        self: &Rc<Self>,
        request: Request,
        response: Response,
        count: Option<ResponseCount>,
    ) -> ResponseFuture {
        request.note(|| RequestEvent::decided("maintenance", NOT_ALLOWED));
        // A page of the site needs it.
        let copy = Box::new(accel::copy(&request));
        let context = RequestState {
            route: self.spare_routes.begin(|route| {
                route.is_in_maintenance = true;
                route.redirect_copy.set(Some(copy));
            }),
            client: request.client().ip,
            error_format: request.error_format(),
            language: request.error_page_language(),
            is_secure: request.is_secure(),
            observation: self.observe(&request),
            count,
            trace: Trace::of(&request),
            rules_since: self.rules_since(),
        };
        if let Some(trace) = &context.trace {
            trace.push(Step::new(StepKind::Handler, "maintenance", NOT_ALLOWED));
        }
        let responded = self.respond_itself(request, response, &context.route);
        let site = self.clone();
        match responded {
            ResponseFuture::Now(response) => site.complete(context, response),
            ResponseFuture::Later(response) => ResponseFuture::later(async move {
                let response = response.await;
                site.complete(context, response).wait().await
            }),
        }
    }
}
