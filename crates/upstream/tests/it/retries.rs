//! What is tried again, and what is not.

use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use apus_http::{Body, BodyError, BodyStream, Frame, Method, StatusCode};
use apus_net::client::{FailureCause, RequestPhase};
use apus_upstream::plan::{BudgetPlan, GroupPlan, RetryPlan};
use apus_upstream::{AttemptOutcome, Context, FailedKind, FailureKind};
use bytes::Bytes;

use crate::harness::{
    Gate, OK, Origin, Reply, eventually, get, get_beside, group, in_flight, nobody, node,
    node_status, plain, read, request, run, send, status,
};

fn with_tries(tries: u32, nodes: Vec<apus_upstream::plan::NodePlan>) -> GroupPlan {
    let mut plan = plain(nodes);
    plan.retry.tries = tries;
    plan
}

async fn dying() -> Origin {
    Origin::start(async |_| Reply::Close).await
}

#[test]
fn sends_to_another_node_what_was_not_sent() {
    run(async {
        let good = Origin::sending(OK).await;
        let dead = node("dead", nobody().await);
        let (_, group) = group(with_tries(2, vec![dead, good.node("good")]));
        for method in [Method::POST, Method::GET, Method::POST, Method::PATCH] {
            let delivered = send(&group, method).await.unwrap();
            assert_eq!(&*delivered.node.name, "good");
        }
        assert_eq!(good.requests(), 4);
    });
}

#[test]
fn tells_what_was_tried_before() {
    run(async {
        let good = Origin::sending(OK).await;
        let dying = dying().await;
        let plan = with_tries(2, vec![dying.node("dying"), good.node("good")]);
        let (_, group) = group(plan);
        let mut all = Vec::new();
        for _ in 0..2 {
            all.push(get(&group).await.attempts);
        }
        let tried: Vec<_> = all.iter().flatten().collect();
        assert_eq!(tried.len(), 1);
        assert_eq!(&*tried[0].node.name, "dying");
        let AttemptOutcome::Failed(failure) = &tried[0].outcome else {
            panic!("{:?}", tried[0].outcome);
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
fn does_not_repeat_a_post_that_was_sent() {
    run(async {
        let (first, second) = (dying().await, dying().await);
        let nodes = vec![first.node("first"), second.node("second")];
        let (_, group) = group(with_tries(5, nodes));
        for count in 1..=10 {
            let failed = send(&group, Method::POST).await.unwrap_err();
            assert!(matches!(failed.kind, FailedKind::Node { .. }));
            assert!(failed.attempts.is_empty());
            assert_eq!(first.requests() + second.requests(), count);
        }
    });
}

#[test]
fn repeats_a_post_that_was_sent_where_the_plan_says_so() {
    run(async {
        let (dying, good) = (dying().await, Origin::sending(OK).await);
        let mut plan = with_tries(2, vec![dying.node("dying"), good.node("good")]);
        plan.retry.non_idempotent = true;
        let (_, group) = group(plan);
        for _ in 0..4 {
            send(&group, Method::POST).await.unwrap();
        }
        assert_eq!((dying.requests(), good.requests()), (2, 4));
    });
}

struct Pieces(u32);

impl BodyStream for Pieces {
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
fn sends_streamed_content_to_another_node_only_if_none_of_it_was_taken() {
    run(async {
        let good = Origin::sending(OK).await;
        let dead = node("dead", nobody().await);
        let dying = dying().await;
        let nodes = vec![dead, dying.node("dying"), good.node("good")];
        let (_, group) = group(with_tries(3, nodes));
        let mut answered = 0;
        for _ in 0..6 {
            let mut put = request(&group, Method::PUT);
            put.body = Body::stream(Pieces(3));
            let context = Context {
                idempotent: true,
                ..Context::default()
            };
            match group.send(put, context).await {
                Ok(delivered) => {
                    assert_eq!(&*delivered.node.name, "good");
                    answered += 1;
                }
                Err(failed) => {
                    let FailedKind::Node { node, .. } = failed.kind else {
                        panic!("{failed:?}");
                    };
                    assert_eq!(&*node.name, "dying");
                }
            }
        }
        assert!((2..=4).contains(&answered), "{answered}");
        assert_eq!(dying.requests(), 6 - answered);
        assert!(good.seen().iter().all(|seen| seen.head.contains("ontent-")));
    });
}

#[test]
fn sends_content_in_memory_again() {
    run(async {
        let (dying, good) = (dying().await, Origin::sending(OK).await);
        let (_, group) = group(with_tries(2, vec![dying.node("dying"), good.node("good")]));
        for _ in 0..2 {
            let mut put = request(&group, Method::PUT);
            put.body = "content".into();
            let context = Context {
                idempotent: true,
                ..Context::default()
            };
            group.send(put, context).await.unwrap();
        }
        assert_eq!((dying.requests(), good.requests()), (1, 2));
    });
}

#[test]
fn asks_another_node_after_a_status_and_passes_it_on_if_there_is_none() {
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
        let mut delivered = send(&only, Method::GET).await.unwrap();
        assert_eq!(delivered.response.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(read(&mut delivered).await, "busy");

        // What was sent and is not idempotent stays with its answer.
        let delivered = send(&both, Method::POST).await.unwrap();
        let other = send(&both, Method::POST).await.unwrap();
        let statuses = [delivered.response.status, other.response.status];
        assert!(statuses.contains(&StatusCode::SERVICE_UNAVAILABLE));
    });
}

#[test]
fn bounds_a_storm_of_retries_by_the_budget() {
    run(async {
        let (first, second, third) = (dying().await, dying().await, dying().await);
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
fn tries_no_more_often_and_no_longer_than_the_plan_says() {
    run(async {
        let origins = [dying().await, dying().await, dying().await, dying().await];
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
fn asks_a_second_node_when_the_first_is_slow_and_takes_the_first_answer() {
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
        // The slow attempts are over: their connections are closed.
        eventually("the frozen connections are closed", || frozen.open() == 0).await;
        assert_eq!(in_flight(&upstreams), 0);
    });
}

#[test]
fn waits_for_the_slow_node_if_the_second_fails() {
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
        let dying = Origin::start(async move |_| {
            gate.let_through(1);
            Reply::Close
        })
        .await;
        let mut plan = plain(vec![slow.node("slow"), dying.node("dying")]);
        plan.retry.tries = 2;
        plan.retry.hedge = Some(Duration::from_millis(20));
        let (_, group) = group(plan);
        let mut hedged = None;
        for _ in 0..2 {
            let delivered = get(&group).await;
            assert_eq!(&*delivered.node.name, "slow");
            if !delivered.attempts.is_empty() {
                hedged = Some(delivered);
            }
        }
        assert_eq!(&*hedged.unwrap().attempts[0].node.name, "dying");
    });
}

#[test]
fn does_not_hedge_what_is_not_idempotent() {
    run(async {
        let gate = Gate::shut();
        let answer = |gate: Gate| {
            async move |_| {
                gate.pass().await;
                Reply::Send(OK.into())
            }
        };
        let first = Origin::start(answer(gate.clone())).await;
        let second = Origin::start(answer(gate.clone())).await;
        let mut plan = plain(vec![first.node("first"), second.node("second")]);
        plan.retry.tries = 2;
        plan.retry.hedge = Some(Duration::from_millis(1));
        let (upstreams, group) = group(plan);
        let post = send(&group, Method::POST);
        let open = async {
            let count = || first.requests() + second.requests();
            eventually("the request is there", || count() == 1).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            gate.let_through(1);
        };
        let (sent, ()) = tokio::join!(post, open);
        sent.unwrap();
        assert_eq!(first.requests() + second.requests(), 1);
        assert_eq!(status(&upstreams).totals.hedges, 0);
    });
}

#[test]
fn counts_a_request_that_takes_too_long_in_all_against_its_node() {
    run(async {
        let frozen = Origin::start(async |_| Reply::Freeze).await;
        let mut plan = plain(vec![frozen.node("frozen")]);
        plan.total_timeout = Some(Duration::from_millis(50));
        let (upstreams, group) = group(plan);
        let failed = get_beside(&group).await.unwrap().unwrap_err();
        let FailedKind::Node { failure, .. } = failed.kind else {
            panic!("{failed:?}");
        };
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        let failures = node_status(&upstreams, "frozen").failures;
        assert!(failures.contains(&(FailureKind::TimedOut, 1)));
    });
}

/// Content that never comes.
struct Stalled;

impl BodyStream for Stalled {
    fn poll_frame(&mut self, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Pending
    }

    fn remaining(&self) -> Option<u64> {
        Some(100)
    }
}

#[test]
fn does_not_blame_a_node_for_a_client_that_is_slow() {
    run(async {
        let origin = Origin::sending(OK).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.total_timeout = Some(Duration::from_millis(50));
        let (upstreams, group) = group(plan);
        let mut put = request(&group, Method::PUT);
        put.body = Body::stream(Stalled);
        let failed = group.send(put, Context::default()).await.unwrap_err();
        assert!(matches!(failed.kind, FailedKind::Node { .. }));
        let failures = node_status(&upstreams, "a").failures;
        assert!(failures.iter().all(|&(_, count)| count == 0));
        assert_eq!(in_flight(&upstreams), 0);
    });
}

#[test]
fn ends_content_that_takes_too_long_in_all() {
    run(async {
        // A head and a part of the content, and nothing more.
        let stalling = Origin::start(async |_| {
            Reply::Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart".into())
        })
        .await;
        let mut plan = plain(vec![stalling.node("stalling")]);
        plan.total_timeout = Some(Duration::from_millis(100));
        let (upstreams, group) = group(plan);
        let mut delivered = send(&group, Method::GET).await.unwrap();
        let first = delivered.response.body.frame().await.unwrap().unwrap();
        assert!(matches!(first, Frame::Data(bytes) if bytes == "part"));
        let end = delivered.response.body.frame().await.unwrap();
        assert!(matches!(end, Err(BodyError::TimedOut)), "{end:?}");
        assert_eq!(in_flight(&upstreams), 0);
    });
}
