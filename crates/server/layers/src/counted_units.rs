//! What a limit counts: requests when they come, or responses, which are charged later.

use std::sync::Arc;
use std::time::Duration;

use apus_conditions::{Condition, RequestFacts};
use apus_http::{Request, Response};

/// What a limit counts.
#[derive(Clone, Debug)]
pub(crate) enum CountedUnits {
    /// Requests, when they come.
    Requests,
    /// Responses of which this holds, when they are known.
    Responses(Arc<Condition>),
    /// The bytes of the bodies of responses, of all or of those of which this holds, when they were sent.
    Bytes(Option<Arc<Condition>>),
}

impl CountedUnits {
    /// The unit of the quota in fields, if it is none of requests.
    pub(crate) fn unit(&self) -> Option<&'static str> {
        matches!(self, Self::Bytes(_)).then_some("content-bytes")
    }

    /// What they are called.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Responses(_) => "counted responses",
            Self::Bytes(_) => "bytes",
        }
    }

    /// What the response to a request will be charged for; `None` if requests are counted.
    pub(crate) fn charge<C: FnOnce(u64) + 'static>(
        &self,
        request: &Request,
        charge: impl FnOnce() -> C,
    ) -> Option<ResponseCharge<C>> {
        let needs_request = match self {
            Self::Requests => return None,
            Self::Responses(_) => true,
            Self::Bytes(condition) => condition.is_some(),
        };
        Some(ResponseCharge {
            request: needs_request.then(|| request.without_body()),
            began: apus_clock::monotonic(),
            counted: self.clone(),
            charge: charge(),
        })
    }
}

/// What a response is charged for.
pub(crate) struct ResponseCharge<C> {
    /// The request, for conditions.
    request: Option<Request>,
    began: Duration,
    counted: CountedUnits,
    /// Takes the units.
    charge: C,
}

impl<C: FnOnce(u64) + 'static> ResponseCharge<C> {
    pub(crate) fn of(self, response: &mut Response) {
        let condition = match &self.counted {
            CountedUnits::Requests => return,
            CountedUnits::Responses(condition) => Some(condition),
            CountedUnits::Bytes(condition) => condition.as_ref(),
        };
        let took = apus_clock::monotonic().saturating_sub(self.began);
        if let (Some(condition), Some(request)) = (condition, &self.request)
            && !condition.holds(&RequestFacts::new(request).with_response(response, took))
        {
            return;
        }
        let charge = self.charge;
        if matches!(self.counted, CountedUnits::Responses(_)) {
            charge(1);
        } else {
            response.on_complete(move |completion| charge(completion.body_bytes));
        }
    }
}
