//! Layers around the handler of a location.

use std::rc::Rc;

use apus_handler::gate::{GateDecision, GateWait};
use apus_handler::middleware::{Chain, Layer, Next, Position};
use apus_handler::panic::call_caught;
use apus_handler::rendering::ErrorRules;
use apus_handler::{Error, Rendering};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, Response, ResponseFuture, StatusCode};

use super::complete::clear_body;
use super::route::{PassedLayers, RequestRoute};
use super::{RequestState, SiteState};
use crate::template::Captures;

/// What is behind the layers of a location.
struct LayeredTarget {
    layers: PassedLayers,
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

/// What comes of a walk through gates.
pub(super) enum GateWalk {
    /// All layers were gates, and let the request pass.
    Passed,
    /// The layer at this position is none.
    At(PassedLayers, usize),
    /// A gate responds.
    Respond(Response),
    /// The gate before this position holds the request.
    Hold(GateWait, PassedLayers, usize),
}

impl SiteState {
    /// Passes a request through the layers of its location up to the first that is no gate. The layers that it passed before, in a
    /// location that redirected it here, are left out.
    pub(super) fn enter_layers(
        &self,
        request: &mut Request,
        captures: &Captures,
        route: &RequestRoute,
    ) -> GateWalk {
        let own = &self.location(route).layers;
        let is_first = !route.has_passed_any();
        let layers = if is_first && !(self.has_rules && route.has_layers_of_rules()) {
            Rc::clone(own)
        } else {
            self.layers_left(own, route)
        };
        let layers = route.pass_layers(layers);
        // If a layer responds itself, the response is one of this location.
        self.resolve_changes(request, captures, route);
        self.enter_gates((layers, 0), request, route)
    }

    /// The layers of rules and of a location that a request has not passed.
    fn layers_left(&self, own: &[Layer], route: &RequestRoute) -> PassedLayers {
        let of_rules = if self.has_rules {
            route.take_layers_of_rules()
        } else {
            Vec::new()
        };
        let mut new: Vec<Layer> = Vec::new();
        for layer in of_rules.iter().chain(own) {
            if !route.has_passed(layer) && !new.iter().any(|other| other.is_same(layer)) {
                new.push(layer.clone());
            }
        }
        new.into()
    }

    /// Passes a request through gates, from this position on.
    fn enter_gates(
        &self,
        (layers, from): (PassedLayers, usize),
        request: &mut Request,
        route: &RequestRoute,
    ) -> GateWalk {
        for at in from.. {
            let Some(layer) = layers.get(at) else {
                break;
            };
            let Some(gate) = layer.gate() else {
                return GateWalk::At(layers, at);
            };
            note_layer(layer, request);
            let rendering = |request: &Request| Rendering::for_client(request.error_format());
            match gate.enter(request, &rendering) {
                GateDecision::Pass(pass) if pass.is_empty() => {}
                GateDecision::Pass(pass) => route.note_gate(&layers, at, pass),
                GateDecision::Respond(response) => {
                    return GateWalk::Respond(self.make_room_for_page(response, route));
                }
                GateDecision::Wait(wait) => {
                    return GateWalk::Hold(wait, layers, at.saturating_add(1));
                }
            }
        }
        route.note_extensions(request);
        GateWalk::Passed
    }

    /// Goes on with a request after a walk through gates.
    pub(super) fn follow_gates(
        self: &Rc<Self>,
        walk: GateWalk,
        mut request: Request,
        (captures, route): (Captures, &Rc<RequestRoute>),
    ) -> ResponseFuture {
        match walk {
            GateWalk::Passed => self.call_behind_rules(request, captures, route),
            GateWalk::Respond(response) => response.into(),
            GateWalk::At(layers, at) => {
                let target = LayeredTarget {
                    layers,
                    kind: TargetKind::Handler {
                        captures,
                        route: Rc::clone(route),
                    },
                };
                let position = Position::Inner(at, Box::new(target));
                let call = || Chain::call(Rc::clone(self), position, request);
                // The gates further out change the response to a panic, too.
                if route.has_gates() {
                    call_caught(call)
                } else {
                    call()
                }
            }
            GateWalk::Hold(wait, layers, next) => {
                let (site, route) = (Rc::clone(self), Rc::clone(route));
                ResponseFuture::later(async move {
                    let pass = match wait.await {
                        Ok(pass) => pass,
                        Err(response) => return site.make_room_for_page(response, &route),
                    };
                    route.note_gate(&layers, next.saturating_sub(1), pass);
                    let walk = site.enter_gates((layers, next), &mut request, &route);
                    let response = site.follow_gates(walk, request, (captures, &route));
                    response.wait().await
                })
            }
        }
    }

    /// Calls the handler of a location whose layers the request has passed. As layers may wait, this runs at any time after
    /// [`Self::enter_layers`] has returned.
    fn call_behind_layers(self: &Rc<Self>, target: TargetKind, request: Request) -> ResponseFuture {
        let (captures, route) = match target {
            TargetKind::Response(response) => return response.into(),
            TargetKind::Handler { captures, route } => (captures, route),
        };
        route.note_extensions(&request);
        self.call_behind_rules(request, captures, &route)
    }

    /// Changes the response to a request as the gates say that it has passed, the last one first.
    pub(super) fn leave_gates(route: &RequestRoute, response: &mut Response) {
        for (layers, at, pass) in route.take_gates() {
            let gate = layers.get(at).and_then(Layer::gate);
            pass.leave(response, |quota, response| {
                if let Some(gate) = gate {
                    gate.write_quota(quota, response);
                }
            });
        }
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
        let layers = location.layers.iter().filter(is_called).cloned();
        let target = LayeredTarget {
            layers: layers.collect(),
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
        let response = Rendering::for_client(context.error_format).apply(response);
        self.make_room_for_page(response, &context.route)
    }

    /// Removes the body of an error that has an error page of the site.
    fn make_room_for_page(&self, mut response: Response, route: &RequestRoute) -> Response {
        let pages = &self.location(route).error_pages;
        if !pages.is_empty() && pages.contains_key(&response.status()) {
            clear_body(&mut response);
        }
        response
    }
}

#[inline]
fn note_layer(layer: &Layer, request: &Request) {
    trace::note(request, || {
        let what = format!("layer {}", layer.name());
        Step::new(StepKind::Handler, what, "the location has it")
    });
}

impl Chain for SiteState {
    fn call(self: Rc<Self>, position: Position, mut request: Request) -> ResponseFuture {
        let Position::Inner(index, target) = position else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        let Ok(target) = target.downcast::<LayeredTarget>() else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        let layers = Rc::clone(&target.layers);
        let Some(layer) = layers.get(index) else {
            return self.call_behind_layers(target.kind, request);
        };
        if layer.gate().is_some()
            && let TargetKind::Handler { captures, route } = target.kind
        {
            let walk = self.enter_gates((layers, index), &mut request, &route);
            return self.follow_gates(walk, request, (captures, &route));
        }
        note_layer(layer, &request);
        let position = Position::Inner(index.saturating_add(1), target);
        layer.call(request, Next::new(self, position))
    }

    fn route<'c>(&'c self, _: &'c Position, _: &Request) -> Option<&'c str> {
        None
    }

    fn errors(&self, _: &Position, _: &Request) -> &ErrorRules {
        &self.layer_errors
    }
}
