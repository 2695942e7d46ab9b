//! Active health checks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use apus_http::{Method, StatusCode};
use apus_upstream::plan::{CheckKind, CheckPlan, GroupPlan};
use apus_upstream::{NodeAvailability, OutReason, UpstreamErrorKind, Upstreams};
use tokio::task::spawn_local;

use crate::harness::{OK, Origin, Reply, eventually, get, group, node_status, plain, run, send};

/// Returns a plan with frequent checks.
fn checked(origin: &Origin, kind: CheckKind) -> GroupPlan {
    let mut plan = plain(vec![origin.node("a")]);
    plan.active = Some(CheckPlan {
        interval: Duration::from_millis(10),
        jitter: 10,
        timeout: Duration::from_millis(500),
        rise: 2,
        fall: 2,
        ..CheckPlan::new(kind)
    });
    plan
}

fn http() -> CheckKind {
    CheckKind::Http {
        target: "/health".into(),
        host: None,
        statuses: Vec::new(),
        contains: None,
    }
}

/// Runs the checks in a task.
fn spawn_checks(upstreams: &Upstreams) {
    let upstreams = upstreams.clone();
    spawn_local(async move { upstreams.run_checks().await });
}

const DOWN: NodeAvailability = NodeAvailability::Out(OutReason::Checks, None);

/// Starts an origin whose response the test can change.
async fn with_response(response: &Rc<RefCell<String>>) -> Origin {
    let response = Rc::clone(response);
    Origin::start(async move |_| Reply::SendAndClose(response.borrow().clone())).await
}

fn with_status(status: u16) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")
}

/// Asserts that a check succeeds or fails for these responses.
async fn assert_finds(kind: CheckKind, cases: &[(String, bool)]) {
    let response = Rc::new(RefCell::new(OK.to_owned()));
    let origin = with_response(&response).await;
    let (upstreams, _group) = group(checked(&origin, kind));
    spawn_checks(&upstreams);
    for (text, is_good) in cases {
        response.replace(text.clone());
        let state = || node_status(&upstreams, "a").state;
        let expected = if *is_good { NodeAvailability::In } else { DOWN };
        eventually(&format!("{text:?} is {expected:?}"), || state() == expected).await;
    }
}

#[test]
fn takes_a_node_out_whose_checks_fail_and_brings_it_back() {
    run(async {
        let response = Rc::new(RefCell::new(OK.to_owned()));
        let origin = with_response(&response).await;
        let (upstreams, group) = group(checked(&origin, http()));
        spawn_checks(&upstreams);
        let last = || node_status(&upstreams, "a").last_check;
        eventually("it was checked", || last().is_some()).await;
        assert_eq!(last().unwrap().fault, None);
        let seen = &origin.received()[0].head;
        let host = format!("ost: {}", origin.address);
        assert!(
            seen.starts_with("GET /health HTTP/1.1\r\n") && seen.contains(&host),
            "{seen}"
        );
        get(&group).await;

        response.replace(with_status(500));
        let state = || node_status(&upstreams, "a").state;
        eventually("it is out", || state() == DOWN).await;
        let fault = last().unwrap().fault.unwrap();
        assert_eq!(&*fault, "status 500");
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::NoNode));

        response.replace(OK.to_owned());
        eventually("it is back", || state() == NodeAvailability::In).await;
        get(&group).await;
    });
}

#[test]
fn accepts_statuses_below_400_by_default() {
    run(async {
        let cases = [(404, false), (302, true), (503, false), (204, true)];
        assert_finds(http(), &cases.map(|(code, good)| (with_status(code), good))).await;
        let kind = CheckKind::Http {
            target: "/".into(),
            host: Some("example.com".into()),
            statuses: vec![StatusCode::NOT_FOUND],
            contains: None,
        };
        let cases = [(200, false), (404, true)];
        assert_finds(kind, &cases.map(|(code, good)| (with_status(code), good))).await;
    });
}

#[test]
fn finds_text_in_the_body() {
    run(async {
        let kind = CheckKind::Http {
            target: "/".into(),
            host: None,
            statuses: Vec::new(),
            contains: Some("all is well".into()),
        };
        let with = |text: &str| {
            let len = text.len();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{text}")
        };
        let long = format!("{}all is well", " ".repeat(40_000));
        let too_long = format!("{}all is well", " ".repeat(400_000));
        let cases = [
            (with("nothing is well"), false),
            (with("and all is well here"), true),
            (with(&too_long), false),
            (with(&long), true),
        ];
        assert_finds(kind, &cases).await;
    });
}

#[test]
fn only_connects_in_a_connect_check() {
    run(async {
        let origin = Origin::start(async |_| Reply::Close).await;
        let mut plan = checked(&origin, CheckKind::Connect);
        let refusing = crate::harness::refusing().await;
        plan.nodes.push(crate::harness::node("refusing", refusing));
        let (upstreams, _group) = group(plan);
        spawn_checks(&upstreams);
        let state = |name: &str| node_status(&upstreams, name).state;
        eventually("the other is out", || state("refusing") == DOWN).await;
        eventually("a was checked", || {
            node_status(&upstreams, "a").last_check.is_some()
        })
        .await;
        assert_eq!(state("a"), NodeAvailability::In);
        assert_eq!(origin.requests(), 0);
    });
}

#[test]
fn takes_a_node_out_that_does_not_respond() {
    run(async {
        let is_frozen = Rc::new(Cell::new(true));
        let origin = Origin::start({
            let is_frozen = Rc::clone(&is_frozen);
            async move |_| {
                if is_frozen.get() {
                    Reply::Freeze
                } else {
                    Reply::SendAndClose(OK.into())
                }
            }
        })
        .await;
        let mut plan = checked(&origin, http());
        if let Some(check) = &mut plan.active {
            check.timeout = Duration::from_millis(30);
        }
        let (upstreams, _group) = group(plan);
        spawn_checks(&upstreams);
        let state = || node_status(&upstreams, "a").state;
        eventually("it is out", || state() == DOWN).await;
        is_frozen.set(false);
        eventually("it is back", || state() == NodeAvailability::In).await;
    });
}

#[test]
fn checks_new_nodes_and_no_removed_nodes() {
    run(async {
        let (a, b) = (Origin::sending(OK).await, Origin::sending(OK).await);
        let mut plan = checked(&a, http());
        let (upstreams, _group) = group(plan.clone());
        spawn_checks(&upstreams);
        eventually("a is checked", || a.requests() > 2).await;
        plan.nodes = vec![b.node("b")];
        upstreams.apply(vec![plan.clone()]);
        eventually("b is checked", || b.requests() > 2).await;
        let before = a.requests();
        eventually("b is checked more", || b.requests() > 12).await;
        assert!(a.requests() <= before + 1);
        plan.active = None;
        upstreams.apply(vec![plan]);
        assert_eq!(node_status(&upstreams, "b").state, NodeAvailability::In);
    });
}
