//! Rules on one worker: which of them apply to a request, and what they do to it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use apus_access::Bans;
use apus_conditions::{ConditionIndex, RequestFacts, RequestVariables, Tags};
use apus_handler::middleware::Layer;
use apus_http::trace::{self, Step, StepKind, Trace};
use apus_http::{NotCached, Request, RequestEvent, Response, RuleChoice, StatusCode};
use apus_layers::{BrowserChallenge, ChallengeDecision, ChallengeDemand};

use super::{Rule, RuleAction, Rules};
use crate::fields::FieldChange;
use crate::template::{Captures, DocumentRoot, ValueEncoding, VariableScope};

/// How many chains a request may be in at once. A chain that jumps to itself ends there.
const MAX_CHAINS: usize = 16;

/// What the rules of a place decided about a request.
pub(crate) enum RuleResult {
    /// Nothing that ends its way: the rules of the next place are asked.
    Pass,
    /// Rules of other places are not asked.
    Allow,
    /// The client gets this response.
    Respond(Response),
}

/// What rules change of the response to a request.
#[derive(Debug, Default)]
pub(crate) struct ChangesByRules {
    /// Changes of fields of the response.
    pub(crate) response_fields: Vec<FieldChange>,
    /// Whether the request is left out of the log.
    pub(crate) is_unlogged: bool,
    /// Whether the request got another path.
    pub(crate) is_rewritten: bool,
    /// For how long the request, or its response, is held next.
    pub(crate) delay: Duration,
    /// The location that serves the request next.
    pub(crate) location: Option<Arc<str>>,
    /// The layers that the request meets before those of its location.
    pub(crate) layers: Vec<Layer>,
    /// The `Set-Cookie` lines for a client that has passed a challenge.
    pub(crate) set_cookies: Vec<String>,
    /// Whether the response is the one of a challenge, which sets all its fields itself.
    pub(crate) is_challenged: bool,
}

impl ChangesByRules {
    /// Notes what a challenge decided, and returns the response that ends the way of the request.
    pub(crate) fn note_challenge(&mut self, decision: ChallengeDecision) -> Option<Response> {
        match decision {
            ChallengeDecision::Pass(lines) => {
                self.set_cookies.extend(lines);
                None
            }
            ChallengeDecision::Respond(response) => {
                self.is_challenged = true;
                Some(response)
            }
        }
    }
}

/// What variables of rules refer to.
#[derive(Clone, Copy)]
pub(crate) struct RuleScope<'a> {
    pub(crate) site: &'a str,
    pub(crate) root: &'a DocumentRoot,
    /// Where clients are banned; a service that is no site has none.
    pub(crate) bans: Option<&'a Bans>,
    /// What challenges clients; a service that is no site has none.
    pub(crate) challenge: Option<&'a BrowserChallenge>,
}

/// Rules on one worker.
#[derive(Clone)]
pub(crate) struct WorkerRules {
    rules: Rules,
    /// What this worker needs of the rules, and of each chain.
    lists: Rc<(WorkerList, Vec<WorkerList>)>,
}

/// What a worker needs of a list of rules.
struct WorkerList {
    /// The counter of each rule.
    counters: Vec<Arc<AtomicU64>>,
    for_requests: RuleIndex,
    for_responses: RuleIndex,
    /// The memory of the candidates of the last request.
    candidates: RefCell<Vec<usize>>,
}

/// The rules of a list that are for requests, or those that are for responses.
struct RuleIndex {
    conditions: ConditionIndex,
    /// Where each of them is in the list; `None` if all rules are of this kind.
    positions: Option<Vec<usize>>,
}

impl WorkerList {
    fn new(rules: &Rules, list: &[Rule]) -> Self {
        let set = &rules.0;
        let counters = list.iter();
        Self {
            counters: counters
                .map(|rule| set.counters.counter(&set.place, &rule.name))
                .collect(),
            for_requests: RuleIndex::new(list, false),
            for_responses: RuleIndex::new(list, true),
            candidates: RefCell::default(),
        }
    }
}

impl RuleIndex {
    fn new(list: &[Rule], is_for_responses: bool) -> Self {
        let rules = list.iter().enumerate();
        let (positions, own): (Vec<usize>, Vec<&Rule>) = rules
            .filter(|(_, rule)| rule.is_for_responses == is_for_responses)
            .unzip();
        Self {
            conditions: ConditionIndex::new(own.iter().map(|rule| rule.condition.as_ref())),
            positions: (own.len() < list.len()).then_some(positions),
        }
    }

    /// The positions in the list of the rules that may apply, in their order, in place of what `found` has.
    fn candidates(&self, facts: &RequestFacts<'_>, found: &mut Vec<usize>) {
        self.conditions.candidates(facts, found);
        if let Some(positions) = &self.positions {
            for at in found {
                *at = positions.get(*at).copied().unwrap_or(usize::MAX);
            }
        }
    }
}

/// What a list of rules decided.
enum ChainResult {
    /// Its end was reached, or a rule left it.
    End,
    Allow,
    Respond(Response),
}

impl WorkerRules {
    pub(crate) fn new(rules: &Rules) -> Self {
        let set = &rules.0;
        let chains = set.chains.iter();
        let chains = chains.map(|(_, list)| WorkerList::new(rules, list));
        Self {
            rules: rules.clone(),
            lists: Rc::new((WorkerList::new(rules, &set.rules), chains.collect())),
        }
    }

    /// The scope of the rules where they are a layer.
    pub(super) fn scope_in_layer<'a>(&'a self, root: &'a DocumentRoot) -> RuleScope<'a> {
        self.rules.scope(root)
    }

    pub(crate) fn are_for_responses(&self) -> bool {
        self.rules.are_for_responses()
    }

    /// The rules that may apply to a request. `None` if there are none, so that [`WorkerRules::run`] would do nothing.
    pub(crate) fn candidates(&self, request: &Request) -> Option<RuleCandidates> {
        let list = &self.lists.0;
        let candidates = list.candidates_for(request);
        // A trace says why the first rule does not apply.
        if candidates.is_empty() && Trace::of(request).is_none() {
            list.candidates.replace(candidates);
            return None;
        }
        Some(RuleCandidates(candidates))
    }

    /// Applies the rules for requests.
    pub(crate) fn run(
        &self,
        candidates: RuleCandidates,
        request: &mut Request,
        (scope, changes): (RuleScope<'_>, &mut ChangesByRules),
    ) -> RuleResult {
        let mut run = Run {
            worker: self,
            scope,
            changes,
            depth: 0,
        };
        let list = (&*self.rules.0.rules, &self.lists.0);
        match run.list(list, candidates, request) {
            ChainResult::End => RuleResult::Pass,
            ChainResult::Allow => RuleResult::Allow,
            ChainResult::Respond(response) => RuleResult::Respond(response),
        }
    }

    /// Applies the rules for responses. `Some` is a response in its place.
    pub(crate) fn run_on_response(
        &self,
        request: &mut Request,
        (response, time): (&Response, Duration),
        scope: RuleScope<'_>,
        changes: &mut ChangesByRules,
    ) -> RuleResult {
        let (rules, list) = (&self.rules.0.rules, &self.lists.0);
        let find = |request: &Request, found: &mut Vec<usize>| {
            let facts = RequestFacts::new(request).with_response(response, time);
            list.for_responses.candidates(&facts, found);
        };
        let mut candidates = list.candidates.take();
        find(request, &mut candidates);
        let (mut at, mut result) = (0, RuleResult::Pass);
        while let Some(position) = candidates.get(at).copied() {
            at = at.saturating_add(1);
            let (Some(rule), Some(counter)) = (rules.get(position), list.counters.get(position))
            else {
                continue;
            };
            if !rule.holds(RequestFacts::new(request).with_response(response, time)) {
                continue;
            }
            counter.fetch_add(1, Ordering::Relaxed);
            rule.note(&self.rules.0.place, request);
            if rule.is_dry_run {
                continue;
            }
            let mut run = Run {
                worker: self,
                scope,
                changes: &mut *changes,
                depth: 0,
            };
            result = match run.apply(rule, request) {
                None => RuleResult::Pass,
                Some(ChainResult::End) => break,
                Some(ChainResult::Allow) => RuleResult::Allow,
                Some(ChainResult::Respond(other)) => RuleResult::Respond(other),
            };
            if !matches!(result, RuleResult::Pass) {
                break;
            }
            if rule.changes_requests() {
                find(request, &mut candidates);
                at = candidates.partition_point(|other| *other <= position);
            }
        }
        list.candidates.replace(candidates);
        result
    }
}

/// The positions of the rules that may apply to a request.
pub(crate) struct RuleCandidates(Vec<usize>);

impl WorkerList {
    fn candidates_for(&self, request: &Request) -> Vec<usize> {
        // A chain that jumps to itself has its own candidates.
        let mut found = self.candidates.take();
        self.for_requests
            .candidates(&RequestFacts::new(request), &mut found);
        found
    }
}

struct Run<'a> {
    worker: &'a WorkerRules,
    scope: RuleScope<'a>,
    changes: &'a mut ChangesByRules,
    depth: usize,
}

impl<'a> Run<'a> {
    /// Asks the rules of a chain.
    fn chain(&mut self, name: &str, request: &mut Request) -> ChainResult {
        let worker: &'a WorkerRules = self.worker;
        let mut chains = worker.rules.0.chains.iter().zip(&worker.lists.1);
        match chains.find(|((known, _), _)| **known == *name) {
            Some(((_, rules), list)) => {
                let candidates = RuleCandidates(list.candidates_for(request));
                self.list((rules, list), candidates, request)
            }
            None => ChainResult::End,
        }
    }

    /// Asks the candidates of a list.
    fn list(
        &mut self,
        (rules, list): (&[Rule], &WorkerList),
        RuleCandidates(mut candidates): RuleCandidates,
        request: &mut Request,
    ) -> ChainResult {
        if Trace::of(request).is_some() {
            note_first_refusal(rules, &self.worker.rules.0.place, request);
        }
        let result = self.candidates((rules, list), &mut candidates, request);
        list.candidates.replace(candidates);
        result
    }

    /// Asks the rules at these positions.
    fn candidates(
        &mut self,
        (rules, list): (&[Rule], &WorkerList),
        candidates: &mut Vec<usize>,
        request: &mut Request,
    ) -> ChainResult {
        let mut at = 0;
        while let Some(position) = candidates.get(at).copied() {
            at = at.saturating_add(1);
            let (Some(rule), Some(counter)) = (rules.get(position), list.counters.get(position))
            else {
                continue;
            };
            if !rule.holds(RequestFacts::new(request)) {
                continue;
            }
            counter.fetch_add(1, Ordering::Relaxed);
            rule.note(&self.worker.rules.0.place, request);
            if rule.is_dry_run {
                continue;
            }
            if let Some(result) = self.apply(rule, request) {
                return result;
            }
            // Other conditions may hold for the changed request.
            if rule.changes_requests() {
                list.for_requests
                    .candidates(&RequestFacts::new(request), candidates);
                at = candidates.partition_point(|other| *other <= position);
            }
        }
        ChainResult::End
    }

    /// Does what a rule says; `Some` ends the chain.
    fn apply(&mut self, rule: &Rule, request: &mut Request) -> Option<ChainResult> {
        for action in &rule.actions {
            match action {
                RuleAction::Allow => return Some(ChainResult::Allow),
                RuleAction::Leave => return Some(ChainResult::End),
                RuleAction::Respond(handler) => {
                    let response = self.with_scope(request, |scope| handler.respond(scope));
                    self.note_decision(rule, request);
                    return Some(ChainResult::Respond(response));
                }
                RuleAction::Close => {
                    self.note_decision(rule, request);
                    let mut response = Response::unsent();
                    // The connection of a proxy has other clients, too.
                    if !request.is_forwarded() {
                        response.set_ends_connection();
                    }
                    return Some(ChainResult::Respond(response));
                }
                RuleAction::Delay(time) => {
                    self.changes.delay = self.changes.delay.saturating_add(*time);
                }
                RuleAction::Location(location) => {
                    self.changes.location = Some(Arc::clone(location));
                }
                RuleAction::Upstream(name) => RuleChoice::set_upstream(request, name),
                RuleAction::Layer(layer) => self.changes.layers.push(layer.clone()),
                RuleAction::NoCache => {
                    request.extensions_mut().insert(NotCached);
                }
                RuleAction::Rewrite(target) => {
                    let uri = self.with_scope(request, |scope| target.target.expand_uri(scope));
                    if let Some(response) = self.rewrite(request, uri, target.has_query) {
                        return Some(ChainResult::Respond(response));
                    }
                }
                RuleAction::RequestField(change) => {
                    let change = self.with_scope(request, |scope| change.resolve(scope));
                    change.apply(request.headers_mut());
                }
                RuleAction::ResponseField(change) => {
                    let change = self.with_scope(request, |scope| change.resolve(scope));
                    self.changes.response_fields.push(change);
                }
                RuleAction::Tag(tag) => Tags::add(request, tag),
                RuleAction::Set(change) => {
                    let value = self.with_scope(request, |scope| {
                        change.value.expand(scope, ValueEncoding::Plain)
                    });
                    RequestVariables::set(request, &change.name, value);
                }
                RuleAction::Ban(time) => {
                    if let (Some(bans), Some(client)) = (self.scope.bans, request.client().ip) {
                        bans.ban(client, *time, &format!("rule {}", rule.name));
                    }
                }
                RuleAction::Challenge => {
                    if let Some(response) = self.challenge(rule, request) {
                        return Some(ChainResult::Respond(response));
                    }
                }
                RuleAction::NoLog => self.changes.is_unlogged = true,
                RuleAction::Jump(chain) => {
                    self.depth = self.depth.saturating_add(1);
                    if self.depth > MAX_CHAINS {
                        tracing::error!(
                            place = &*self.worker.rules.0.place,
                            chain = &**chain,
                            "chains of rules jump to one another in a loop"
                        );
                        let status = StatusCode::INTERNAL_SERVER_ERROR;
                        return Some(ChainResult::Respond(Response::new(status)));
                    }
                    let result = self.chain(chain, request);
                    self.depth = self.depth.saturating_sub(1);
                    match result {
                        ChainResult::End => {}
                        other => return Some(other),
                    }
                }
            }
        }
        None
    }

    /// Challenges a client; a response unless it has passed.
    fn challenge(&mut self, rule: &Rule, request: &mut Request) -> Option<Response> {
        let Some(challenge) = self.scope.challenge else {
            return Some(Response::new(StatusCode::FORBIDDEN));
        };
        let demand = ChallengeDemand {
            level: None,
            by: &rule.name,
        };
        let decision = challenge.check(request, Some(demand));
        let response = self.changes.note_challenge(decision);
        if response.is_some() {
            self.note_decision(rule, request);
        }
        response
    }

    /// Notes that a rule responds.
    fn note_decision(&self, rule: &Rule, request: &Request) {
        request.note(|| {
            let by = format!("rule {}", rule.name);
            RequestEvent::decided(by, format!("a rule of {}", self.worker.rules.0.place))
        });
    }

    /// Gives a request another path; a response if it is none.
    fn rewrite(
        &mut self,
        request: &mut Request,
        uri: Vec<u8>,
        has_query: bool,
    ) -> Option<Response> {
        let target = String::from_utf8(uri).ok().map(|mut target| {
            if let (false, Some(query)) = (has_query, request.query()) {
                target.push('?');
                target.push_str(query);
            }
            target
        });
        let is_set = target.is_some_and(|target| request.set_path_and_query(&target).is_ok());
        if !is_set {
            return Some(Response::new(StatusCode::BAD_REQUEST));
        }
        self.changes.is_rewritten = true;
        None
    }

    fn with_scope<T>(&self, request: &Request, then: impl FnOnce(&VariableScope<'_>) -> T) -> T {
        then(&VariableScope {
            request,
            path: request.normal_path().unwrap_or_default(),
            site: self.scope.site,
            root: self.scope.root,
            captures: &Captures::default(),
        })
    }
}

impl Rule {
    fn holds(&self, facts: RequestFacts<'_>) -> bool {
        let condition = self.condition.as_ref();
        condition.is_none_or(|condition| condition.holds(&facts))
    }

    /// Whether later conditions may hold that did not before.
    fn changes_requests(&self) -> bool {
        self.actions.iter().any(|action| {
            matches!(
                action,
                RuleAction::Rewrite(_)
                    | RuleAction::RequestField(_)
                    | RuleAction::Tag(_)
                    | RuleAction::Set(_)
                    | RuleAction::Jump(_)
            )
        })
    }

    /// Notes why the rule does not apply.
    fn note_why_not(&self, place: &str, request: &Request) {
        trace::note(request, || {
            let condition = self.condition.as_ref();
            let why = condition.map(|condition| condition.why_not(&RequestFacts::new(request)));
            let what = format!("{place}: {} does not apply", self.name);
            Step::new(StepKind::Rule, what, why.unwrap_or_default())
        });
    }

    fn note(&self, place: &Arc<str>, request: &Request) {
        request.note(|| RequestEvent::Rule {
            place: Arc::clone(place),
            name: Arc::clone(&self.name),
            is_dry_run: self.is_dry_run,
        });
        trace::note(request, || {
            let actions: Vec<_> = self.actions.iter().map(RuleAction::title).collect();
            let actions = actions.join(", ");
            let what = if self.is_dry_run {
                format!("{place}: {}: would {actions} (dry run)", self.name)
            } else {
                format!("{place}: {}: {actions}", self.name)
            };
            let why = if self.condition.is_some() {
                "its condition holds"
            } else {
                "it has no condition"
            };
            Step::new(StepKind::Rule, what, why)
        });
    }
}

/// Notes why the first rule that does not apply does not.
fn note_first_refusal(rules: &[Rule], place: &str, request: &Request) {
    let refused = rules
        .iter()
        .find(|rule| !rule.is_for_responses && !rule.holds(RequestFacts::new(request)));
    if let Some(rule) = refused {
        rule.note_why_not(place, request);
    }
}
