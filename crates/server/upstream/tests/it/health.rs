//! Passive checks, circuit breakers, ejection, slow start and admin states.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_client::Timeouts;
use apus_http::{Method, StatusCode};
use apus_upstream::plan::{AdminState, BreakerPlan, EjectionPlan, PassivePlan, RatePlan};
use apus_upstream::{FailureKind, NodeAvailability, OutReason, UpstreamErrorKind};

use crate::harness::{
    Gate, OK, Origin, Reply, eventually, get, group, in_flight, node, node_status, plain, refusing,
    run, send, spawn_get, status,
};

const LONG: Duration = Duration::from_secs(3600);
const BAD: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// Starts an origin that responds only while the test says so.
async fn switchable(is_up: &Rc<Cell<bool>>) -> Origin {
    let is_up = Rc::clone(is_up);
    Origin::start(async move |_| Reply::Send(if is_up.get() { OK } else { BAD }.into())).await
}

#[test]
fn takes_a_node_out_that_refuses_and_serves_all_requests_from_the_others() {
    run(async {
        let good = Origin::sending(OK).await;
        let dead = node("dead", refusing().await);
        let mut plan = plain(vec![dead, good.node("good")]);
        plan.retry.tries = 2;
        plan.passive = Some(PassivePlan {
            max_fails: 3,
            fail_timeout: LONG,
        });
        let (upstreams, group) = group(plan);
        for _ in 0..50 {
            get(&group).await;
        }
        let dead = node_status(&upstreams, "dead");
        assert_eq!(dead.requests, 3);
        assert!(dead.failures.contains(&(FailureKind::Connect, 3)));
        assert!(matches!(
            dead.state,
            NodeAvailability::Out(OutReason::Failures, Some(_))
        ));
        assert_eq!(node_status(&upstreams, "good").state, NodeAvailability::In);
    });
}

#[test]
fn takes_a_node_out_that_is_frozen() {
    run(async {
        let good = Origin::sending(OK).await;
        let frozen = Origin::start(async |_| Reply::Freeze).await;
        let mut plan = plain(vec![frozen.node("frozen"), good.node("good")]);
        plan.retry.tries = 2;
        plan.timeouts = Timeouts {
            first_byte: Duration::from_millis(50),
            ..Timeouts::default()
        };
        plan.passive = Some(PassivePlan {
            max_fails: 1,
            fail_timeout: LONG,
        });
        let (upstreams, group) = group(plan);
        for _ in 0..20 {
            get(&group).await;
        }
        let failures = node_status(&upstreams, "frozen").failures;
        assert!(failures.contains(&(FailureKind::TimedOut, 1)));
        assert_eq!(frozen.requests(), 1);
    });
}

#[test]
fn counts_the_failure_statuses_of_the_plan() {
    run(async {
        let (good, bad) = (Origin::sending(OK).await, Origin::sending(BAD).await);
        let mut plan = plain(vec![bad.node("bad"), good.node("good")]);
        plan.passive = Some(PassivePlan {
            max_fails: 2,
            fail_timeout: LONG,
        });
        plan.failure_statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
        let (upstreams, group) = group(plan);
        for _ in 0..20 {
            send(&group, Method::GET).await.unwrap();
        }
        assert_eq!((bad.requests(), good.requests()), (2, 18));
        let failures = node_status(&upstreams, "bad").failures;
        assert!(failures.contains(&(FailureKind::Status, 2)));
    });
}

#[test]
fn uses_failed_nodes_if_no_other_node_is_available() {
    run(async {
        let is_up = Rc::new(Cell::new(false));
        let (a, b) = (switchable(&is_up).await, switchable(&is_up).await);
        let mut plan = plain(vec![a.node("a"), b.node("b")]);
        plan.passive = Some(PassivePlan {
            max_fails: 1,
            fail_timeout: LONG,
        });
        plan.failure_statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
        let (upstreams, group) = group(plan);
        for _ in 0..2 {
            send(&group, Method::GET).await.unwrap();
        }
        assert!(matches!(
            node_status(&upstreams, "a").state,
            NodeAvailability::Out(..)
        ));
        assert!(matches!(
            node_status(&upstreams, "b").state,
            NodeAvailability::Out(..)
        ));
        is_up.set(true);
        get(&group).await;
    });
}

fn breaker() -> BreakerPlan {
    BreakerPlan {
        min_requests: 2,
        open_for: Duration::from_millis(500),
        ..BreakerPlan::default()
    }
}

#[test]
fn lets_one_request_through_a_half_open_breaker() {
    run(async {
        let gate = Gate::shut();
        let is_up = Rc::new(Cell::new(false));
        let origin = Origin::start({
            let (gate, is_up) = (gate.clone(), Rc::clone(&is_up));
            async move |_| {
                if !is_up.get() {
                    return Reply::Close;
                }
                gate.pass().await;
                Reply::Send(OK.into())
            }
        })
        .await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.breaker = Some(breaker());
        let (upstreams, group) = group(plan);
        for _ in 0..2 {
            send(&group, Method::GET).await.unwrap_err();
        }
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::NoNode));
        assert!(failed.retry_after.unwrap() <= Duration::from_millis(500));
        assert_eq!(origin.requests(), 2);

        is_up.set(true);
        let state = || node_status(&upstreams, "a").state;
        eventually("it is half-open", || state() == NodeAvailability::Probing).await;
        let tasks: Vec<_> = (0..10).map(|_| spawn_get(&group)).collect();
        eventually("one came through", || origin.requests() == 3).await;
        // The other requests were rejected at once.
        let no_node = || status(&upstreams).totals.no_node;
        eventually("nine were rejected", || no_node() == 10).await;
        assert_eq!(in_flight(&upstreams), 1);
        gate.let_through(1);
        let mut succeeded = 0;
        for task in tasks {
            succeeded += usize::from(task.await.unwrap().is_ok());
        }
        assert_eq!((succeeded, state()), (1, NodeAvailability::In));
        gate.let_through(5);
        for _ in 0..5 {
            get(&group).await;
        }
        assert_eq!(origin.requests(), 8);
    });
}

#[test]
fn opens_again_when_the_probe_fails_and_waits_longer() {
    run(async {
        let origin = Origin::start(async |_| Reply::Close).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.breaker = Some(BreakerPlan {
            open_for: Duration::from_millis(20),
            max_open_for: LONG,
            ..breaker()
        });
        let (upstreams, group) = group(plan);
        for _ in 0..2 {
            send(&group, Method::GET).await.unwrap_err();
        }
        let mut last = Duration::ZERO;
        for probes in 1..=3 {
            let state = || node_status(&upstreams, "a").state;
            eventually("it is half-open", || state() == NodeAvailability::Probing).await;
            send(&group, Method::GET).await.unwrap_err();
            assert_eq!(origin.requests(), 2 + probes);
            let NodeAvailability::Out(OutReason::Breaker, Some(until)) = state() else {
                panic!("{:?}", state());
            };
            let open_for = until.saturating_duration_since(Instant::now());
            assert!(open_for > last, "{open_for:?}");
            last = open_for;
        }
    });
}

#[test]
fn sends_another_probe_after_the_client_of_one_is_gone() {
    run(async {
        let mode = Rc::new(Cell::new(0));
        let origin = Origin::start({
            let mode = Rc::clone(&mode);
            async move |_| match mode.get() {
                0 => Reply::Close,
                1 => Reply::Freeze,
                _ => Reply::Send(OK.into()),
            }
        })
        .await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.breaker = Some(breaker());
        let (upstreams, group) = group(plan);
        for _ in 0..2 {
            send(&group, Method::GET).await.unwrap_err();
        }
        let state = || node_status(&upstreams, "a").state;
        eventually("it is half-open", || state() == NodeAvailability::Probing).await;
        mode.set(1);
        let probe = spawn_get(&group);
        eventually("the probe is there", || origin.requests() == 3).await;
        assert_eq!(state(), NodeAvailability::Out(OutReason::Breaker, None));
        probe.abort();
        eventually("its slot is free", || state() == NodeAvailability::Probing).await;
        mode.set(2);
        get(&group).await;
        assert_eq!(state(), NodeAvailability::In);
    });
}

#[test]
fn ejects_nodes_that_fail_in_a_row_but_keeps_enough() {
    run(async {
        let mut nodes = Vec::new();
        let mut origins = Vec::new();
        for number in 0..4 {
            let origin = Origin::sending(BAD).await;
            nodes.push(origin.node(&format!("node-{number}")));
            origins.push(origin);
        }
        let mut plan = plain(nodes);
        plan.failure_statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
        plan.ejection = Some(EjectionPlan {
            consecutive: 3,
            rate: None,
            time: LONG,
            max_time: LONG,
            max_percent: 100,
            keep: 2,
        });
        let (upstreams, group) = group(plan);
        for _ in 0..60 {
            send(&group, Method::GET).await.unwrap();
        }
        let is_ejected = |state: NodeAvailability| {
            matches!(state, NodeAvailability::Out(OutReason::Ejected, Some(_)))
        };
        let nodes = status(&upstreams).nodes;
        let ejected = nodes.iter().filter(|node| is_ejected(node.state)).count();
        assert_eq!(ejected, 2);
    });
}

#[test]
fn ejects_the_node_with_more_failures_than_the_others() {
    run(async {
        let turn = Cell::new(0);
        let flaky = Origin::start(async move |_| {
            turn.set(turn.get() + 1);
            Reply::Send(if turn.get() % 4 == 0 { OK } else { BAD }.into())
        })
        .await;
        let (a, b) = (Origin::sending(OK).await, Origin::sending(OK).await);
        let mut plan = plain(vec![flaky.node("flaky"), a.node("a"), b.node("b")]);
        plan.failure_statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
        plan.ejection = Some(EjectionPlan {
            consecutive: 0,
            rate: Some(RatePlan {
                interval: Duration::from_millis(50),
                margin: 50,
                min_requests: 5,
            }),
            time: LONG,
            max_time: LONG,
            max_percent: 50,
            keep: 1,
        });
        let (upstreams, group) = group(plan);
        let is_out = || {
            matches!(
                node_status(&upstreams, "flaky").state,
                NodeAvailability::Out(OutReason::Ejected, _)
            )
        };
        let started = Instant::now();
        while !is_out() {
            send(&group, Method::GET).await.unwrap();
            assert!(started.elapsed() < crate::harness::PATIENCE);
        }
        for _ in 0..10 {
            get(&group).await;
        }
    });
}

#[test]
fn gives_a_node_that_comes_back_a_small_weight_first() {
    run(async {
        let is_up = Rc::new(Cell::new(false));
        let (weak, good) = (switchable(&is_up).await, Origin::sending(OK).await);
        let mut plan = plain(vec![weak.node("weak"), good.node("good")]);
        plan.failure_statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
        plan.slow_start = LONG;
        plan.passive = Some(PassivePlan {
            max_fails: 1,
            fail_timeout: Duration::from_millis(20),
        });
        let (upstreams, group) = group(plan);
        for _ in 0..2 {
            send(&group, Method::GET).await.unwrap();
        }
        is_up.set(true);
        let state = || node_status(&upstreams, "weak").state;
        eventually("it is back", || {
            matches!(state(), NodeAvailability::Starting(_))
        })
        .await;
        let before = weak.requests();
        for _ in 0..100 {
            get(&group).await;
        }
        assert!(weak.requests() - before <= 2, "{}", weak.requests());
    });
}

#[test]
fn applies_admin_states() {
    run(async {
        let (a, b) = (Origin::sending(OK).await, Origin::sending(OK).await);
        let (upstreams, group) = group(plain(vec![a.node("a"), b.node("b")]));
        upstreams.set_node("app", "a", AdminState::Down).unwrap();
        for _ in 0..6 {
            get(&group).await;
        }
        assert_eq!((a.requests(), b.requests()), (0, 6));
        assert_eq!(node_status(&upstreams, "a").admin, AdminState::Down);
        upstreams.set_node("app", "a", AdminState::Up).unwrap();
        for _ in 0..6 {
            get(&group).await;
        }
        assert_eq!((a.requests(), b.requests()), (3, 9));
        upstreams
            .set_node("app", "c", AdminState::Down)
            .unwrap_err();
        upstreams
            .set_node("other", "a", AdminState::Down)
            .unwrap_err();
    });
}
