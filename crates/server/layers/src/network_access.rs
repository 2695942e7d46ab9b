//! `NetworkAccess`: clients of some networks only, or of all but some.

use std::fmt;
use std::sync::Arc;

use apus_conditions::NetworkSet;
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, ResponseMarker};
use apus_http::{Network, Request, ResponseFuture};

use crate::access::{self, AccessCheck, AccessDecision};

/// A layer that rejects requests by the network of their client with 403.
///
/// ```
/// use apus_layers::NetworkAccess;
///
/// let office = NetworkAccess::allow(["192.0.2.0/24".parse()?, "2001:db8::/32".parse()?])
///     .except(["192.0.2.66".parse()?]);
/// # let _ = office;
/// # Ok::<(), apus_http::InvalidNetwork>(())
/// ```
///
/// An IPv4 address within IPv6 (`::ffff:192.0.2.1`) is the IPv4 address. `unix:` is the clients of Unix sockets. Behind a proxy,
/// put [`apus_handler::TrustedProxies`] further out: then the client is the one that the proxy names.
#[derive(Clone)]
pub struct NetworkAccess {
    /// The networks whose clients are allowed; `None` is all.
    allowed: Option<Arc<NetworkSet>>,
    denied: Arc<NetworkSet>,
}

impl NetworkAccess {
    /// For clients of these networks only. Without any network nobody is allowed.
    pub fn allow(networks: impl IntoIterator<Item = Network>) -> Self {
        Self {
            allowed: Some(Arc::new(NetworkSet::new(networks))),
            denied: Arc::default(),
        }
    }

    /// For all clients but those of these networks.
    pub fn deny(networks: impl IntoIterator<Item = Network>) -> Self {
        Self {
            allowed: None,
            denied: Arc::new(NetworkSet::new(networks)),
        }
    }

    /// For clients of this set of networks only, which may be shared.
    pub fn allow_set(networks: Arc<NetworkSet>) -> Self {
        Self {
            allowed: Some(networks),
            denied: Arc::default(),
        }
    }

    /// For all clients but those of this set of networks, which may be shared.
    pub fn deny_set(networks: Arc<NetworkSet>) -> Self {
        Self {
            allowed: None,
            denied: networks,
        }
    }

    /// Rejects clients of these networks, also those that are allowed, in place of the networks before.
    #[must_use]
    pub fn except(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.denied = Arc::new(NetworkSet::new(networks));
        self
    }
}

impl AccessCheck for NetworkAccess {
    fn name(&self) -> &'static str {
        if self.allowed.is_some() {
            "allow"
        } else {
            "deny"
        }
    }

    fn check(&self, request: &Request) -> AccessDecision {
        let client = request.client().ip;
        let has = |networks: &NetworkSet| match client {
            Some(ip) => networks.contains(ip),
            None => networks.contains_unix(),
        };
        if has(&self.denied) || !self.allowed.as_deref().is_none_or(has) {
            return AccessDecision::refused(Error::forbidden("your address is not allowed"));
        }
        AccessDecision::ADMITTED
    }
}

impl Middleware<ResponseMarker> for NetworkAccess {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
    }
}

impl fmt::Debug for NetworkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkAccess").finish_non_exhaustive()
    }
}
