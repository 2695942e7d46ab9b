//! `Server`: a service over real sockets.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_net::{Engine, EnginePlan, Limits, ListenAddress, ListenerPlan};

/// A server that runs a service on a free port.
pub(crate) struct Server(Engine);

impl Server {
    pub(crate) fn start(service: impl ServiceFactory + 'static) -> Self {
        Self::of(service, |_| ())
    }

    pub(crate) fn with_workers(workers: usize, service: impl ServiceFactory + 'static) -> Self {
        Self::of(service, |plan| {
            plan.workers = NonZeroUsize::new(workers).unwrap();
        })
    }

    /// A server with one worker and these limits.
    pub(crate) fn with_limits(service: impl ServiceFactory + 'static, limits: Limits) -> Self {
        Self::of(service, |plan| plan.limits = limits)
    }

    fn of(service: impl ServiceFactory + 'static, change: impl FnOnce(&mut EnginePlan)) -> Self {
        let address = ListenAddress::tcp(([127, 0, 0, 1], 0));
        let listener = ListenerPlan::new(address, Arc::new(service));
        let mut plan = EnginePlan::new(NonZeroUsize::MIN, vec![listener]);
        change(&mut plan);
        Self(Engine::start(plan).unwrap())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self.0.status().listening[..] {
            [ListenAddress::Tcp { address, .. }] => address,
            ref other => panic!("{other:?}"),
        }
    }
}
