//! What outlives a configuration.

use std::rc::Rc;
use std::time::Duration;

use apus_http::Method;
use apus_upstream::plan::{Admin, GroupPlan, PassivePlan};
use apus_upstream::{FailedKind, State, Upstreams};

use crate::harness::{
    Gate, OK, Origin, Reply, eventually, get, get_beside, group, nobody, node, node_status, plain,
    run, send, status,
};

#[test]
fn keeps_what_is_known_of_nodes_that_stay() {
    run(async {
        let good = Origin::sending(OK).await;
        let dead = nobody().await;
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
            State::Out(..)
        ));
        plan.nodes.reverse();
        plan.nodes[0].weight = 5;
        upstreams.apply(vec![plan.clone()]);
        let dead_now = node_status(&upstreams, "dead");
        assert!(matches!(dead_now.state, State::Out(..)));
        assert_eq!(dead_now.requests, 1);
        get(&group).await;
        assert_eq!(good.connections(), 1, "connections stay, too");
        // One of the same name elsewhere is another one.
        plan.nodes[1] = node("dead", good.address);
        upstreams.apply(vec![plan]);
        assert_eq!(node_status(&upstreams, "dead").state, State::In);
    });
}

#[test]
fn gives_the_services_of_a_worker_one_group() {
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
        // Nothing of it is left on this worker, and the counts stay.
        get(&upstreams.group("app").unwrap()).await;
        assert_eq!(origin.connections(), 2);
        assert_eq!(status(&upstreams).totals.requests, 3);
        assert_eq!(node_status(&upstreams, "a").requests, 3);
    });
}

#[test]
fn lets_open_requests_end_when_their_group_goes() {
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
        let open = get_beside(&group);
        eventually("it is there", || origin.requests() == 1).await;
        upstreams.apply(Vec::new());
        assert!(upstreams.group("app").is_none());
        gate.let_through(2);
        open.await.unwrap().unwrap();
        get(&group).await;
    });
}

#[test]
fn remembers_what_the_operator_said() {
    run(async {
        let (a, b) = (Origin::sending(OK).await, Origin::sending(OK).await);
        let plan = plain(vec![a.node("a"), b.node("b")]);
        let (upstreams, group) = group(plan.clone());
        upstreams.set_node("app", "a", Admin::Down).unwrap();
        upstreams.apply(vec![plan]);
        for _ in 0..4 {
            get(&group).await;
        }
        assert_eq!((a.requests(), b.requests()), (0, 4));
    });
}

#[test]
fn says_that_there_is_no_node_in_a_group_without_any() {
    run(async {
        let upstreams = Upstreams::default();
        upstreams.apply(vec![GroupPlan::new("empty", Vec::new())]);
        let group = upstreams.group("empty").unwrap();
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, FailedKind::NoNode));
        assert_eq!(failed.retry_after, None);
    });
}
