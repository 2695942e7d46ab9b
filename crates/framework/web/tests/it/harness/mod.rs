//! A server for one test, and a blocking client.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use apus::redis::Redis;
use apus::{App, Limits};
use apus_net::{Engine, EnginePlan, ListenAddress, ListenerPlan};

use apus_testkit::{DatabaseKind, DatabaseServer};

pub(crate) use apus_testkit::{SocketClient as Client, request_text as head, wait_until};

/// The time limit for an event that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The Redis that all tests share.
pub(crate) fn redis() -> Redis {
    Redis::open(&DatabaseServer::shared(DatabaseKind::Redis).address()).unwrap()
}

/// A server that runs an application on a free port.
pub(crate) struct Server {
    pub(crate) engine: Engine,
}

impl Server {
    pub(crate) fn start(app: App) -> Self {
        Self::with_workers(1, app)
    }

    pub(crate) fn with_workers(workers: usize, app: App) -> Self {
        Self::of(app, |plan| {
            plan.workers = NonZeroUsize::new(workers).unwrap();
        })
    }

    /// A server with one worker and these limits.
    pub(crate) fn with_limits(app: App, limits: Limits) -> Self {
        Self::of(app, |plan| plan.limits = limits)
    }

    fn of(app: App, change: impl FnOnce(&mut EnginePlan)) -> Self {
        app.check().unwrap();
        let listener = ListenerPlan::new(ListenAddress::tcp(([127, 0, 0, 1], 0)), Arc::new(app));
        let mut plan = EnginePlan::new(NonZeroUsize::MIN, vec![listener]);
        change(&mut plan);
        Self {
            engine: Engine::start(plan).unwrap(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self.engine.status().listening[..] {
            [ListenAddress::Tcp { address, .. }] => address,
            ref other => panic!("{other:?}"),
        }
    }
}
