//! Gates: layers that decide about a request when it comes, and have no part in what follows but to change its response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use apus_http::{Request, Response};

use crate::rendering::Rendering;

/// A layer that lets a request pass, holds it first, or responds itself, such as a limit. A chain that knows that it is one, by its
/// `hook`, moves the request nowhere for it, and makes no `Next` and no future.
pub trait Gate {
    /// Decides about a request. `rendering` is the format of the responses to its errors.
    fn enter(
        &self,
        request: &mut Request,
        rendering: &dyn Fn(&Request) -> Rendering,
    ) -> GateDecision;

    /// Writes the fields that tell what is left of a quota into the response to a request that it let pass.
    fn write_quota(&self, _quota: &QuotaLeft, _response: &mut Response) {}
}

/// What a gate decided about a request.
pub enum GateDecision {
    /// It goes on.
    Pass(GatePass),
    /// The client gets this response.
    Respond(Response),
    /// It has to wait until this future decides.
    Wait(GateWait),
}

/// Waits, and then decides about a request: it goes on, or the client gets a response.
pub type GateWait = Pin<Box<dyn Future<Output = Result<GatePass, Response>>>>;

/// Changes a response.
pub type ResponseChange = Box<dyn FnOnce(&mut Response)>;

/// What a gate has to do with the response to a request that it let pass. It is dropped if the request ends without one.
#[derive(Default)]
pub struct GatePass {
    /// What is left of a quota, for [`Gate::write_quota`].
    pub quota: Option<QuotaLeft>,
    /// What else changes the response.
    pub change: Option<ResponseChange>,
}

/// What is left of a quota.
#[derive(Clone, Copy, Debug)]
pub struct QuotaLeft {
    /// The number of the quota, of those that the gate has.
    pub quota: usize,
    /// The partition that the request belongs to, if the client has to be told.
    pub partition: Option<u64>,
    /// The units that are left.
    pub left: u64,
    /// When the whole quota is there again.
    pub reset: Option<Duration>,
}

impl GatePass {
    /// Whether the response stays as it is.
    pub fn is_empty(&self) -> bool {
        self.quota.is_none() && self.change.is_none()
    }

    /// Changes the response to the request; `write_quota` is the function of the gate.
    pub fn leave(
        self,
        response: &mut Response,
        write_quota: impl FnOnce(&QuotaLeft, &mut Response),
    ) {
        if let Some(change) = self.change {
            change(response);
        }
        if let Some(quota) = &self.quota {
            write_quota(quota, response);
        }
    }
}

impl fmt::Debug for GatePass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatePass")
            .field("quota", &self.quota)
            .finish_non_exhaustive()
    }
}
