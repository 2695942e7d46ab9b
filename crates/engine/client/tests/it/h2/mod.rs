//! HTTP/2 to origins: to honest ones, of the `h2` crate, and to hostile ones.

mod faults;
mod flow;
mod messages;
mod origin;
mod timeouts;

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use apus_client::{
    Address, ClientRequest, ClientRequestHead, ClientResponse, MultiplexedClient, Origin,
    OriginConnection, Protocol, ProxyHead, RequestFailure, RequestTemplate, ResponseRules,
    Timeouts, connect,
};
use apus_http::{Body, Headers, Method};
use apus_testkit::{collect, eventually};
use tokio::task::LocalSet;

use crate::harness::{PATIENCE, text};

/// Runs a test on one thread, as a worker runs its connections.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async { tokio::time::timeout(PATIENCE, test).await };
    LocalSet::new()
        .block_on(&runtime, test)
        .expect("the test to end in time");
}

/// Connects with prior knowledge.
async fn open(address: SocketAddr) -> MultiplexedClient {
    open_with(address, &Timeouts::default()).await
}

async fn open_with(address: SocketAddr, timeouts: &Timeouts) -> MultiplexedClient {
    match connect(&origin_at(address), None, timeouts).await.unwrap() {
        OriginConnection::Multiplexed(connection) => connection,
        other => panic!("chosen: {other:?}"),
    }
}

/// An origin with prior knowledge.
fn origin_at(address: SocketAddr) -> Origin {
    Origin {
        address: Address::Ip(address),
        tls: None,
        protocol: Protocol::Http2,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    }
}

fn head(method: Method, target: &str) -> ClientRequestHead {
    ClientRequestHead {
        method,
        scheme: "http",
        authority: "example.com".into(),
        target: target.into(),
        headers: Headers::new(),
        upgrade: None,
        te_trailers: false,
        expects_continue: false,
        params: None,
    }
}

fn request(head: ClientRequestHead, body: impl Into<Body>) -> ClientRequest {
    ClientRequest {
        template: RequestTemplate {
            head: Rc::new(head),
            interim: None,
            timeouts: Rc::default(),
            stderr: None,
        },
        body: body.into(),
    }
}

fn get(target: &str) -> ClientRequest {
    request(head(Method::GET, target), Body::Empty)
}

fn post(target: &str, body: impl Into<Body>) -> ClientRequest {
    request(head(Method::POST, target), body)
}

fn with_timeouts(mut request: ClientRequest, timeouts: &Timeouts) -> ClientRequest {
    request.template.timeouts = Rc::new(timeouts.clone());
    request
}

/// The body of a response, with its trailers in brackets.
async fn read_body(response: &mut ClientResponse) -> Vec<u8> {
    collect(&mut response.body).await.unwrap()
}

async fn fetch(connection: &MultiplexedClient, request: ClientRequest) -> (u16, String) {
    let mut response = connection.send(request).await.unwrap();
    let body = read_body(&mut response).await;
    (response.status.as_u16(), text(&body))
}

async fn failure(connection: &MultiplexedClient, request: ClientRequest) -> RequestFailure {
    connection.send(request).await.expect_err("no response")
}
