//! Limits on requests at once.

use std::rc::Rc;
use std::time::Duration;

use apus_handler::TrustedProxies;
use apus_http::{Response, Service, StatusCode};
use apus_layers::{ConcurrentRequests, LimitKey};
use apus_testkit::LocalClient;
use tokio::task::JoinHandle;

use crate::harness::{Routes, head};

fn app(limit: ConcurrentRequests) -> Routes {
    let local = "127.0.0.0/8".parse().unwrap();
    Routes::new()
        .layer(TrustedProxies::new([local]))
        .layer(limit)
        .get("/", async || "well")
        .get("/slow", async || std::future::pending::<()>().await)
}

/// Sends a request of a client at this address.
fn send(service: &Rc<dyn Service>, path: &str, address: &str) -> JoinHandle<Response> {
    let line = format!("X-Forwarded-For: {address}");
    let request = head("GET", path, &[&line]).request();
    let service = Rc::clone(service);
    tokio::task::spawn_local(async move { service.call(request).wait().await })
}

/// Lets all tasks go on as far as they can.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

async fn status(response: JoinHandle<Response>) -> u16 {
    response.await.unwrap().status().as_u16()
}

/// A response that was not sent yet.
struct Unsent(Response);

impl Unsent {
    async fn of(response: JoinHandle<Response>) -> Self {
        Self(response.await.unwrap())
    }
}

#[test]
fn a_request_counts_until_its_response_was_sent_or_its_client_is_gone() {
    let client = LocalClient::of(&app(ConcurrentRequests::new(2).name("at-once")));
    let service = Rc::clone(client.service());
    client.run(async {
        let first = Unsent::of(send(&service, "/", "192.0.2.1")).await;
        let field = |name: &str| first.0.headers().get_str(name).map(str::to_owned);
        assert_eq!(field("ratelimit").unwrap(), "\"at-once\";r=1");
        let policy = field("ratelimit-policy").unwrap();
        assert_eq!(policy, "\"at-once\";q=2;qu=\"concurrent-requests\"");
        let abandoned = send(&service, "/slow", "192.0.2.1");
        settle().await;
        let refused = send(&service, "/", "192.0.2.1").await.unwrap();
        assert_eq!(refused.status().as_u16(), 503);
        assert_eq!(refused.headers().get_str("retry-after"), Some("1"));
        // Another client is not concerned.
        assert_eq!(status(send(&service, "/", "192.0.2.2")).await, 200);
        drop(first);
        let second = Unsent::of(send(&service, "/", "192.0.2.1")).await;
        assert_eq!(second.0.status().as_u16(), 200);
        assert_eq!(status(send(&service, "/", "192.0.2.1")).await, 503);
        abandoned.abort();
        settle().await;
        assert_eq!(status(send(&service, "/", "192.0.2.1")).await, 200);
    });
}

#[test]
fn a_tunnel_counts_until_it_is_closed_and_not_only_until_its_head_was_sent() {
    let app = Routes::new()
        .layer(ConcurrentRequests::new(1).by_key(LimitKey::all()))
        .get("/", async || {
            let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
            response.set_tunnel(Box::new(|_| Box::pin(std::future::pending())));
            response
        });
    let client = LocalClient::of(&app);
    let service = Rc::clone(client.service());
    client.run(async {
        let mut opened = send(&service, "/", "192.0.2.1").await.unwrap();
        let tunnel = opened.take_tunnel();
        assert!(tunnel.is_some());
        drop(opened);
        assert_eq!(status(send(&service, "/", "192.0.2.1")).await, 503);
        drop(tunnel);
        assert_eq!(status(send(&service, "/", "192.0.2.1")).await, 101);
    });
}

#[test]
fn requests_wait_in_a_queue_in_which_clients_take_turns() {
    let limit = ConcurrentRequests::new(1)
        .by_key(LimitKey::all())
        .queue(3, Duration::from_secs(600));
    let handle = limit.handle().clone();
    let client = LocalClient::of(&app(limit));
    let service = Rc::clone(client.service());
    client.run(async {
        let running = Unsent::of(send(&service, "/", "192.0.2.1")).await;
        let busy = [0, 1, 2].map(|_| send(&service, "/", "192.0.2.1"));
        settle().await;
        assert_eq!(status(send(&service, "/", "192.0.2.1")).await, 503);
        // The queue is full, and the client that waits most makes room.
        let other = send(&service, "/", "192.0.2.2");
        settle().await;
        let [first, second, last] = busy;
        assert_eq!(status(last).await, 503);
        drop(running);
        // Each response that is dropped gives its place to the next one.
        let statuses = tokio::join!(status(other), status(first), status(second));
        assert_eq!(statuses, (200, 200, 200));
    });
    let counts = handle.counts();
    assert_eq!((counts.allowed, counts.delayed, counts.refused), (4, 3, 2));
}

#[test]
fn a_request_waits_no_longer_than_the_time_of_the_queue() {
    let limit = ConcurrentRequests::new(1).queue(5, Duration::from_millis(20));
    let client = LocalClient::of(&app(limit));
    let service = Rc::clone(client.service());
    client.run(async {
        let running = Unsent::of(send(&service, "/", "192.0.2.1")).await;
        assert_eq!(status(send(&service, "/", "192.0.2.1")).await, 503);
        drop(running);
        assert_eq!(status(send(&service, "/", "192.0.2.1")).await, 200);
    });
}

#[test]
fn a_dry_run_of_requests_at_once_refuses_none() {
    let limit = ConcurrentRequests::new(1)
        .queue(1, Duration::from_secs(1))
        .dry_run();
    let handle = limit.handle().clone();
    let client = LocalClient::of(&app(limit));
    let service = Rc::clone(client.service());
    client.run(async {
        let mut unsent = Vec::new();
        for _ in 0..4 {
            let response = Unsent::of(send(&service, "/", "192.0.2.1")).await;
            assert_eq!(response.0.status().as_u16(), 200);
            assert_eq!(response.0.headers().get_str("ratelimit"), None);
            unsent.push(response);
        }
    });
    let counts = handle.counts();
    assert_eq!(
        (counts.allowed, counts.would_delay, counts.would_refuse),
        (2, 1, 2)
    );
}
