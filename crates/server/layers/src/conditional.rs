//! Layers for the requests that a condition holds for.

use std::fmt;

use apus_conditions::{Condition, RequestFacts};
use apus_handler::gate::{Gate, GateDecision, GatePass, QuotaLeft};
use apus_handler::middleware::{Hook, Layer};
use apus_handler::{Middleware, Next, Rendering, RouteCheck};
use apus_http::{Request, Response, ResponseFuture};

/// A layer that only the requests pass through for which a condition holds. Others go on behind it.
pub struct ConditionalLayer {
    condition: Condition,
    layer: Layer,
}

impl ConditionalLayer {
    /// The layer for these requests.
    pub fn new(condition: Condition, layer: impl Middleware<()>) -> Self {
        Self::around(condition, Layer::new(layer))
    }

    /// A layer that other places may have, too.
    pub fn around(condition: Condition, layer: Layer) -> Self {
        Self { condition, layer }
    }
}

impl Middleware<()> for ConditionalLayer {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        if self.condition.holds(&RequestFacts::new(&request)) {
            self.layer.call(request, next)
        } else {
            next.call(request)
        }
    }

    fn check(&self, route: &mut RouteCheck<'_>) {
        self.layer.check(route);
    }

    fn hook(&self) -> Option<Hook<'_>> {
        self.layer.gate().map(|_| Hook::Gate(self as &dyn Gate))
    }
}

impl Gate for ConditionalLayer {
    fn enter(
        &self,
        request: &mut Request,
        rendering: &dyn Fn(&Request) -> Rendering,
    ) -> GateDecision {
        match self.layer.gate() {
            Some(gate) if self.condition.holds(&RequestFacts::new(request)) => {
                gate.enter(request, rendering)
            }
            _ => GateDecision::Pass(GatePass::default()),
        }
    }

    fn write_quota(&self, quota: &QuotaLeft, response: &mut Response) {
        if let Some(gate) = self.layer.gate() {
            gate.write_quota(quota, response);
        }
    }
}

impl fmt::Debug for ConditionalLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConditionalLayer")
            .field(&self.layer.name())
            .finish()
    }
}
