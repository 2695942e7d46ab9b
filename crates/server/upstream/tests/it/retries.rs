//! Retries and hedging.

use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use apus_client::{FailureCause, RequestPhase};
use apus_http::{Body, BodyError, BodyStream, Frame, Method, StatusCode};
use apus_upstream::plan::{BudgetPlan, GroupPlan, RetryPlan};
use apus_upstream::{AttemptFailure, FailureKind, RequestContext, UpstreamErrorKind};
use bytes::Bytes;

use crate::harness::{
    Gate, OK, Origin, ReceivedRequest, Reply, eventually, get, group, in_flight, node, node_status,
    plain, read, refusing, request, run, send, spawn_get, status,
};

fn with_tries(tries: u32, nodes: Vec<apus_upstream::plan::NodePlan>) -> GroupPlan {
    let mut plan = plain(nodes);
    plan.retry.tries = tries;
    plan
}

async fn closing() -> Origin {
    Origin::start(async |_| Reply::Close).await
}

#[test]
fn retries_requests_that_were_not_sent_at_another_node() {
    run(async {
        let good = Origin::sending(OK).await;
        let dead = node("dead", refusing().await);
        let (_, group) = group(with_tries(2, vec![dead, good.node("good")]));
        for method in [Method::POST, Method::GET, Method::POST, Method::PATCH] {
            let response = send(&group, method).await.unwrap();
            assert_eq!(&*response.node.name, "good");
        }
        assert_eq!(good.requests(), 4);
    });
}

#[test]
fn returns_the_failed_attempts() {
    run(async {
        let good = Origin::sending(OK).await;
        let closing = closing().await;
        let plan = with_tries(2, vec![closing.node("closing"), good.node("good")]);
        let (_, group) = group(plan);
        let mut all = Vec::new();
        for _ in 0..2 {
            all.push(get(&group).await.attempts);
        }
        let tried: Vec<_> = all.iter().flatten().collect();
        assert_eq!(tried.len(), 1);
        assert_eq!(&*tried[0].node.name, "closing");
        let AttemptFailure::NoResponse(failure) = &tried[0].failure else {
            panic!("{:?}", tried[0].failure);
        };
        assert_eq!(failure.phase, RequestPhase::Head);
        assert!(matches!(
            failure.cause,
            FailureCause::Closed | FailureCause::Io(_)
        ));
        assert!(failure.request_sent);
    });
}

#[test]
fn does_not_retry_a_post_that_was_sent() {
    run(async {
        let (first, second) = (closing().await, closing().await);
        let nodes = vec![first.node("first"), second.node("second")];
        let (_, group) = group(with_tries(5, nodes));
        for count in 1..=10 {
            let failed = send(&group, Method::POST).await.unwrap_err();
            assert!(matches!(failed.kind, UpstreamErrorKind::Node { .. }));
            assert!(failed.attempts.is_empty());
            assert_eq!(first.requests() + second.requests(), count);
        }
    });
}

#[test]
fn retries_a_post_that_was_sent_if_the_plan_says_so() {
    run(async {
        let (closing, good) = (closing().await, Origin::sending(OK).await);
        let mut plan = with_tries(2, vec![closing.node("closing"), good.node("good")]);
        plan.retry.non_idempotent = true;
        let (_, group) = group(plan);
        for _ in 0..4 {
            send(&group, Method::POST).await.unwrap();
        }
        assert_eq!((closing.requests(), good.requests()), (2, 4));
    });
}

struct PieceCountdown(u32);

impl BodyStream for PieceCountdown {
    fn poll_frame(&mut self, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.0 = match self.0.checked_sub(1) {
            Some(left) => left,
            None => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(b"piece")))))
    }

    fn remaining(&self) -> Option<u64> {
        Some(u64::from(self.0) * 5)
    }
}

#[test]
fn retries_a_streamed_body_only_if_nothing_of_it_was_sent() {
    run(async {
        let good = Origin::sending(OK).await;
        let dead = node("dead", refusing().await);
        let closing = closing().await;
        let nodes = vec![dead, closing.node("closing"), good.node("good")];
        let (_, group) = group(with_tries(3, nodes));
        let mut responses = 0;
        for _ in 0..6 {
            let mut put = request(&group, Method::PUT);
            put.body = Body::stream(PieceCountdown(3));
            let context = RequestContext {
                idempotent: true,
                ..RequestContext::default()
            };
            match group.send(put, context).await {
                Ok(response) => {
                    assert_eq!(&*response.node.name, "good");
                    responses += 1;
                }
                Err(failed) => {
                    let UpstreamErrorKind::Node { node, .. } = failed.kind else {
                        panic!("{failed:?}");
                    };
                    assert_eq!(&*node.name, "closing");
                }
            }
        }
        assert!((2..=4).contains(&responses), "{responses}");
        assert_eq!(closing.requests(), 6 - responses);
        assert!(
            good.received()
                .iter()
                .all(|seen| seen.head.contains("ontent-"))
        );
    });
}

#[test]
fn retries_a_body_in_memory() {
    run(async {
        let (closing, good) = (closing().await, Origin::sending(OK).await);
        let (_, group) = group(with_tries(
            2,
            vec![closing.node("closing"), good.node("good")],
        ));
        for _ in 0..2 {
            let mut put = request(&group, Method::PUT);
            put.body = "content".into();
            let context = RequestContext {
                idempotent: true,
                ..RequestContext::default()
            };
            group.send(put, context).await.unwrap();
        }
        assert_eq!((closing.requests(), good.requests()), (1, 2));
    });
}

#[test]
fn retries_after_a_status_and_returns_it_if_no_other_node_is_available() {
    run(async {
        let busy = Origin::sending(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nRetry-After: 7\r\n\r\nbusy",
        )
        .await;
        let good = Origin::sending(OK).await;
        let statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
        let mut plan = with_tries(2, vec![busy.node("busy"), good.node("good")]);
        plan.retry.on.statuses.clone_from(&statuses);
        let (_, both) = group(plan);
        for _ in 0..4 {
            assert_eq!(&*get(&both).await.node.name, "good");
        }
        assert_eq!(busy.requests(), 2);

        let mut plan = with_tries(2, vec![busy.node("busy")]);
        plan.retry.on.statuses = statuses;
        let (_, only) = group(plan);
        let mut response = send(&only, Method::GET).await.unwrap();
        assert_eq!(response.response.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(read(&mut response).await, "busy");

        // A request that is not idempotent is not retried.
        let response = send(&both, Method::POST).await.unwrap();
        let other = send(&both, Method::POST).await.unwrap();
        let statuses = [response.response.status, other.response.status];
        assert!(statuses.contains(&StatusCode::SERVICE_UNAVAILABLE));
    });
}

#[test]
fn bounds_retries_by_the_budget() {
    run(async {
        let (first, second, third) = (closing().await, closing().await, closing().await);
        let nodes = vec![first.node("a"), second.node("b"), third.node("c")];
        let mut plan = with_tries(3, nodes);
        plan.retry.budget = BudgetPlan {
            percent: 10,
            min_per_second: 0,
        };
        let (upstreams, group) = group(plan);
        for _ in 0..300 {
            send(&group, Method::GET).await.unwrap_err();
        }
        let requests = first.requests() + second.requests() + third.requests();
        assert!((310..=331).contains(&requests), "{requests}");
        let totals = status(&upstreams).totals;
        assert_eq!(totals.requests, 300);
        assert_eq!(totals.retries as usize, requests - 300);
        assert!(totals.budget_spent > 200);
    });
}

#[test]
fn a_retry_that_finds_no_other_node_costs_no_token_of_the_budget() {
    run(async {
        let busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        let (closing, busy) = (closing().await, Origin::sending(busy).await);
        let gate = Gate::shut();
        let slow = Origin::start({
            let gate = gate.clone();
            async move |_| {
                gate.pass().await;
                Reply::Send(OK.into())
            }
        })
        .await;
        // After a failure, after a status, and beside a slow attempt.
        for (only, tries, hedge) in [(&closing, 2, None), (&busy, 2, None), (&slow, 1, Some(1))] {
            let mut plan = with_tries(tries, vec![only.node("only")]);
            plan.retry.on.statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
            plan.retry.hedge = hedge.map(Duration::from_millis);
            // Ten tokens, and one more each second.
            plan.retry.budget = BudgetPlan {
                percent: 0,
                min_per_second: 1,
            };
            let (upstreams, group) = group(plan);
            for _ in 0..30 {
                let sent = spawn_get(&group);
                if let Some(after) = hedge {
                    tokio::time::sleep(Duration::from_millis(2 * after)).await;
                    gate.let_through(1);
                }
                let _ = sent.await.unwrap();
            }
            let totals = status(&upstreams).totals;
            assert_eq!((totals.retries, totals.hedges), (0, 0));
            assert_eq!(totals.budget_spent, 0, "{tries} tries, hedged: {hedge:?}");
        }
    });
}

#[test]
fn keeps_the_limits_of_tries_and_time() {
    run(async {
        let origins = [
            closing().await,
            closing().await,
            closing().await,
            closing().await,
        ];
        let nodes = || {
            origins
                .iter()
                .map(|origin| origin.node(&origin.address.to_string()))
        };
        let (_, thrice) = group(with_tries(3, nodes().collect()));
        let failed = send(&thrice, Method::GET).await.unwrap_err();
        assert_eq!(failed.attempts.len(), 2);
        let mut plan = with_tries(4, nodes().collect());
        plan.retry.within = Some(Duration::ZERO);
        let (_, once) = group(plan);
        let failed = send(&once, Method::GET).await.unwrap_err();
        assert!(failed.attempts.is_empty());
    });
}

#[test]
fn hedges_a_slow_request_and_returns_the_first_response() {
    run(async {
        let frozen = Origin::start(async |_| Reply::Freeze).await;
        let quick = Origin::sending(OK).await;
        let mut plan = plain(vec![frozen.node("frozen"), quick.node("quick")]);
        plan.retry = RetryPlan {
            tries: 2,
            hedge: Some(Duration::from_millis(20)),
            ..RetryPlan::default()
        };
        let (upstreams, group) = group(plan);
        for _ in 0..4 {
            assert_eq!(&*get(&group).await.node.name, "quick");
        }
        assert_eq!(frozen.requests(), 2);
        assert_eq!(status(&upstreams).totals.hedges, 2);
        // The slow attempts have ended, so their connections are closed.
        eventually("the frozen connections are closed", || frozen.open() == 0).await;
        assert_eq!(in_flight(&upstreams), 0);
    });
}

#[test]
fn waits_for_the_slow_node_if_the_hedged_attempt_fails() {
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
        let closing = Origin::start(async move |_| {
            gate.let_through(1);
            Reply::Close
        })
        .await;
        let mut plan = plain(vec![slow.node("slow"), closing.node("closing")]);
        plan.retry.tries = 2;
        plan.retry.hedge = Some(Duration::from_millis(20));
        let (_, group) = group(plan);
        let mut hedged = None;
        for _ in 0..2 {
            let response = get(&group).await;
            assert_eq!(&*response.node.name, "slow");
            if !response.attempts.is_empty() {
                hedged = Some(response);
            }
        }
        assert_eq!(&*hedged.unwrap().attempts[0].node.name, "closing");
    });
}

#[test]
fn does_not_hedge_a_request_that_is_not_idempotent() {
    run(async {
        let gate = Gate::shut();
        let respond = |gate: Gate| {
            async move |_| {
                gate.pass().await;
                Reply::Send(OK.into())
            }
        };
        let first = Origin::start(respond(gate.clone())).await;
        let second = Origin::start(respond(gate.clone())).await;
        let mut plan = plain(vec![first.node("first"), second.node("second")]);
        plan.retry.tries = 2;
        plan.retry.hedge = Some(Duration::from_millis(1));
        let (upstreams, group) = group(plan);
        let post = send(&group, Method::POST);
        let hedged = send(&group, Method::GET);
        let open = async {
            // The GET begins after the POST, so its second attempt proves that the POST has none.
            let count = || first.requests() + second.requests();
            eventually("the GET is hedged", || count() >= 3).await;
            gate.let_through(3);
        };
        let (posted, got, ()) = tokio::join!(post, hedged, open);
        posted.unwrap();
        got.unwrap();
        let requests = [first.received(), second.received()].concat();
        let is_post = |request: &&ReceivedRequest| request.head.starts_with("POST ");
        assert_eq!(requests.iter().filter(is_post).count(), 1);
        assert_eq!(status(&upstreams).totals.hedges, 1);
    });
}

#[test]
fn counts_the_total_timeout_as_a_failure_of_the_node() {
    run(async {
        let frozen = Origin::start(async |_| Reply::Freeze).await;
        let mut plan = plain(vec![frozen.node("frozen")]);
        plan.total_timeout = Some(Duration::from_millis(50));
        let (upstreams, group) = group(plan);
        let failed = spawn_get(&group).await.unwrap().unwrap_err();
        let UpstreamErrorKind::Node { failure, .. } = failed.kind else {
            panic!("{failed:?}");
        };
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        let failures = node_status(&upstreams, "frozen").failures;
        assert!(failures.contains(&(FailureKind::TimedOut, 1)));
    });
}

/// A body that never comes.
struct StalledBody;

impl BodyStream for StalledBody {
    fn poll_frame(&mut self, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Pending
    }

    fn remaining(&self) -> Option<u64> {
        Some(100)
    }
}

#[test]
fn counts_a_slow_client_as_no_failure_of_the_node() {
    run(async {
        let origin = Origin::sending(OK).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.total_timeout = Some(Duration::from_millis(50));
        let (upstreams, group) = group(plan);
        let mut put = request(&group, Method::PUT);
        put.body = Body::stream(StalledBody);
        let failed = group
            .send(put, RequestContext::default())
            .await
            .unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::Node { .. }));
        let failures = node_status(&upstreams, "a").failures;
        assert!(failures.iter().all(|&(_, count)| count == 0));
        assert_eq!(in_flight(&upstreams), 0);
    });
}

#[test]
fn ends_a_body_at_the_total_timeout() {
    run(async {
        // The head and a part of the body.
        let stalling = Origin::start(async |_| {
            Reply::Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart".into())
        })
        .await;
        let mut plan = plain(vec![stalling.node("stalling")]);
        plan.total_timeout = Some(Duration::from_millis(100));
        let (upstreams, group) = group(plan);
        let mut response = send(&group, Method::GET).await.unwrap();
        let first = response.response.body.frame().await.unwrap().unwrap();
        assert!(matches!(first, Frame::Data(bytes) if bytes == "part"));
        let end = response.response.body.frame().await.unwrap();
        assert!(matches!(end, Err(BodyError::TimedOut)), "{end:?}");
        assert_eq!(in_flight(&upstreams), 0);
    });
}
