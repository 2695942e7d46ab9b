//! The slot and the counters of a node are released however a request ends.

use std::task::Poll;

use apus_http::{BodyError, Frame, Method};
use apus_upstream::plan::{GroupPlan, Strategy};
use apus_upstream::{FailureKind, Upstreams};
use tokio::task::spawn_local;

use crate::harness::{
    OK, Origin, Reply, eventually, get, group, in_flight, node_status, plain, read, request, run,
    send, spawn_get,
};

/// A node with one slot, so that a slot which is not released blocks the next request.
fn strict(origin: &Origin) -> GroupPlan {
    let mut node = origin.node("a");
    node.max_requests = 1;
    let mut plan = plain(vec![node]);
    plan.strategy = Strategy::LeastConnections;
    plan
}

const BEGUN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok";

/// An origin that reacts to the first request with the result of `first`, and responds to the others.
async fn once(first: impl Fn() -> Reply + 'static) -> Origin {
    let is_first = std::cell::Cell::new(true);
    Origin::start(async move |_| {
        if is_first.replace(false) {
            first()
        } else {
            Reply::Send(OK.into())
        }
    })
    .await
}

async fn assert_free(upstreams: &Upstreams, group: &std::rc::Rc<apus_upstream::WorkerGroup>) {
    eventually("nothing is in flight", || in_flight(upstreams) == 0).await;
    get(group).await;
    assert_eq!(in_flight(upstreams), 0);
}

#[test]
fn a_client_that_disconnects_before_the_response_releases_the_slot() {
    run(async {
        let origin = once(|| Reply::Freeze).await;
        let (upstreams, group) = group(strict(&origin));
        let task = spawn_get(&group);
        eventually("it is there", || origin.requests() == 1).await;
        assert_eq!(in_flight(&upstreams), 1);
        task.abort();
        assert_free(&upstreams, &group).await;
    });
}

#[test]
fn a_dropped_response_body_releases_the_slot() {
    run(async {
        let origin = once(|| Reply::Send(BEGUN.into())).await;
        let (upstreams, group) = group(strict(&origin));
        let mut response = send(&group, Method::GET).await.unwrap();
        let frame = response.response.body.frame().await.unwrap().unwrap();
        assert!(matches!(frame, Frame::Data(bytes) if bytes == "ok"));
        assert_eq!(in_flight(&upstreams), 1);
        drop(response);
        assert_free(&upstreams, &group).await;
        let failures = node_status(&upstreams, "a").failures;
        assert!(failures.iter().all(|&(_, count)| count == 0));
    });
}

#[test]
fn an_incomplete_response_body_releases_the_slot() {
    run(async {
        let origin = once(|| Reply::SendAndClose(BEGUN.into())).await;
        let (upstreams, group) = group(strict(&origin));
        let mut response = send(&group, Method::GET).await.unwrap();
        let mut end = response.response.body.frame().await.unwrap();
        while end.is_ok() {
            end = response.response.body.frame().await.unwrap();
        }
        assert!(matches!(end, Err(BodyError::Disconnected)), "{end:?}");
        // The response itself is still there.
        assert_free(&upstreams, &group).await;
        let failures = node_status(&upstreams, "a").failures;
        assert!(failures.contains(&(FailureKind::Body, 1)));
    });
}

#[test]
fn a_complete_response_releases_the_slot() {
    run(async {
        let origin = Origin::sending(OK).await;
        let (upstreams, group) = group(strict(&origin));
        let mut response = send(&group, Method::GET).await.unwrap();
        assert_eq!(read(&mut response).await, "ok");
        assert_free(&upstreams, &group).await;
    });
}

#[test]
fn a_failed_request_releases_the_slot() {
    run(async {
        let origin = once(|| Reply::Close).await;
        let (upstreams, group) = group(strict(&origin));
        send(&group, Method::GET).await.unwrap_err();
        assert_free(&upstreams, &group).await;
    });
}

#[test]
fn a_panic_of_the_service_releases_the_slot() {
    run(async {
        let origin = once(|| Reply::Send(BEGUN.into())).await;
        let (upstreams, group) = group(strict(&origin));
        let panicking = spawn_local({
            let group = std::rc::Rc::clone(&group);
            async move {
                let _delivered = send(&group, Method::GET).await.unwrap();
                panic!("in a service");
            }
        });
        assert!(panicking.await.unwrap_err().is_panic());
        assert_free(&upstreams, &group).await;
    });
}

#[test]
fn a_closed_tunnel_releases_the_slot() {
    run(async {
        let origin = once(|| {
            let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                Upgrade: websocket\r\n\r\nhello";
            Reply::Send(switching.into())
        })
        .await;
        let (upstreams, group) = group(strict(&origin));
        let mut upgrade = request(&group, Method::GET);
        let head = std::rc::Rc::make_mut(&mut upgrade.template.head);
        head.upgrade = Some("websocket".into());
        let mut response = group
            .send(upgrade, apus_upstream::RequestContext::default())
            .await
            .unwrap();
        let mut tunnel = response.response.tunnel.take().unwrap();
        drop(response);
        let mut buffer = [0; 16];
        let read = std::future::poll_fn(|cx| match tunnel.poll_read(cx, &mut buffer) {
            Poll::Ready(read) => Poll::Ready(read.unwrap()),
            Poll::Pending => Poll::Pending,
        })
        .await;
        assert_eq!(&buffer[..read], b"hello");
        assert_eq!(in_flight(&upstreams), 1);
        drop(tunnel);
        assert_free(&upstreams, &group).await;
    });
}
