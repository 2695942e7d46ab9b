//! Rules as a layer around an application, or around any service.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use apus_handler::error_page::{error_page, lacks_body};
use apus_handler::middleware::{Middleware, Next};
use apus_http::{Request, Response, ResponseFuture};
use apus_transport::coarse_now;

use super::run::{ChangesByRules, RuleResult, RuleScope, WorkerRules};
use super::{RuleSet, Rules};
use crate::template::DocumentRoot;

thread_local! {
    /// The rules of this worker, each with its own counters.
    static WORKER: RefCell<Vec<(Weak<RuleSet>, WorkerRules)>> = const { RefCell::new(Vec::new()) };
}

impl Rules {
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

/// In a layer, variables such as `$document_root` are empty, and [`RuleAction::NoLog`](super::RuleAction::NoLog) and
/// [`RuleAction::Ban`](super::RuleAction::Ban) have no effect.
impl Middleware<()> for Rules {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let rules = self.of_worker();
        let place: Arc<str> = Arc::clone(&self.0.place);
        let root = DocumentRoot::default();
        let scope = RuleScope {
            site: &place,
            root: &root,
            bans: None,
        };
        let mut changes = ChangesByRules::default();
        let response = match rules.run(&mut request, scope, &mut changes) {
            RuleResult::Respond(response) => {
                return changed(with_page(&request, response), &changes).into();
            }
            RuleResult::Allow => None,
            RuleResult::Pass => rules.are_for_responses().then(|| {
                let mut copy = request.without_body();
                *copy.extensions_mut() = request.extensions().clone();
                (copy, coarse_now())
            }),
        };
        next.call(request).map(move |mut made| {
            if let Some((mut request, since)) = response {
                let time = coarse_now().saturating_duration_since(since);
                let root = DocumentRoot::default();
                let scope = RuleScope {
                    site: &place,
                    root: &root,
                    bans: None,
                };
                let result =
                    rules.run_on_response(&mut request, (&made, time), scope, &mut changes);
                if let RuleResult::Respond(other) = result {
                    made = with_page(&request, other);
                }
            }
            changed(made, &changes)
        })
    }
}

/// Gives an error its page.
fn with_page(request: &Request, response: Response) -> Response {
    if lacks_body(&response) {
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
