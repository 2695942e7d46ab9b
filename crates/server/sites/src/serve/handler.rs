//! The handler of a location, and the changes of fields around it.

use apus_compress::EncodingNegotiation;
use apus_files::FilesOutcome;
use apus_handler::panic::call_caught;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, Response, StatusCode};

use super::SiteState;
use super::location_state::{LocationState, WorkerHandler};
use super::route::RequestRoute;
use crate::template::{Captures, VariableScope};

impl SiteState {
    /// Applies the settings of a location to a request and calls its handler.
    pub(super) fn call_handler(
        &self,
        mut request: Request,
        captures: &Captures,
        route: &RequestRoute,
    ) -> FilesOutcome {
        let location = self.location(route);
        // The changes of a location that redirected the request here do not apply.
        self.resolve_changes(&request, captures, route);
        if location.body_limit > 0 {
            match request.body_mut().len() {
                Some(0) => {}
                Some(len) if len > location.body_limit => {
                    return Response::new(StatusCode::PAYLOAD_TOO_LARGE).into();
                }
                _ => request.limit_body(location.body_limit),
            }
        }
        // A request that is redirected internally gets its original fields back.
        let may_redirect = matches!(location.handler, WorkerHandler::Files { .. })
            && !location.request_fields.is_empty();
        let original = may_redirect.then(|| request.headers().clone());
        self.change_request_fields(location, &mut request, captures);
        if let Some(compress_when) = &self.compress_when {
            compress_when.prepare(&mut request);
        }
        match &location.handler {
            WorkerHandler::NotFound => Response::new(StatusCode::NOT_FOUND).into(),
            WorkerHandler::Return(handler) => {
                trace::note(&request, || {
                    Step::new(
                        StepKind::Handler,
                        handler.to_string(),
                        "the handler of the location",
                    )
                });
                self.with_scope(location, &request, captures, |scope| handler.respond(scope))
                    .into()
            }
            WorkerHandler::Files { name, files } => {
                trace::note(&request, || {
                    Step::new(StepKind::Handler, *name, "the handler of the location")
                });
                let mut handled = files.handle(request);
                if let (FilesOutcome::Rewritten(request), Some(headers)) = (&mut handled, original)
                {
                    *request.headers_mut() = headers;
                }
                handled
            }
            WorkerHandler::Service { name, service } => {
                let negotiation = self
                    .compression
                    .map(|compression| EncodingNegotiation::of(&request, compression));
                route.compression.set(negotiation);
                if self.compress_when.is_some() {
                    route.note_coding_rule(&request);
                }
                trace::note(&request, || {
                    Step::new(StepKind::Handler, &**name, "the handler of the location")
                });
                let call = || match negotiation {
                    Some(negotiation) => negotiation.call(service, request),
                    None => service.call(request),
                };
                // Gates change the response to a panic, too.
                FilesOutcome::Response(if route.has_gates() {
                    call_caught(call)
                } else {
                    call()
                })
            }
        }
    }

    fn change_request_fields(
        &self,
        location: &LocationState,
        request: &mut Request,
        captures: &Captures,
    ) {
        for change in &location.request_fields {
            if change.has_variables() {
                let change =
                    self.with_scope(location, request, captures, |scope| change.resolve(scope));
                change.apply(request.headers_mut());
            } else {
                change.apply(request.headers_mut());
            }
        }
    }

    /// Notes the changes of response fields, if they depend on the request.
    pub(super) fn resolve_changes(
        &self,
        request: &Request,
        captures: &Captures,
        route: &RequestRoute,
    ) {
        let location = self.location(route);
        if !location.has_variables && route.changes.borrow().is_none() {
            return;
        }
        let changes = location.has_variables.then(|| {
            self.with_scope(location, request, captures, |scope| {
                let changes = location.response_fields.iter();
                changes.map(|change| change.resolve(scope)).collect()
            })
        });
        route.changes.replace(changes);
    }

    fn with_scope<T>(
        &self,
        location: &LocationState,
        request: &Request,
        captures: &Captures,
        then: impl FnOnce(&VariableScope<'_>) -> T,
    ) -> T {
        then(&VariableScope {
            request,
            path: request.normal_path().unwrap_or_default(),
            site: &self.name,
            root: &location.root,
            captures,
        })
    }
}
