//! The trace of a request: the one that a client began, or its own, and whether it is sampled.

use std::hash::{BuildHasher, RandomState};
use std::num::{NonZeroU64, NonZeroU128};

use http::StatusCode;
use std::time::Duration;

use crate::TraceContext;
use crate::request_id::RequestNumber;

/// Which requests are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSampling {
    /// Of 2^32 requests that begin a trace.
    chosen: u64,
    trusts_clients: bool,
}

impl TraceSampling {
    /// Samples this share of the traces that begin here, from 0 to 1. A trace that continues is sampled if it was before.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn new(share: f64) -> Self {
        Self {
            chosen: (share.clamp(0.0, 1.0) * 4_294_967_296.0) as u64,
            trusts_clients: false,
        }
    }

    /// Continues the traces of all clients, and not only of trusted proxies.
    #[must_use]
    pub fn trust_clients(mut self, trusts_clients: bool) -> Self {
        self.trusts_clients = trusts_clients;
        self
    }

    pub(crate) fn trusts_clients(self) -> bool {
        self.trusts_clients
    }

    /// Whether a trace that begins is sampled, by a random number.
    pub(crate) fn chooses(self, random: u64) -> bool {
        random >> 32 < self.chosen
    }
}

/// Random numbers for choices that need not be secret (xorshift64*).
#[derive(Debug)]
pub(crate) struct ChoiceNumbers(u64);

impl ChoiceNumbers {
    pub(crate) fn new(secret: &RandomState) -> Self {
        Self(secret.hash_one("choices") | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// What the record of a request has of its trace. The rest is made of its id.
#[derive(Debug)]
pub(crate) struct RecordedTrace {
    /// The context that the client sent.
    pub(crate) parent: Option<TraceContext>,
    pub(crate) is_sampled: bool,
}

impl RecordedTrace {
    /// The trace of the request with this number on the thread with this secret.
    pub(crate) fn of(&self, number: &RequestNumber, secret: &RandomState) -> RequestTrace {
        let span_id = number.half_by(secret, 2);
        let span_id = NonZeroU64::new(span_id).unwrap_or(NonZeroU64::MIN);
        let own = || NonZeroU128::new(number.trace_id_by(secret)).unwrap_or(NonZeroU128::MIN);
        let context = match &self.parent {
            Some(parent) => parent.child(span_id).sampled(self.is_sampled),
            None => TraceContext::new(own(), span_id, self.is_sampled),
        };
        RequestTrace {
            context,
            parent: self.parent.as_ref().map(TraceContext::span_id),
        }
    }
}

/// Where a request belongs in a distributed trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTrace {
    /// The context of its own span, which origins get.
    pub context: TraceContext,
    /// The span of the client; `None`: the trace begins here.
    pub parent: Option<NonZeroU64>,
}

/// What is known of a request that has ended, before its report is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRequest {
    /// Whether its trace is sampled; `None`: it has no trace.
    pub is_sampled: Option<bool>,
    /// The status; `None`: there was no response.
    pub status: Option<StatusCode>,
    /// The time that it took.
    pub duration: Duration,
}
