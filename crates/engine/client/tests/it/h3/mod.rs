//! HTTP/3 to origins that are broken or hostile. What honest ones get and send is tested with the server of `apus-net`.

mod ends;
mod faults;
mod origin;

use std::future::Future;
use std::rc::Rc;

use apus_client::{
    Address, ClientRequest, ClientTlsSettings, MultiplexedClient, Origin, OriginConnection,
    Protocol, ProxyHead, RequestFailure, ResponseRules, Timeouts, Tls, connect,
};

use self::origin::ScriptedOrigin;
use crate::harness::{collect, text};

/// Runs a test on one thread, as a worker runs its connections.
fn run(test: impl Future<Output = ()>) {
    crate::harness::run(test);
}

fn origin_of(origin: &ScriptedOrigin) -> Origin {
    let settings = ClientTlsSettings {
        authorities: Some(vec![origin.authority.der.clone()]),
        ..ClientTlsSettings::new("origin.test")
    };
    Origin {
        address: Address::Ip(origin.address),
        tls: Some(Tls::new(&settings).unwrap()),
        protocol: Protocol::Http3,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    }
}

async fn open(origin: &ScriptedOrigin) -> MultiplexedClient {
    open_with(origin, &Timeouts::default()).await.unwrap()
}

async fn open_with(
    origin: &ScriptedOrigin,
    timeouts: &Timeouts,
) -> Result<MultiplexedClient, RequestFailure> {
    match connect(&origin_of(origin), None, timeouts).await? {
        OriginConnection::Multiplexed(connection) => Ok(connection),
        other => panic!("chosen: {other:?}"),
    }
}

fn with_timeouts(mut request: ClientRequest, timeouts: &Timeouts) -> ClientRequest {
    request.template.timeouts = Rc::new(timeouts.clone());
    request
}

async fn fetch(connection: &MultiplexedClient, request: ClientRequest) -> (u16, String) {
    let response = connection.send(request).await.unwrap();
    let (body, _) = collect(response.body).await.unwrap();
    (response.status.as_u16(), text(&body))
}

async fn failure(connection: &MultiplexedClient, request: ClientRequest) -> RequestFailure {
    connection.send(request).await.expect_err("no response")
}
