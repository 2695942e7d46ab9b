//! Active checks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use apus_http::{Method, StatusCode};
use apus_upstream::plan::{CheckKind, CheckPlan, GroupPlan};
use apus_upstream::{FailedKind, Reason, State, Upstreams};
use tokio::task::spawn_local;

use crate::harness::{OK, Origin, Reply, eventually, get, group, node_status, plain, run, send};

/// A plan with quick checks.
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

/// Checks nodes beside the test.
fn keep_checking(upstreams: &Upstreams) {
    let upstreams = upstreams.clone();
    spawn_local(async move { upstreams.run_checks().await });
}

const DOWN: State = State::Out(Reason::Checks, None);

/// An origin that answers with what the test puts there.
async fn saying(response: &Rc<RefCell<String>>) -> Origin {
    let response = Rc::clone(response);
    Origin::start(async move |_| Reply::SendAndClose(response.borrow().clone())).await
}

fn with_status(status: u16) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")
}

/// Asserts that a check finds these responses good or bad.
async fn assert_finds(kind: CheckKind, cases: &[(String, bool)]) {
    let response = Rc::new(RefCell::new(OK.to_owned()));
    let origin = saying(&response).await;
    let (upstreams, _group) = group(checked(&origin, kind));
    keep_checking(&upstreams);
    for (text, is_good) in cases {
        response.replace(text.clone());
        let state = || node_status(&upstreams, "a").state;
        let expected = if *is_good { State::In } else { DOWN };
        eventually(&format!("{text:?} is {expected:?}"), || state() == expected).await;
    }
}

#[test]
fn takes_a_node_out_whose_checks_fail_and_brings_it_back() {
    run(async {
        let response = Rc::new(RefCell::new(OK.to_owned()));
        let origin = saying(&response).await;
        let (upstreams, group) = group(checked(&origin, http()));
        keep_checking(&upstreams);
        let last = || node_status(&upstreams, "a").last_check;
        eventually("it was checked", || last().is_some()).await;
        assert_eq!(last().unwrap().fault, None);
        let seen = &origin.seen()[0].head;
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
        assert!(matches!(failed.kind, FailedKind::NoNode));

        response.replace(OK.to_owned());
        eventually("it is back", || state() == State::In).await;
        get(&group).await;
    });
}

#[test]
fn takes_statuses_below_400_for_good_unless_told_otherwise() {
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
fn looks_for_text_in_the_content() {
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
fn connects_where_that_is_enough() {
    run(async {
        let origin = Origin::start(async |_| Reply::Close).await;
        let mut plan = checked(&origin, CheckKind::Connect);
        let nobody = crate::harness::nobody().await;
        plan.nodes.push(crate::harness::node("nobody", nobody));
        let (upstreams, _group) = group(plan);
        keep_checking(&upstreams);
        let state = |name: &str| node_status(&upstreams, name).state;
        eventually("nobody is out", || state("nobody") == DOWN).await;
        eventually("a was checked", || {
            node_status(&upstreams, "a").last_check.is_some()
        })
        .await;
        assert_eq!(state("a"), State::In);
        assert_eq!(origin.requests(), 0);
    });
}

#[test]
fn takes_a_node_out_that_says_nothing() {
    run(async {
        let is_frozen = Rc::new(Cell::new(true));
        let origin = Origin::start({
            let is_frozen = Rc::clone(&is_frozen);
            async move |_| match is_frozen.get() {
                true => Reply::Freeze,
                false => Reply::SendAndClose(OK.into()),
            }
        })
        .await;
        let mut plan = checked(&origin, http());
        if let Some(check) = &mut plan.active {
            check.timeout = Duration::from_millis(30);
        }
        let (upstreams, _group) = group(plan);
        keep_checking(&upstreams);
        let state = || node_status(&upstreams, "a").state;
        eventually("it is out", || state() == DOWN).await;
        is_frozen.set(false);
        eventually("it is back", || state() == State::In).await;
    });
}

#[test]
fn checks_nodes_that_come_and_leaves_those_that_go() {
    run(async {
        let (a, b) = (Origin::sending(OK).await, Origin::sending(OK).await);
        let mut plan = checked(&a, http());
        let (upstreams, _group) = group(plan.clone());
        keep_checking(&upstreams);
        eventually("a is checked", || a.requests() > 2).await;
        plan.nodes = vec![b.node("b")];
        upstreams.apply(vec![plan.clone()]);
        eventually("b is checked", || b.requests() > 2).await;
        let before = a.requests();
        eventually("b is checked more", || b.requests() > 12).await;
        assert!(a.requests() <= before + 1);
        plan.active = None;
        upstreams.apply(vec![plan]);
        assert_eq!(node_status(&upstreams, "b").state, State::In);
    });
}
