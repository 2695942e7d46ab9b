//! Layers around the handler of a location.

use std::cell::RefCell;
use std::rc::Rc;

use apus_handler::middleware::{Chain, Layer, Next, Position};
use apus_handler::rendering::ErrorRules;
use apus_handler::{Error, Rendering};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, Response, ResponseFuture, StatusCode};

use super::complete::clear_body;
use super::{RequestRoute, RequestState, SiteState};
use crate::template::Captures;
use apus_files::FilesOutcome;

/// What is behind the layers of a location.
struct LayeredTarget {
    layers: Rc<[Layer]>,
    kind: TargetKind,
}

enum TargetKind {
    Location {
        /// `None`: no location matched.
        index: Option<usize>,
        captures: Captures,
        route: Rc<RefCell<RequestRoute>>,
    },
    /// A response of the site itself.
    Response(Response),
}

impl SiteState {
    /// Passes a request through the layers of a location to its handler. The layers that it passed before, in
    /// a location that redirected it here, are left out.
    pub(super) fn pass_layers(
        self: &Rc<Self>,
        index: Option<usize>,
        request: Request,
        captures: Captures,
        route: &mut RequestRoute,
    ) -> ResponseFuture {
        let location = index.and_then(|index| self.locations.get(index));
        let location = location.unwrap_or(&self.default_location);
        let is_new = |layer: &&Layer| {
            !route
                .passed_layers
                .iter()
                .any(|passed| passed.is_same(layer))
        };
        let layers: Rc<[Layer]> = if route.passed_layers.is_empty() {
            location.layers.clone()
        } else {
            location.layers.iter().filter(is_new).cloned().collect()
        };
        route.changes = self.resolve_changes(location, &request, &captures);
        // If a layer responds itself, the response is one of this location.
        let mut behind = std::mem::take(route);
        behind.passed_layers.extend(layers.iter().cloned());
        let behind = Rc::new(RefCell::new(behind));
        route.behind_layers = Some(behind.clone());
        let target = LayeredTarget {
            layers,
            kind: TargetKind::Location {
                index,
                captures,
                route: behind,
            },
        };
        self.clone()
            .call(Position::Inner(0, Box::new(target)), request)
    }

    /// Responds with a response that the site makes before it calls a handler: a redirect of a rewrite rule, 404 where no
    /// location matches, 400 for a path without a normal form. It gets the fields of the location, or those of the site
    /// without one. Layers that may reject a request are not called, as in nginx, where rewriting comes before access rules.
    pub(super) fn respond_itself(
        self: &Rc<Self>,
        index: Option<usize>,
        request: Request,
        route: &mut RequestRoute,
        response: Response,
    ) -> ResponseFuture {
        let location = index.and_then(|index| self.locations.get(index));
        let location = location.unwrap_or(&self.default_location);
        route.location = index;
        route.changes = self.resolve_changes(location, &request, &Captures::default());
        let is_called = |layer: &&Layer| {
            let mut passed = route.passed_layers.iter();
            layer.changes_only_fields() && !passed.any(|passed| passed.is_same(layer))
        };
        if route.skips_layers || !location.layers.iter().any(|layer| is_called(&layer)) {
            return response.into();
        }
        let target = LayeredTarget {
            layers: location.layers.iter().filter(is_called).cloned().collect(),
            kind: TargetKind::Response(response),
        };
        self.clone()
            .call(Position::Inner(0, Box::new(target)), request)
    }

    /// Calls the handler of a location whose layers the request has passed.
    fn call_behind_layers(self: &Rc<Self>, target: TargetKind, request: Request) -> ResponseFuture {
        let (index, captures, route) = match target {
            TargetKind::Response(response) => return response.into(),
            TargetKind::Location {
                index,
                captures,
                route,
            } => (index, captures, route),
        };
        let mut route = route.borrow_mut();
        if let Some(copy) = &mut route.redirect_copy {
            // What layers found out holds for an internal redirect too.
            *copy.extensions_mut() = request.extensions().clone();
        }
        let location = index.and_then(|index| self.locations.get(index));
        let location = location.unwrap_or(&self.default_location);
        match self.call_handler(location, request, &captures, &mut route) {
            FilesOutcome::Response(response) => response,
            FilesOutcome::Rewritten(redirected) => {
                route.is_internal = true;
                self.visit_locations(redirected, &mut route)
            }
        }
    }
}

impl SiteState {
    /// Makes the body of an error that a layer left to the site: an error page of the site goes before it.
    pub(super) fn render_layer_error(
        &self,
        context: &RequestState,
        response: Response,
    ) -> Response {
        let is_error = response.attached().is_some_and(|value| value.is::<Error>());
        if !is_error {
            return response;
        }
        let mut response = Rendering::for_client(context.error_format).apply(response);
        let pages = &self.location(context).error_pages;
        if pages.contains_key(&response.status()) {
            clear_body(&mut response);
        }
        response
    }
}

impl RequestRoute {
    /// Becomes the route behind all layers that the request came to.
    pub(super) fn enter_innermost(&mut self) {
        while let Some(behind) = self.behind_layers.take() {
            *self = behind.take();
        }
    }
}

impl Chain for SiteState {
    fn call(self: Rc<Self>, position: Position, request: Request) -> ResponseFuture {
        let Position::Inner(index, target) = position else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        let Ok(target) = target.downcast::<LayeredTarget>() else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        match target.layers.get(index).cloned() {
            Some(layer) => {
                trace::note(&request, || {
                    Step::new(
                        StepKind::Handler,
                        format!("layer {}", layer.name()),
                        "the location has it",
                    )
                });
                let position = Position::Inner(index.saturating_add(1), target);
                layer.call(request, Next::new(self, position))
            }
            None => self.call_behind_layers(target.kind, request),
        }
    }

    fn route<'c>(&'c self, _: &'c Position, _: &Request) -> Option<&'c str> {
        None
    }

    fn errors(&self, _: &Position, _: &Request) -> &ErrorRules {
        &self.layer_errors
    }
}
