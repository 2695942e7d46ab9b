//! `RequestRoute`: what is known of a request on its way through a site, up to the end of its response.

use std::cell::{Cell, RefCell};
use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_compress::{CodingRule, EncodingNegotiation, RequestCodingRule};
use apus_handler::gate::GatePass;
use apus_handler::middleware::Layer;
use apus_http::{Request, Response};

use crate::fields::FieldChange;
use crate::rules::ChangesByRules;

/// How often a request may be sent to another location before it is rejected as a loop.
const MAX_VISITS: usize = 10;

/// The most routes of completed requests that a worker keeps for each site.
const MAX_SPARE_ROUTES: usize = 64;

/// The location of a request, and what the response needs of it.
///
/// Layers may keep a request and pass it on later, or respond themselves at any time. So the part of the site that has the
/// request writes here, and the part that completes the response reads what is known by then.
#[derive(Default)]
pub(super) struct RequestRoute {
    /// The index of the location; `None` is the site outside of all locations.
    pub(super) location: Cell<Option<usize>>,
    /// Whether the request was redirected internally.
    pub(super) is_internal: Cell<bool>,
    /// Whether no layer sees the request, because it is for an error page.
    pub(super) skips_layers: bool,
    /// Whether the response is the one of the site's maintenance.
    pub(super) is_in_maintenance: bool,
    /// The number of locations that the request was sent to.
    visits: Cell<usize>,
    /// The layers that the request has passed, of each location.
    passed_layers: RefCell<Vec<PassedLayers>>,
    /// What the gates of these that let the request pass do to its response, with their lists and positions.
    gates: RefCell<Vec<(PassedLayers, usize, GatePass)>>,
    /// The changes of response fields, if they depend on the request.
    pub(super) changes: RefCell<Option<Vec<FieldChange>>>,
    pub(super) compression: Cell<Option<EncodingNegotiation>>,
    /// A copy of the request without its body, for an internal redirect.
    pub(super) redirect_copy: Cell<Option<Box<Request>>>,
    /// What rules did, if there are any.
    pub(super) rules: RefCell<Option<Box<RouteRules>>>,
}

/// Layers that a request passes.
pub(super) type PassedLayers = Rc<[Layer]>;

/// What rules did to a request, and what those for its response need.
#[derive(Default)]
pub(super) struct RouteRules {
    pub(super) changes: ChangesByRules,
    /// Whether a rule allowed the request, so that no other is asked.
    pub(super) is_allowed: bool,
    /// A copy of the request without its body, if there are rules for responses.
    pub(super) request: Option<Request>,
    /// What lets the response of a service be compressed, besides `Accept-Encoding`.
    coding_rule: Option<Box<RequestCodingRule>>,
}

impl RequestRoute {
    /// Counts one more location; false if the rules of the site redirect the request in a loop.
    pub(super) fn count_visit(&self) -> bool {
        let visits = self.visits.get();
        self.visits.set(visits.saturating_add(1));
        visits < MAX_VISITS
    }

    /// Whether the request passed a layer in a location that redirected it.
    pub(super) fn has_passed(&self, layer: &Layer) -> bool {
        let passed = self.passed_layers.borrow();
        passed
            .iter()
            .flat_map(|layers| layers.iter())
            .any(|passed| passed.is_same(layer))
    }

    /// Whether the request passed layers.
    pub(super) fn has_passed_any(&self) -> bool {
        !self.passed_layers.borrow().is_empty()
    }

    /// Notes that the request passes layers.
    pub(super) fn pass_layers(&self, layers: PassedLayers) -> PassedLayers {
        self.passed_layers.borrow_mut().push(Rc::clone(&layers));
        layers
    }

    /// Notes that a gate at this position of layers let the request pass.
    pub(super) fn note_gate(&self, layers: &PassedLayers, at: usize, pass: GatePass) {
        let mut gates = self.gates.borrow_mut();
        gates.push((Rc::clone(layers), at, pass));
    }

    /// Whether a gate changes the response.
    pub(super) fn has_gates(&self) -> bool {
        !self.gates.borrow().is_empty()
    }

    /// What the gates do to the response, the last one first.
    pub(super) fn take_gates(&self) -> impl Iterator<Item = (PassedLayers, usize, GatePass)> {
        // One at a time, so that the memory of the list stays here.
        std::iter::from_fn(|| self.gates.borrow_mut().pop())
    }

    /// Whether a rule allowed the request, so that no other is asked.
    pub(super) fn is_allowed_by_rules(&self) -> bool {
        let rules = self.rules.borrow();
        rules.as_ref().is_some_and(|rules| rules.is_allowed)
    }

    /// Whether the response is the one of a challenge.
    pub(super) fn is_challenged(&self) -> bool {
        let rules = self.rules.borrow();
        rules
            .as_ref()
            .is_some_and(|rules| rules.changes.is_challenged)
    }

    /// Notes what the layers attached to the request: it holds for an internal redirect, too.
    pub(super) fn note_extensions(&self, request: &Request) {
        if let Some(mut copy) = self.redirect_copy.take() {
            *copy.extensions_mut() = request.extensions().clone();
            self.redirect_copy.set(Some(copy));
        }
        if let Some(rules) = &mut *self.rules.borrow_mut()
            && let Some(copy) = &mut rules.request
        {
            *copy.extensions_mut() = request.extensions().clone();
        }
    }

    /// Notes the rule about the compression of the response, if the request has one.
    pub(super) fn note_coding_rule(&self, request: &Request) {
        let rule = CodingRule::of(request);
        if rule.is_some() {
            let mut rules = self.rules.borrow_mut();
            rules.get_or_insert_default().coding_rule = rule;
        }
    }

    /// Compresses a response of a service by the rule of its request.
    pub(super) fn compress_by_rule(
        &self,
        negotiation: EncodingNegotiation,
        response: &mut Response,
    ) {
        let rules = self.rules.borrow();
        let rule = rules
            .as_ref()
            .and_then(|rules| rules.coding_rule.as_deref());
        negotiation.apply_by(rule, response);
    }

    /// For how long rules hold the request, or its response, from now on.
    pub(super) fn take_delay(&self) -> Duration {
        let mut rules = self.rules.borrow_mut();
        let rules = rules.as_mut();
        rules.map_or(Duration::ZERO, |rules| take(&mut rules.changes.delay))
    }

    /// The location that rules chose for the request.
    pub(super) fn take_chosen_location(&self) -> Option<Arc<str>> {
        self.rules.borrow_mut().as_mut()?.changes.location.take()
    }

    /// Whether rules added layers.
    pub(super) fn has_layers_of_rules(&self) -> bool {
        let rules = self.rules.borrow();
        let rules = rules.as_ref();
        rules.is_some_and(|rules| !rules.changes.layers.is_empty())
    }

    /// The layers that rules added.
    pub(super) fn take_layers_of_rules(&self) -> Vec<Layer> {
        let mut rules = self.rules.borrow_mut();
        let rules = rules.as_mut();
        rules.map_or_else(Vec::new, |rules| take(&mut rules.changes.layers))
    }

    /// Forgets a request, but keeps the memory of the list of layers.
    // Field by field: what most requests leave as it was costs a comparison, and no destructor.
    fn clear(&mut self) {
        self.location.set(None);
        self.is_internal.set(false);
        self.skips_layers = false;
        self.is_in_maintenance = false;
        self.visits.set(0);
        self.compression.set(None);
        self.passed_layers.get_mut().clear();
        self.gates.get_mut().clear();
        if self.changes.get_mut().is_some() {
            self.changes.replace(None);
        }
        if self.rules.get_mut().is_some() {
            self.rules.replace(None);
        }
        if self.redirect_copy.get_mut().is_some() {
            self.redirect_copy.set(None);
        }
    }
}

/// The memory of routes whose responses are complete. A route has two owners if there are layers, and so it is on the heap;
/// without this each request would pay an allocation for that, also where there is no layer.
#[derive(Default)]
pub(super) struct SpareRoutes(RefCell<Vec<Rc<RequestRoute>>>);

impl SpareRoutes {
    /// The route of a request that begins.
    pub(super) fn begin(&self, set: impl FnOnce(&mut RequestRoute)) -> Rc<RequestRoute> {
        let spare = self.0.borrow_mut().pop();
        let mut route = spare.unwrap_or_default();
        // A spare route has no other owner.
        if let Some(route) = Rc::get_mut(&mut route) {
            set(route);
        }
        route
    }

    /// Keeps the memory of a route, unless a layer still owns it.
    pub(super) fn put_back(&self, mut route: Rc<RequestRoute>) {
        if let Some(spare) = Rc::get_mut(&mut route) {
            spare.clear();
            let mut routes = self.0.borrow_mut();
            if routes.len() < MAX_SPARE_ROUTES {
                routes.push(route);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_to_ten_locations_and_no_more() {
        let route = RequestRoute::default();
        let visits = (0..20).take_while(|_| route.count_visit());
        assert_eq!(visits.count(), MAX_VISITS);
    }

    #[test]
    fn a_spare_route_knows_nothing_of_the_request_before() {
        let spare = SpareRoutes::default();
        let route = spare.begin(|route| {
            route.skips_layers = true;
            route.is_in_maintenance = true;
        });
        route.location.set(Some(3));
        route.is_internal.set(true);
        route.changes.replace(Some(Vec::new()));
        route.count_visit();
        let memory = Rc::as_ptr(&route);
        spare.put_back(route);
        let route = spare.begin(|_| {});
        assert_eq!(Rc::as_ptr(&route), memory);
        assert_eq!((route.location.get(), route.visits.get()), (None, 0));
        assert!(!route.is_internal.get() && !route.skips_layers && !route.is_in_maintenance);
        assert!(route.changes.borrow().is_none());
    }

    #[test]
    fn a_route_that_a_layer_still_owns_is_not_used_again() {
        let spare = SpareRoutes::default();
        let route = spare.begin(|_| {});
        let owned = Rc::clone(&route);
        spare.put_back(route);
        assert!(!Rc::ptr_eq(&spare.begin(|_| {}), &owned));
    }

    #[test]
    fn no_more_than_the_limit_of_routes_is_kept() {
        let spare = SpareRoutes::default();
        let routes: Vec<_> = (0..=MAX_SPARE_ROUTES)
            .map(|_| spare.begin(|_| {}))
            .collect();
        for route in routes {
            spare.put_back(route);
        }
        assert_eq!(spare.0.borrow().len(), MAX_SPARE_ROUTES);
    }
}
