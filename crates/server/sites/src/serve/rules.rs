//! Rules of the server, of a site and of its locations, and its challenge, on the way of a request and of its response.

use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_conditions::RequestFacts;
use apus_http::{Request, RequestEvent, Response};
use apus_transport::coarse_now;

use super::route::{RequestRoute, RouteRules};
use super::{RequestState, SiteState};
use crate::rules::{RuleResult, RuleScope, WorkerRules};

impl SiteState {
    /// For how long rules hold a request from now on.
    pub(super) fn take_delay(&self, route: &RequestRoute) -> Duration {
        if self.has_rules {
            route.take_delay()
        } else {
            Duration::ZERO
        }
    }

    /// When a request began, if a rule for responses or the challenge may ask.
    pub(super) fn rules_since(&self) -> Option<Instant> {
        self.has_last_steps.then(coarse_now)
    }

    /// Applies the rules and the challenge that come before the location. A response ends the way of the request.
    pub(super) fn apply_first_rules(
        &self,
        request: &mut Request,
        route: &RequestRoute,
    ) -> Option<Response> {
        let mut response = None;
        // Requests for error pages, and those that applications redirect, have passed them.
        if !route.is_internal.get() && !route.skips_layers {
            response = self.apply_rules(&self.rules, request, route);
            if let (Some(challenge), None) = (&self.challenge, &response) {
                let mut state = route.rules.borrow_mut();
                let state = state.get_or_insert_with(Box::<RouteRules>::default);
                if !state.is_allowed {
                    let decision = challenge.check(request, None);
                    response = state.changes.note_challenge(decision);
                    if response.is_some() {
                        let why = "the client has to solve the challenge of the site";
                        request.note(|| RequestEvent::decided("challenge", why));
                    }
                }
            }
        }
        self.note_for_response_rules(request, route);
        response
    }

    /// Applies the rules of the location that a request is in.
    pub(super) fn apply_location_rules(
        &self,
        request: &mut Request,
        route: &RequestRoute,
    ) -> LocationRules {
        let rules = &self.location(route).rules;
        if rules.is_empty() || route.skips_layers {
            return LocationRules::Stay;
        }
        if let Some(state) = &mut *route.rules.borrow_mut() {
            state.changes.is_rewritten = false;
        }
        let response = self.apply_rules(rules, request, route);
        self.note_for_response_rules(request, route);
        let state = route.rules.borrow();
        let is_rewritten = state
            .as_ref()
            .is_some_and(|state| state.changes.is_rewritten || state.changes.location.is_some());
        match response {
            Some(response) => LocationRules::Respond(response),
            None if is_rewritten => LocationRules::Again,
            None => LocationRules::Stay,
        }
    }

    fn apply_rules(
        &self,
        rules: &[WorkerRules],
        request: &mut Request,
        route: &RequestRoute,
    ) -> Option<Response> {
        for rules in rules {
            if route.is_allowed_by_rules() {
                return None;
            }
            // Most requests meet no rule: nothing is made for them.
            let Some(candidates) = rules.candidates(request) else {
                continue;
            };
            let scope = RuleScope {
                site: &self.name,
                root: &self.location(route).root,
                bans: self.bans.as_deref(),
                challenge: self.challenge.as_ref(),
            };
            let mut state = route.rules.borrow_mut();
            let state = state.get_or_insert_with(Box::<RouteRules>::default);
            match rules.run(candidates, request, (scope, &mut state.changes)) {
                RuleResult::Pass => {}
                RuleResult::Allow => state.is_allowed = true,
                RuleResult::Respond(response) => return Some(response),
            }
        }
        None
    }

    fn note_for_response_rules(&self, request: &Request, route: &RequestRoute) {
        if self.has_last_steps {
            let mut state = route.rules.borrow_mut();
            let state = state.get_or_insert_with(Box::<RouteRules>::default);
            let mut copy = request.without_body();
            *copy.extensions_mut() = request.extensions().clone();
            state.request = Some(copy);
        }
    }

    /// Applies the challenge that an application asks for, and the rules for responses, those of the location first.
    pub(super) fn apply_response_rules(
        self: &Rc<Self>,
        context: &mut RequestState,
        mut response: Response,
    ) -> Response {
        let Some(since) = context.rules_since.take() else {
            return response;
        };
        let route = &context.route;
        let mut state = route.rules.borrow_mut();
        let Some(state) = &mut *state else {
            return response;
        };
        let Some(mut request) = state.request.take() else {
            return response;
        };
        if let Some(challenge) = &self.challenge
            && !state.changes.is_challenged
        {
            (response, state.changes.is_challenged) = challenge.complete(&mut request, response);
        }
        let location = self.location(route);
        let scope = RuleScope {
            site: &self.name,
            root: &location.root,
            bans: self.bans.as_deref(),
            challenge: self.challenge.as_ref(),
        };
        let time = coarse_now().saturating_duration_since(since);
        for rules in location.rules.iter().chain(self.rules.iter()) {
            let answered = (&response, time);
            match rules.run_on_response(&mut request, answered, scope, &mut state.changes) {
                RuleResult::Pass => {}
                RuleResult::Allow => break,
                RuleResult::Respond(other) => response = other,
            }
        }
        if let Some(condition) = &self.observed_when {
            let facts = RequestFacts::new(&request).with_response(&response, time);
            state.changes.is_unlogged |= !condition.holds(&facts);
        }
        state.request = Some(request);
        response
    }
}

/// What the rules of a location decided.
pub(super) enum LocationRules {
    /// The request stays in the location.
    Stay,
    /// The request has another path, or another location was chosen: its location is looked for again.
    Again,
    /// The client gets this response.
    Respond(Response),
}
