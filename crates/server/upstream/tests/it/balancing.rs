//! Balancing strategies and sticky cookies.

use std::rc::Rc;
use std::time::Duration;

use apus_http::Method;
use apus_upstream::plan::{AdminState, GroupPlan, HashKey, StickyPlan, Strategy};
use apus_upstream::{RequestContext, UpstreamResponse, WorkerGroup, hash_key};

use crate::harness::{
    Gate, OK, Origin, Reply, eventually, get, group, node_status, plain, request, run, spawn_get,
    status,
};

async fn three() -> [Origin; 3] {
    [
        Origin::sending(OK).await,
        Origin::sending(OK).await,
        Origin::sending(OK).await,
    ]
}

fn plan_of(origins: &[Origin; 3], strategy: Strategy) -> GroupPlan {
    let [a, b, c] = origins;
    let mut plan = plain(vec![a.node("a"), b.node("b"), c.node("c")]);
    plan.strategy = strategy;
    plan
}

async fn get_with(group: &Rc<WorkerGroup>, context: RequestContext<'_>) -> UpstreamResponse {
    group
        .send(request(group, Method::GET), context)
        .await
        .unwrap()
}

#[test]
fn uses_round_robin_by_weight() {
    run(async {
        let origins = three().await;
        let mut plan = plan_of(&origins, Strategy::RoundRobin);
        plan.nodes[0].weight = 3;
        let (_, group) = group(plan);
        for _ in 0..50 {
            get(&group).await;
        }
        let counts = origins.each_ref().map(Origin::requests);
        assert_eq!(counts, [30, 10, 10]);
    });
}

#[test]
fn serves_with_every_strategy() {
    run(async {
        let origins = three().await;
        let mut before = 0;
        for strategy in [
            Strategy::RoundRobin,
            Strategy::LeastConnections,
            Strategy::LeastTime,
            Strategy::BestOfTwo,
            Strategy::Random,
            Strategy::ConsistentHash(HashKey::Address),
        ] {
            let (upstreams, group) = group(plan_of(&origins, strategy));
            for _ in 0..60 {
                get(&group).await;
            }
            let all: usize = origins.iter().map(Origin::requests).sum();
            assert_eq!(all - before, 60);
            before = all;
            let nodes = status(&upstreams).nodes;
            assert!(nodes.iter().all(|node| node.in_flight == 0));
        }
        assert!(origins.iter().all(|origin| origin.requests() > 30));
    });
}

#[test]
fn picks_the_node_with_fewer_open_requests() {
    run(async {
        let gate = Gate::shut();
        let slow = Origin::start({
            let gate = gate.clone();
            async move |_| {
                gate.pass().await;
                Reply::Send(OK.into())
            }
        })
        .await;
        let quick = Origin::sending(OK).await;
        let mut plan = plain(vec![slow.node("slow"), quick.node("quick")]);
        plan.strategy = Strategy::LeastConnections;
        let (_, group) = group(plan);
        let mut waiting = Vec::new();
        while slow.requests() == 0 {
            waiting.push(spawn_get(&group));
            let all = waiting.len();
            eventually("it is there", || slow.requests() + quick.requests() == all).await;
        }
        for _ in 0..20 {
            get(&group).await;
        }
        assert_eq!(slow.requests(), 1);
        gate.let_through(1);
        for task in waiting {
            task.await.unwrap().unwrap();
        }
    });
}

#[test]
fn picks_the_node_that_responds_sooner() {
    run(async {
        let slow = Origin::start(async |_| {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Reply::Send(OK.into())
        })
        .await;
        let quick = Origin::sending(OK).await;
        let mut plan = plain(vec![slow.node("slow"), quick.node("quick")]);
        plan.strategy = Strategy::LeastTime;
        let (upstreams, group) = group(plan);
        for _ in 0..50 {
            get(&group).await;
        }
        assert!(slow.requests() <= 5, "{}", slow.requests());
        let latency = node_status(&upstreams, "slow").latency.unwrap();
        assert!(latency > Duration::from_millis(25), "{latency:?}");
    });
}

#[test]
fn moves_only_the_keys_of_a_node_that_goes_down() {
    run(async {
        let origins = three().await;
        let strategy = Strategy::ConsistentHash(HashKey::Uri);
        let (upstreams, group) = group(plan_of(&origins, strategy.clone()));
        let place = async |key: u32| {
            let context = RequestContext {
                key: Some(hash_key(format!("/{key}").as_bytes())),
                ..RequestContext::default()
            };
            get_with(&group, context).await.node.name.clone()
        };
        let mut before = Vec::new();
        for key in 0..60 {
            before.push(place(key).await);
        }
        for key in 0..60 {
            assert_eq!(place(key).await, before[key as usize]);
        }
        upstreams.set_node("app", "b", AdminState::Down).unwrap();
        let mut moved = 0;
        for key in 0..60 {
            let (now, was) = (place(key).await, &before[key as usize]);
            assert!(now == *was || &**was == "b");
            moved += usize::from(now != *was);
        }
        assert!(moved > 0);
        // Another worker of another server maps the keys to the same nodes.
        let (_, elsewhere) = crate::harness::group(plan_of(&origins, strategy));
        let context = RequestContext {
            key: Some(hash_key(b"/7")),
            ..RequestContext::default()
        };
        if &*before[7] != "b" {
            let node = get_with(&elsewhere, context).await.node;
            assert_eq!(node.name, before[7]);
        }
    });
}

#[test]
fn binds_a_client_to_its_node_by_a_cookie_even_while_the_node_drains() {
    run(async {
        let origins = three().await;
        let mut plan = plan_of(&origins, Strategy::RoundRobin);
        plan.sticky = Some(StickyPlan::new("route"));
        let (upstreams, group) = group(plan);
        let first = get(&group).await;
        let cookie = first.set_cookie.unwrap();
        let route = cookie
            .strip_prefix("route=")
            .and_then(|rest| rest.split_once(';'))
            .unwrap()
            .0;
        assert!(!cookie.contains("127.0.0.1"));
        let sticky = || RequestContext {
            sticky: Some(route),
            ..RequestContext::default()
        };
        for _ in 0..10 {
            let response = get_with(&group, sticky()).await;
            assert_eq!(response.node, first.node);
            assert_eq!(response.set_cookie, None);
        }
        upstreams
            .set_node("app", &first.node.name, AdminState::Drain)
            .unwrap();
        for _ in 0..10 {
            assert_eq!(get_with(&group, sticky()).await.node, first.node);
            assert_ne!(get(&group).await.node, first.node);
        }
        upstreams
            .set_node("app", &first.node.name, AdminState::Down)
            .unwrap();
        let moved = get_with(&group, sticky()).await;
        assert_ne!(moved.node, first.node);
        assert!(moved.set_cookie.is_some());
        // An unknown cookie value is replaced.
        let forged = RequestContext {
            sticky: Some("forged"),
            ..RequestContext::default()
        };
        assert!(get_with(&group, forged).await.set_cookie.is_some());
    });
}
