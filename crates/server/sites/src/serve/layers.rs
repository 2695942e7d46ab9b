//! Layers around the handler of a location.

use std::rc::Rc;

use apus_handler::middleware::{Chain, Layer, Next, Position};
use apus_handler::rendering::ErrorRules;
use apus_handler::{Error, Rendering};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, Response, ResponseFuture, StatusCode};

use super::complete::clear_body;
use super::route::RequestRoute;
use super::{RequestState, SiteState};
use crate::template::Captures;

/// What is behind the layers of a location.
struct LayeredTarget {
    layers: Rc<[Layer]>,
    kind: TargetKind,
}

enum TargetKind {
    /// The handler of the location in this route.
    Handler {
        captures: Captures,
        route: Rc<RequestRoute>,
    },
    /// A response of the site itself.
    Response(Response),
}

impl SiteState {
    /// Passes a request through the layers of its location to the handler. The layers that it passed before, in a location
    /// that redirected it here, are left out.
    pub(super) fn pass_layers(
        self: &Rc<Self>,
        request: Request,
        captures: Captures,
        route: &Rc<RequestRoute>,
    ) -> ResponseFuture {
        let layers = &self.location(route).layers;
        let of_rules = if self.has_rules {
            route.take_layers_of_rules()
        } else {
            Vec::new()
        };
        let is_first = route.passed_layers.borrow().is_empty() && of_rules.is_empty();
        let layers: Rc<[Layer]> = if is_first {
            layers.clone()
        } else {
            let mut new: Vec<Layer> = Vec::new();
            for layer in of_rules.iter().chain(layers.iter()) {
                if !route.has_passed(layer) && !new.iter().any(|other| other.is_same(layer)) {
                    new.push(layer.clone());
                }
            }
            new.into()
        };
        route.passed_layers.borrow_mut().push(Rc::clone(&layers));
        // If a layer responds itself, the response is one of this location.
        self.resolve_changes(&request, &captures, route);
        let target = LayeredTarget {
            layers,
            kind: TargetKind::Handler {
                captures,
                route: Rc::clone(route),
            },
        };
        self.clone()
            .call(Position::Inner(0, Box::new(target)), request)
    }

    /// Calls the handler of a location whose layers the request has passed. As layers may wait, this runs at any time after
    /// [`Self::pass_layers`] has returned.
    fn call_behind_layers(self: &Rc<Self>, target: TargetKind, request: Request) -> ResponseFuture {
        let (captures, route) = match target {
            TargetKind::Response(response) => return response.into(),
            TargetKind::Handler { captures, route } => (captures, route),
        };
        route.note_extensions(&request);
        self.call_behind_rules(request, captures, &route)
    }

    /// Responds with a response that the site makes before it calls a handler: a redirect of a rewrite rule, 404 where no
    /// location matches, 400 for a path without a normal form. It gets the fields of the location, or without a location the
    /// fields of the site. Layers that may reject a request are not called, as in nginx, where rewriting comes before access
    /// rules.
    pub(super) fn respond_itself(
        self: &Rc<Self>,
        request: Request,
        response: Response,
        route: &Rc<RequestRoute>,
    ) -> ResponseFuture {
        self.resolve_changes(&request, &Captures::default(), route);
        let location = self.location(route);
        let is_called = |layer: &&Layer| layer.changes_only_fields() && !route.has_passed(layer);
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
        let pages = &self.location(&context.route).error_pages;
        if pages.contains_key(&response.status()) {
            clear_body(&mut response);
        }
        response
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
        let layers = Rc::clone(&target.layers);
        match layers.get(index) {
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
