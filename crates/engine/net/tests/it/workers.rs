//! Workers: each is pinned to its own core, and blocking work runs on other threads.

use std::num::NonZeroUsize;

use apus_http::ResponseFuture;
use apus_net::{EnginePlan, ListenerPlan};
use rustix::thread::sched_getaffinity;

use crate::harness::{Server, local, ok, plan, service};

/// Responds with the number of cores of the worker, and of a thread that may block.
fn cores() -> std::sync::Arc<dyn apus_http::ServiceFactory> {
    service(|_| {
        ResponseFuture::later(async {
            let count = || sched_getaffinity(None).unwrap().count();
            let blocking = tokio::task::spawn_blocking(count).await.unwrap();
            ok(format!("{} {blocking}", count()))
        })
    })
}

#[test]
fn a_worker_has_one_core_and_its_blocking_threads_have_all() {
    let server = Server::start(cores());
    let all = sched_getaffinity(None).unwrap().count();
    assert_eq!(server.connect().get("/").text(), format!("1 {all}"));
}

#[test]
fn workers_are_spread_over_the_cores() {
    let server = Server::run(EnginePlan {
        workers: NonZeroUsize::new(2).unwrap(),
        ..plan(vec![ListenerPlan::new(local(), cores())])
    });
    let cores: Vec<_> = server
        .engine
        .status()
        .workers
        .iter()
        .map(|worker| worker.core.expect("a core"))
        .collect();
    let several = sched_getaffinity(None).unwrap().count() > 1;
    assert_eq!(cores[0] != cores[1], several);
    server.assert_serves();
}
