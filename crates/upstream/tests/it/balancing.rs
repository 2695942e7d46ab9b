//! Which node a request goes to.

use std::rc::Rc;
use std::time::Duration;

use apus_http::Method;
use apus_upstream::plan::{Admin, GroupPlan, HashKey, StickyPlan, Strategy};
use apus_upstream::{Context, Delivered, WorkerGroup, hash_key};

use crate::harness::{
    Gate, OK, Origin, Reply, eventually, get, get_beside, group, node_status, plain, request, run,
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

async fn get_with(group: &Rc<WorkerGroup>, context: Context<'_>) -> Delivered {
    group
        .send(request(group, Method::GET), context)
        .await
        .unwrap()
}

#[test]
fn takes_turns_by_weight() {
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
fn asks_the_node_with_fewer_open_requests() {
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
            waiting.push(get_beside(&group));
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
fn asks_the_node_that_answers_sooner() {
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
fn keeps_keys_with_their_nodes_and_moves_only_those_of_a_node_that_goes() {
    run(async {
        let origins = three().await;
        let strategy = Strategy::ConsistentHash(HashKey::Uri);
        let (upstreams, group) = group(plan_of(&origins, strategy.clone()));
        let place = async |key: u32| {
            let context = Context {
                key: Some(hash_key(format!("/{key}").as_bytes())),
                ..Context::default()
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
        upstreams.set_node("app", "b", Admin::Down).unwrap();
        let mut moved = 0;
        for key in 0..60 {
            let (now, was) = (place(key).await, &before[key as usize]);
            assert!(now == *was || &**was == "b");
            moved += usize::from(now != *was);
        }
        assert!(moved > 0);
        // Another worker of another server has them at the same places.
        let (_, elsewhere) = crate::harness::group(plan_of(&origins, strategy));
        let context = Context {
            key: Some(hash_key(b"/7")),
            ..Context::default()
        };
        if &*before[7] != "b" {
            let node = get_with(&elsewhere, context).await.node;
            assert_eq!(node.name, before[7]);
        }
    });
}

#[test]
fn keeps_a_client_with_its_node_by_a_cookie_and_while_that_drains() {
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
        let sticky = || Context {
            sticky: Some(route),
            ..Context::default()
        };
        for _ in 0..10 {
            let delivered = get_with(&group, sticky()).await;
            assert_eq!(delivered.node, first.node);
            assert_eq!(delivered.set_cookie, None);
        }
        upstreams
            .set_node("app", &first.node.name, Admin::Drain)
            .unwrap();
        for _ in 0..10 {
            assert_eq!(get_with(&group, sticky()).await.node, first.node);
            assert_ne!(get(&group).await.node, first.node);
        }
        upstreams
            .set_node("app", &first.node.name, Admin::Down)
            .unwrap();
        let moved = get_with(&group, sticky()).await;
        assert_ne!(moved.node, first.node);
        assert!(moved.set_cookie.is_some());
        // A cookie that is none of ours is replaced.
        let forged = Context {
            sticky: Some("forged"),
            ..Context::default()
        };
        assert!(get_with(&group, forged).await.set_cookie.is_some());
    });
}
