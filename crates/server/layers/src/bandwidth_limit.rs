//! Limits on the bandwidth of responses or requests.

use std::fmt;
use std::sync::Arc;

use apus_access::{Bandwidth, LimitOutcome};
use apus_handler::{Middleware, Next};
use apus_http::{Request, ResponseFuture};

use crate::limit::{LimitHandle, REMEMBERED_KEYS};
use crate::limit_key::LimitKey;
use crate::paced_body::Pace;

/// A layer that sends responses, or reads requests, no faster than at a bandwidth.
///
/// What has the same key shares the bandwidth, over all workers and protocols: all bodies of a client, unless
/// [`BandwidthLimit::by_key`] is set. Bodies get their parts in turns. Responses are counted as they are sent, after compression.
/// Requests are counted as they are read; put the layer around a [`crate::Timeout`], which then does not count the time
/// in which the client has to wait.
#[derive(Clone)]
pub struct BandwidthLimit {
    limit: LimitHandle,
    bandwidth: Bandwidth,
    free: u64,
    is_of_requests: bool,
}

impl BandwidthLimit {
    /// Responses at so many bytes per second. At least one.
    pub fn per_second(bytes: u64) -> Self {
        Self {
            limit: LimitHandle::new(REMEMBERED_KEYS),
            bandwidth: Bandwidth::new(bytes),
            free: 0,
            is_of_requests: false,
        }
    }

    /// Limits the bodies of requests in place of those of responses.
    #[must_use]
    pub fn of_requests(mut self) -> Self {
        self.is_of_requests = true;
        self
    }

    /// The bytes at the beginning of each body that are not limited. Default: none.
    #[must_use]
    pub fn after(mut self, bytes: u64) -> Self {
        self.free = bytes;
        self
    }

    /// The number of keys that are remembered, with about 20 bytes each. Default: 100,000.
    #[must_use]
    pub fn remembered_keys(mut self, count: usize) -> Self {
        self.limit.keys = count.max(1);
        self.limit.reset();
        self
    }

    /// The name of this limit in the status of a server: letters, digits, `-` and `_`. Default: `default`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.limit.set_name(name);
        self
    }

    /// What shares the bandwidth in place of the bodies of a client: `connection` for each connection, `all` for all together.
    #[must_use]
    pub fn by_key(mut self, key: LimitKey) -> Self {
        self.limit.key = key;
        self.limit.reset();
        self
    }

    /// The limit as the status of a server knows it.
    pub fn handle(&self) -> &LimitHandle {
        &self.limit
    }

    /// Whether it limits requests.
    pub fn is_of_requests(&self) -> bool {
        self.is_of_requests
    }
}

impl Middleware<()> for BandwidthLimit {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let Some(value) = self.limit.key.value(&request) else {
            self.limit
                .note(&request, || "no key, so no limit".to_owned());
            return next.call(request);
        };
        self.limit.note(&request, || {
            let of = if self.is_of_requests {
                "request"
            } else {
                "response"
            };
            let rate = self.bandwidth.bytes_per_second();
            format!("the {of} has {rate} bytes per second")
        });
        self.limit.count(request.record(), LimitOutcome::Allowed);
        let state = self.limit.state();
        let pace = Pace {
            bandwidth: self.bandwidth,
            key: state.times.key(&value.bytes),
            state: Arc::clone(state),
            free: self.free,
        };
        if self.is_of_requests {
            let body = std::mem::take(request.body_mut());
            *request.body_mut() = pace.apply(body);
            return next.call(request);
        }
        next.call_and_change(request, move |mut response| {
            response.wrap_when_sent(move |body| pace.apply(body));
            response
        })
    }
}

impl fmt::Debug for BandwidthLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BandwidthLimit")
            .field("limit", &self.limit)
            .field("bandwidth", &self.bandwidth)
            .field("free", &self.free)
            .field("is_of_requests", &self.is_of_requests)
            .finish()
    }
}
