//! A client of HTTP/3.

use std::rc::Rc;
use std::time::Duration;

use apus_client::{
    Address, ClientRequest, ClientRequestHead, ClientTlsSettings, Origin, OriginConnection,
    Protocol, ProxyHead, RequestFailure, RequestTemplate, ResponseRules, Timeouts, Tls, connect,
};
use apus_http::{Body, Headers, Method};
use apus_testkit::{CertificateAuthority, block_on, collect};

/// The body of the response to a request over HTTP/3.
pub(crate) fn get(port: u16, authority: &CertificateAuthority, host: &str, path: &str) -> String {
    try_get(port, authority, host, path).unwrap()
}

/// The same; `Err` if no response comes.
pub(crate) fn try_get(
    port: u16,
    authority: &CertificateAuthority,
    host: &str,
    path: &str,
) -> Result<String, RequestFailure> {
    let settings = ClientTlsSettings {
        authorities: Some(vec![authority.der.clone()]),
        ..ClientTlsSettings::new(host)
    };
    let origin = Origin {
        address: Address::Ip(([127, 0, 0, 1], port).into()),
        tls: Some(Tls::new(&settings).unwrap()),
        protocol: Protocol::Http3,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    };
    let timeouts = Timeouts {
        connect: Duration::from_secs(60),
        ..Timeouts::default()
    };
    let head = ClientRequestHead {
        method: Method::GET,
        scheme: "https",
        authority: host.into(),
        target: path.into(),
        headers: Headers::new(),
        upgrade: None,
        te_trailers: false,
        expects_continue: false,
        params: None,
    };
    block_on(async move {
        let OriginConnection::Multiplexed(connection) =
            connect(&origin, None, &timeouts).await.unwrap()
        else {
            panic!("not HTTP/3")
        };
        let request = ClientRequest {
            template: RequestTemplate {
                head: Rc::new(head),
                interim: None,
                timeouts: Rc::default(),
                stderr: None,
            },
            body: Body::Empty,
        };
        let mut response = connection.send(request).await?;
        Ok(String::from_utf8(collect(&mut response.body).await.unwrap()).unwrap())
    })
}
