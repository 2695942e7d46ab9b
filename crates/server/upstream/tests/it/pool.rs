//! The reuse, sharing and closing of connections.

use std::time::Duration;

use apus_client::{FailureCause, Protocol, ProxyHead, RequestPhase};
use apus_codec::proxy_protocol;
use apus_http::Method;
use apus_upstream::plan::ConnectionPoolPlan;
use apus_upstream::{FailureKind, RequestContext, UpstreamErrorKind};

use crate::harness::{
    OK, Origin, Reply, eventually, get, group, node, node_status, plain, refusing, request, run,
    send, status,
};

#[test]
fn uses_the_connection_that_was_used_last() {
    run(async {
        let origin = Origin::sending(OK).await;
        let (_, group) = group(plain(vec![origin.node("a")]));
        let (first, second) = tokio::join!(get(&group), get(&group));
        drop((first, second));
        assert_eq!(origin.connections(), 2);
        for _ in 0..5 {
            get(&group).await;
        }
        let seen = origin.received();
        let last = seen[2].connection;
        assert!(seen[2..].iter().all(|seen| seen.connection == last));
        assert_eq!(origin.connections(), 2);
    });
}

#[test]
fn closes_a_connection_after_its_last_request_with_connection_close() {
    run(async {
        let origin = Origin::sending(OK).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.pool.max_requests = 2;
        let (_, group) = group(plan);
        for _ in 0..6 {
            get(&group).await;
        }
        assert_eq!(origin.connections(), 3);
        let closes: Vec<bool> = origin
            .received()
            .iter()
            .map(|seen| seen.head.to_ascii_lowercase().contains("connection: close"))
            .collect();
        assert_eq!(closes, [false, true, false, true, false, true]);
    });
}

#[test]
fn keeps_no_more_connections_than_the_plan_says() {
    run(async {
        let origin = Origin::sending(OK).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.pool.max_idle = 1;
        let (_, one) = group(plan.clone());
        tokio::join!(get(&one), get(&one), get(&one));
        eventually("one is left", || origin.open() == 1).await;
        plan.pool.max_idle = 0;
        let (_, none) = group(plan);
        get(&none).await;
        eventually("none is left of it", || origin.open() == 1).await;
    });
}

#[test]
fn closes_idle_connections() {
    run(async {
        let origin = Origin::sending(OK).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.pool = ConnectionPoolPlan {
            idle_timeout: Duration::from_millis(100),
            ..ConnectionPoolPlan::default()
        };
        let (_, group) = group(plan);
        tokio::join!(get(&group), get(&group));
        assert_eq!(origin.connections(), 2);
        eventually("they are closed", || origin.open() == 0).await;
        get(&group).await;
        assert_eq!(origin.connections(), 3);
    });
}

/// Returns a response with this `Keep-Alive` header.
fn ok_with(keep_alive: &str) -> String {
    OK.replacen("\r\n", &format!("\r\nKeep-Alive: {keep_alive}\r\n"), 1)
}

#[test]
fn closes_idle_connections_before_the_keep_alive_timeout_of_the_node() {
    run(async {
        let origin = Origin::sending(ok_with("timeout=1")).await;
        let (upstreams, group) = group(plain(vec![origin.node("a")]));
        for _ in 0..3 {
            get(&group).await;
        }
        assert_eq!(origin.connections(), 1);
        // The origin would never close it, and the plan only after a minute.
        eventually("it is closed", || origin.open() == 0).await;
        get(&group).await;
        assert_eq!(origin.connections(), 2);
        assert_eq!(status(&upstreams).totals.reconnects, 0);
    });
}

#[test]
fn does_not_reuse_a_connection_after_the_last_request_by_keep_alive() {
    for last in ["timeout=5, max=0", "timeout=0"] {
        run(async {
            let origin = Origin::sending(ok_with(last)).await;
            let (_, group) = group(plain(vec![origin.node("a")]));
            for _ in 0..3 {
                send(&group, Method::POST).await.unwrap();
            }
            assert_eq!(origin.connections(), 3, "{last}");
        });
    }
}

#[test]
fn closes_connections_at_their_maximum_age() {
    run(async {
        let origin = Origin::sending(OK).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.pool.max_age = Duration::from_nanos(1);
        let (_, group) = group(plan);
        for _ in 0..3 {
            get(&group).await;
        }
        assert_eq!(origin.connections(), 3);
    });
}

#[test]
fn notices_a_closed_connection_before_it_is_used() {
    run(async {
        let origin = Origin::start(async |_| Reply::SendAndClose(OK.into())).await;
        let (upstreams, group) = group(plain(vec![origin.node("a")]));
        for count in 1..=3 {
            // Not idempotent, so it cannot be sent again.
            send(&group, Method::POST).await.unwrap();
            assert_eq!(origin.connections(), count);
            eventually("it is closed", || origin.open() == 0).await;
            // Lets the runtime process the end of the connection.
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(status(&upstreams).totals.reconnects, 0);
    });
}

/// Starts an origin that responds to the first request of a connection and closes it at the second.
async fn closing_at_second_request() -> Origin {
    let last = std::cell::Cell::new(usize::MAX);
    Origin::start(async move |seen| {
        if last.replace(seen.connection) == seen.connection {
            Reply::Close
        } else {
            Reply::Send(OK.into())
        }
    })
    .await
}

#[test]
fn retries_over_a_new_connection_after_a_closed_one() {
    run(async {
        let origin = closing_at_second_request().await;
        let (upstreams, group) = group(plain(vec![origin.node("a")]));
        for _ in 0..4 {
            assert!(get(&group).await.attempts.is_empty());
        }
        assert_eq!((origin.requests(), origin.connections()), (7, 4));
        assert_eq!(status(&upstreams).totals.reconnects, 3);
        let node = node_status(&upstreams, "a");
        assert!(node.failures.iter().all(|&(_, count)| count == 0));
    });
}

#[test]
fn does_not_retry_a_post_after_a_closed_connection() {
    run(async {
        let origin = closing_at_second_request().await;
        let (upstreams, group) = group(plain(vec![origin.node("a")]));
        get(&group).await;
        let failed = send(&group, Method::POST).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::Node { .. }));
        assert_eq!(origin.requests(), 2);
        let failures = node_status(&upstreams, "a").failures;
        assert!(failures.contains(&(FailureKind::Closed, 1)));
    });
}

#[test]
fn shares_no_connection_between_clients_of_proxy_headers() {
    run(async {
        let origin = Origin::sending(OK).await;
        let mut plan = plain(vec![origin.node("a")]);
        plan.proxy_head = ProxyHead::V1;
        let (_, group) = group(plan);
        let client = |port: u16| proxy_protocol::ProxyHeader {
            source: Some(([192, 0, 2, 1], port).into()),
            destination: Some(([198, 51, 100, 1], 443).into()),
        };
        for port in [1000, 2000, 1000, 2000, 3000] {
            let context = RequestContext {
                client: Some(client(port)),
                ..RequestContext::default()
            };
            group
                .send(request(&group, Method::GET), context)
                .await
                .unwrap();
        }
        assert_eq!(origin.connections(), 3);
        let named: Vec<Option<String>> = origin
            .received()
            .iter()
            .map(|seen| {
                let line = seen.head.lines().next().unwrap();
                line.starts_with("PROXY ").then(|| line.to_owned())
            })
            .collect();
        let head = |port: u16| Some(format!("PROXY TCP4 192.0.2.1 198.51.100.1 {port} 443"));
        assert_eq!(named, [head(1000), head(2000), None, None, head(3000)]);
    });
}

#[test]
fn fails_all_requests_that_wait_for_a_connection_that_cannot_be_opened() {
    run(async {
        let mut plan = plain(vec![node("dead", refusing().await)]);
        plan.protocol = Protocol::Http2;
        let (upstreams, group) = group(plan);
        let (a, b, c) = tokio::join!(
            send(&group, Method::GET),
            send(&group, Method::GET),
            send(&group, Method::POST),
        );
        for failed in [a, b, c].map(Result::unwrap_err) {
            let UpstreamErrorKind::Node { failure, .. } = failed.kind else {
                panic!("{failed:?}");
            };
            assert_eq!(failure.phase, RequestPhase::Connect);
            assert!(matches!(failure.cause, FailureCause::Io(_)) && !failure.request_sent);
        }
        let failures = node_status(&upstreams, "dead").failures;
        assert!(failures.contains(&(FailureKind::Connect, 3)));
    });
}
