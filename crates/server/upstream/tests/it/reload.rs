//! The state that stays across reloads.

use std::rc::Rc;
use std::time::Duration;

use apus_http::Method;
use apus_upstream::plan::{AdminState, GroupPlan, PassivePlan};
use apus_upstream::{NodeAvailability, UpstreamErrorKind, Upstreams};

use crate::harness::{
    Gate, OK, Origin, Reply, eventually, get, group, node, node_status, plain, refusing, run, send,
    spawn_get, status,
};

#[test]
fn keeps_the_state_of_nodes_that_stay() {
    run(async {
        let good = Origin::sending(OK).await;
        let dead = refusing().await;
        let mut plan = plain(vec![node("dead", dead), good.node("good")]);
        plan.retry.tries = 2;
        plan.passive = Some(PassivePlan {
            max_fails: 1,
            fail_timeout: Duration::from_secs(3600),
        });
        let (upstreams, group) = group(plan.clone());
        for _ in 0..4 {
            get(&group).await;
        }
        assert!(matches!(
            node_status(&upstreams, "dead").state,
            NodeAvailability::Out(..)
        ));
        plan.nodes.reverse();
        plan.nodes[0].weight = 5;
        upstreams.apply(vec![plan.clone()]);
        let dead_now = node_status(&upstreams, "dead");
        assert!(matches!(dead_now.state, NodeAvailability::Out(..)));
        assert_eq!(dead_now.requests, 1);
        get(&group).await;
        assert_eq!(good.connections(), 1, "connections stay, too");
        // A node with the same name and another address is a new node.
        plan.nodes[1] = node("dead", good.address);
        upstreams.apply(vec![plan]);
        assert_eq!(node_status(&upstreams, "dead").state, NodeAvailability::In);
    });
}

#[test]
fn shares_one_group_between_the_services_of_a_worker() {
    run(async {
        let origin = Origin::sending(OK).await;
        let plan = plain(vec![origin.node("a")]);
        let (upstreams, first) = group(plan.clone());
        assert!(Rc::ptr_eq(&first, &upstreams.group("app").unwrap()));
        get(&first).await;
        upstreams.apply(vec![plan]);
        let second = upstreams.group("app").unwrap();
        assert!(Rc::ptr_eq(&first, &second));
        drop(first);
        get(&second).await;
        assert_eq!(origin.connections(), 1);
        assert!(upstreams.group("other").is_none());
        drop(second);
        // The group of this worker is gone, and its counters stay.
        get(&upstreams.group("app").unwrap()).await;
        assert_eq!(origin.connections(), 2);
        assert_eq!(status(&upstreams).totals.requests, 3);
        assert_eq!(node_status(&upstreams, "a").requests, 3);
    });
}

#[test]
fn completes_open_requests_after_their_group_is_removed() {
    run(async {
        let gate = Gate::shut();
        let origin = Origin::start({
            let gate = gate.clone();
            async move |_| {
                gate.pass().await;
                Reply::Send(OK.into())
            }
        })
        .await;
        let (upstreams, group) = group(plain(vec![origin.node("a")]));
        let open = spawn_get(&group);
        eventually("it is there", || origin.requests() == 1).await;
        upstreams.apply(Vec::new());
        assert!(upstreams.group("app").is_none());
        gate.let_through(2);
        open.await.unwrap().unwrap();
        get(&group).await;
    });
}

#[test]
fn keeps_admin_states_across_reloads() {
    run(async {
        let (a, b) = (Origin::sending(OK).await, Origin::sending(OK).await);
        let plan = plain(vec![a.node("a"), b.node("b")]);
        let (upstreams, group) = group(plan.clone());
        upstreams.set_node("app", "a", AdminState::Down).unwrap();
        upstreams.apply(vec![plan]);
        for _ in 0..4 {
            get(&group).await;
        }
        assert_eq!((a.requests(), b.requests()), (0, 4));
    });
}

#[test]
fn fails_without_nodes() {
    run(async {
        let upstreams = Upstreams::default();
        upstreams.apply(vec![GroupPlan::new("empty", Vec::new())]);
        let group = upstreams.group("empty").unwrap();
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::NoNode));
        assert_eq!(failed.retry_after, None);
    });
}
