//! Connections to nodes with HTTP/2, and gRPC health checks, against the `h2` crate.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use apus_client::Protocol;
use apus_http::Method;
use apus_upstream::plan::{CheckKind, CheckPlan, GroupPlan};
use apus_upstream::{NodeAvailability, OutReason};
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};

use crate::harness::{
    Gate, eventually, get, group, in_flight, node, node_status, plain, run, send, spawn_get, status,
};

/// An origin on the thread of the test.
struct Origin {
    address: SocketAddr,
    connections: Rc<Cell<usize>>,
    requests: Rc<Cell<usize>>,
    accepting: JoinHandle<()>,
}

impl Origin {
    /// Starts an origin with this limit of concurrent streams, which calls `handle` for each request.
    async fn start(
        streams: u32,
        handle: impl AsyncFn(Request<RecvStream>, SendResponse<Bytes>) + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests): (Rc<Cell<usize>>, Rc<Cell<usize>>) = Default::default();
        let (connected, came) = (Rc::clone(&connections), Rc::clone(&requests));
        let handle = Rc::new(handle);
        let accepting = spawn_local(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                connected.set(connected.get() + 1);
                let (handle, came) = (Rc::clone(&handle), Rc::clone(&came));
                spawn_local(async move {
                    let mut settings = h2::server::Builder::new();
                    settings.max_concurrent_streams(streams);
                    let Ok(mut connection) = settings.handshake(socket).await else {
                        return;
                    };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        came.set(came.get() + 1);
                        let handle = Rc::clone(&handle);
                        spawn_local(async move { handle(request, respond).await });
                    }
                });
            }
        });
        Self {
            address,
            connections,
            requests,
            accepting,
        }
    }

    /// Starts an origin that responds after it passed the gate.
    async fn gated(streams: u32, gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::start(streams, async move |_, mut respond| {
            gate.pass().await;
            // An error means that the client is gone.
            if let Ok(mut body) = respond.send_response(Response::new(()), false) {
                let _ = body.send_data("ok".into(), true);
            }
        })
        .await
    }

    fn plan(&self) -> GroupPlan {
        let mut plan = plain(vec![node("a", self.address)]);
        plan.protocol = Protocol::Http2;
        plan
    }
}

#[test]
fn shares_one_connection_among_requests_that_come_together() {
    run(async {
        let gate = Gate::shut();
        let origin = Origin::gated(100, &gate).await;
        let (upstreams, group) = group(origin.plan());
        let tasks: Vec<_> = (0..50).map(|_| spawn_get(&group)).collect();
        eventually("all are there", || origin.requests.get() == 50).await;
        assert_eq!(in_flight(&upstreams), 50);
        gate.let_through(50);
        for task in tasks {
            let mut response = task.await.unwrap().unwrap();
            assert_eq!(crate::harness::read(&mut response).await, "ok");
        }
        assert_eq!(origin.connections.get(), 1);
        assert_eq!(in_flight(&upstreams), 0);
    });
}

#[test]
fn opens_another_connection_when_one_has_all_its_streams() {
    run(async {
        let gate = Gate::shut();
        let origin = Origin::gated(2, &gate).await;
        let (_, group) = group(origin.plan());
        // The SETTINGS of the origin have arrived by now.
        gate.let_through(1);
        get(&group).await;
        let tasks: Vec<_> = (0..4).map(|_| spawn_get(&group)).collect();
        eventually("all are there", || origin.requests.get() == 5).await;
        gate.let_through(4);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert!((2..=3).contains(&origin.connections.get()));
    });
}

#[test]
fn handles_an_origin_that_allows_fewer_streams_than_requests_at_the_start() {
    run(async {
        let gate = Gate::shut();
        let origin = Origin::gated(2, &gate).await;
        let (upstreams, group) = group(origin.plan());
        gate.let_through(100);
        let tasks: Vec<_> = (0..12).map(|_| spawn_get(&group)).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let failures = node_status(&upstreams, "a").failures;
        assert!(
            failures.iter().all(|&(_, count)| count == 0),
            "{failures:?}"
        );
    });
}

#[test]
fn resets_only_the_stream_of_a_client_that_is_gone() {
    run(async {
        let gate = Gate::shut();
        let origin = Origin::gated(100, &gate).await;
        let (upstreams, group) = group(origin.plan());
        let stays = spawn_get(&group);
        let goes = spawn_get(&group);
        eventually("both are there", || origin.requests.get() == 2).await;
        goes.abort();
        eventually("one is left", || in_flight(&upstreams) == 1).await;
        gate.let_through(2);
        stays.await.unwrap().unwrap();
        gate.let_through(1);
        get(&group).await;
        assert_eq!(origin.connections.get(), 1);
    });
}

#[test]
fn sends_again_over_a_new_connection_when_the_old_one_ended() {
    run(async {
        let gate = Gate::shut();
        gate.let_through(100);
        let origin = Origin::gated(100, &gate).await;
        let mut plan = origin.plan();
        plan.pool.max_requests = 2;
        let (upstreams, group) = group(plan);
        for _ in 0..6 {
            send(&group, Method::POST).await.unwrap();
        }
        assert_eq!(origin.connections.get(), 3);
        assert_eq!(status(&upstreams).totals.reconnects, 0);
        origin.accepting.abort();
    });
}

/// Starts a gRPC health service whose status the test can change.
async fn health_service(status: &Rc<Cell<Option<u8>>>) -> Origin {
    let status = Rc::clone(status);
    Origin::start(100, async move |request, mut respond| {
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        assert_eq!(request.headers()["content-type"], "application/grpc");
        assert_eq!(request.headers()["te"], "trailers");
        let mut body = request.into_body();
        let mut message = Vec::new();
        while let Some(Ok(data)) = body.data().await {
            message.extend_from_slice(&data);
        }
        assert_eq!(message, *b"\0\0\0\0\x05\x0a\x03app");
        let head = Response::builder().header("content-type", "application/grpc");
        let Some(status) = status.get() else {
            // The response for an unknown service.
            let head = head.header("grpc-status", "12").body(()).unwrap();
            let _ = respond.send_response(head, true);
            return;
        };
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        if let Ok(mut body) = respond.send_response(head.body(()).unwrap(), false) {
            let _ = body.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false);
            let _ = body.send_trailers(trailers);
        }
    })
    .await
}

#[test]
fn checks_the_grpc_health_service() {
    run(async {
        let served_status = Rc::new(Cell::new(Some(1)));
        let origin = health_service(&served_status).await;
        let mut plan = origin.plan();
        // The checks use HTTP/2 whatever the protocol of the group is.
        plan.protocol = Protocol::Http1;
        plan.active = Some(CheckPlan {
            interval: Duration::from_millis(10),
            rise: 1,
            fall: 1,
            ..CheckPlan::new(CheckKind::Grpc {
                service: "app".into(),
            })
        });
        let (upstreams, _group) = group(plan);
        let checking = upstreams.clone();
        spawn_local(async move { checking.run_checks().await });
        let node = || node_status(&upstreams, "a");
        eventually("it was checked", || node().last_check.is_some()).await;
        assert_eq!(node().last_check.unwrap().fault, None);
        for (status, fault) in [(Some(2), "not serving"), (None, "gRPC status 12")] {
            served_status.set(status);
            let found = || node().last_check.and_then(|check| check.fault);
            eventually(fault, || found().as_deref() == Some(fault)).await;
            assert_eq!(node().state, NodeAvailability::Out(OutReason::Checks, None));
            served_status.set(Some(1));
            eventually("it is back", || node().state == NodeAvailability::In).await;
        }
    });
}
