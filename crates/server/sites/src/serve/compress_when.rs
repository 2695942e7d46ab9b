//! The condition for the compression of a site's responses.

use std::time::Duration;

use apus_compress::{CodingRule, refuse_codings};
use apus_conditions::{Condition, FactStage, RequestFacts};
use apus_http::Request;
use apus_http::trace::{self, Step, StepKind};

/// Which responses are compressed.
pub(super) struct CompressWhen {
    condition: Condition,
    /// The condition as a function of the response, if it is about that, too.
    rule: Option<CodingRule>,
}

impl CompressWhen {
    pub(super) fn new(condition: Condition) -> Self {
        let rule = (condition.stage() == FactStage::Response).then(|| {
            let condition = condition.clone();
            CodingRule::new(move |request, response| {
                let facts = RequestFacts::new(request).with_response(response, Duration::ZERO);
                let holds = condition.holds(&facts);
                if !holds {
                    note_why_not(&condition, request, &facts);
                }
                holds
            })
        });
        Self { condition, rule }
    }

    /// Prepares a request for its handler.
    ///
    /// Without facts of the response it is decided here, by the request that the handler gets: so a cache behind it does not find what
    /// was stored in a coding, an origin does not compress either, and nobody else has to know.
    pub(super) fn prepare(&self, request: &mut Request) {
        match &self.rule {
            Some(rule) => {
                request.extensions_mut().insert(rule.clone());
            }
            None => {
                let facts = RequestFacts::new(request);
                if !self.condition.holds(&facts) {
                    note_why_not(&self.condition, request, &facts);
                    refuse_codings(request);
                }
            }
        }
    }
}

fn note_why_not(condition: &Condition, request: &Request, facts: &RequestFacts<'_>) {
    trace::note(request, || {
        let why = condition.why_not(facts);
        Step::new(StepKind::Content, "no compression", why)
    });
}
