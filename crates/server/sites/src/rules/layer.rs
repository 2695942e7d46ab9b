//! Rules as a layer around an application, or around any service.

use std::cell::RefCell;
use std::mem::take;
use std::sync::{Arc, Weak};

use apus_handler::error_page::{error_page, lacks_body};
use apus_handler::middleware::{Middleware, Next};
use apus_http::{RemoteUserSlot, Request, Response, ResponseFuture};
use apus_transport::coarse_now;

use super::hold::Hold;
use super::run::{ChangesByRules, RuleResult, RuleScope, WorkerRules};
use super::{RuleSet, Rules};
use crate::refuse_banned;
use crate::template::DocumentRoot;

thread_local! {
    /// The rules of this worker, each with its own counters.
    static WORKER: RefCell<Vec<(Weak<RuleSet>, WorkerRules)>> = const { RefCell::new(Vec::new()) };
}

impl Rules {
    /// What variables refer to in a layer, and where it bans clients.
    pub(super) fn scope<'a>(&'a self, root: &'a DocumentRoot) -> RuleScope<'a> {
        RuleScope {
            site: &self.0.place,
            root,
            bans: self.0.bans.as_deref(),
            challenge: None,
        }
    }

    /// These rules on this worker.
    fn of_worker(&self) -> WorkerRules {
        WORKER.with_borrow_mut(|known| {
            let found = known
                .iter()
                .find(|(set, _)| std::ptr::eq(set.as_ptr(), Arc::as_ptr(&self.0)));
            if let Some((_, rules)) = found {
                return rules.clone();
            }
            let made = WorkerRules::new(self);
            known.push((Arc::downgrade(&self.0), made.clone()));
            made
        })
    }
}

/// In a layer, variables such as `$document_root` are empty, and [`RuleAction::NoLog`](super::RuleAction::NoLog),
/// [`RuleAction::Location`](super::RuleAction::Location) and [`RuleAction::Layer`](super::RuleAction::Layer) have no effect, and
/// [`RuleAction::Ban`](super::RuleAction::Ban) has one with [`Rules::bans`].
/// [`RuleAction::Challenge`](super::RuleAction::Challenge) refuses all clients with 403: an application has its challenge as a layer of its own.
impl Middleware<()> for Rules {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        if let Some(bans) = &self.0.bans
            && bans.has_any()
            && request.client().ip.is_some_and(|ip| bans.is_banned(ip))
        {
            return refuse_banned(&request, bans).into();
        }
        let rules = self.of_worker();
        let mut changes = ChangesByRules::default();
        let root = DocumentRoot::default();
        let result = match rules.candidates(&request) {
            Some(candidates) => {
                let scope = self.scope(&root);
                rules.run(candidates, &mut request, (scope, &mut changes))
            }
            None => RuleResult::Pass,
        };
        let is_allowed = matches!(result, RuleResult::Allow);
        let response = match result {
            RuleResult::Respond(response) => Some(response),
            RuleResult::Allow | RuleResult::Pass => None,
        };
        let delay = take(&mut changes.delay);
        let call = LayerCall {
            rules,
            is_allowed,
            changes,
        };
        if delay.is_zero() {
            return call.proceed(request, response, next);
        }
        match Hold::begin(&request) {
            Err(refusal) => call.proceed(request, Some(*refusal), next),
            Ok(hold) => ResponseFuture::later(async move {
                hold.wait(delay).await;
                call.proceed(request, response, next).wait().await
            }),
        }
    }
}

/// A request that the rules for requests were asked about.
struct LayerCall {
    rules: WorkerRules,
    is_allowed: bool,
    changes: ChangesByRules,
}

impl LayerCall {
    /// Responds, or passes the request on and asks the rules for responses.
    fn proceed(
        mut self,
        mut request: Request,
        response: Option<Response>,
        next: Next,
    ) -> ResponseFuture {
        if let Some(response) = response {
            return changed(with_page(&request, response), &self.changes).into();
        }
        if self.is_allowed || !self.rules.are_for_responses() {
            return next
                .call(request)
                .map(move |made| changed(made, &self.changes));
        }
        // A layer behind this one may authenticate the user.
        if request.extensions().get::<RemoteUserSlot>().is_none() {
            request.extensions_mut().insert(RemoteUserSlot::default());
        }
        let mut copy = request.without_body();
        *copy.extensions_mut() = request.extensions().clone();
        let since = coarse_now();
        let made = next.call(request);
        ResponseFuture::later(async move {
            let mut made = made.wait().await;
            let time = coarse_now().saturating_duration_since(since);
            let root = DocumentRoot::default();
            let scope = self.rules.scope_in_layer(&root);
            let result =
                (self.rules).run_on_response(&mut copy, (&made, time), scope, &mut self.changes);
            if let RuleResult::Respond(other) = result {
                made = with_page(&copy, other);
            }
            if !self.changes.delay.is_zero() {
                match Hold::begin(&copy) {
                    Ok(hold) => hold.wait(self.changes.delay).await,
                    Err(refusal) => made = with_page(&copy, *refusal),
                }
            }
            changed(made, &self.changes)
        })
    }
}

/// Gives an error its page.
fn with_page(request: &Request, response: Response) -> Response {
    if lacks_body(&response) && !response.is_unsent() {
        error_page(request, response.status())
    } else {
        response
    }
}

fn changed(mut response: Response, changes: &ChangesByRules) -> Response {
    for change in &changes.response_fields {
        change.apply(response.headers_mut());
    }
    response
}
