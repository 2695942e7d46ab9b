//! `Identity`: the client certificate of a connection.

use std::rc::Rc;
use std::sync::Arc;

use apus_handler::extract::Identity;
use apus_http::{
    ClientCertificate, ConnectionInfo, Request, RequestParts, Service, ServiceFactory, Target,
    TlsInfo, TlsVersion,
};
use apus_testkit::{Reply, block_on, get};

use crate::harness::Routes;

async fn who(identity: Identity) -> String {
    format!("{} {}", identity.subject, identity.serial)
}

async fn maybe(identity: Option<Identity>) -> &'static str {
    match identity {
        Some(_) => "known",
        None => "stranger",
    }
}

/// The response to a client with this certificate.
fn response_to(service: &Rc<dyn Service>, path: &str, subject: Option<&str>) -> Reply {
    let parts = get(path).request().into_parts();
    let certificate = subject.map(|subject| {
        Arc::new(ClientCertificate {
            der: Box::new([]),
            subject: subject.to_owned(),
            serial: "0a".to_owned(),
            issuer: String::new(),
            names: Vec::new(),
        })
    });
    let connection = Rc::new(ConnectionInfo {
        kept: apus_http::KeptValue::default(),
        tls: Some(TlsInfo {
            version: TlsVersion::Tls13,
            cipher: "TLS13_AES_128_GCM_SHA256",
            alpn: None,
            fingerprint: None,
            server_name: None,
            certificate_names: [].into(),
            client_certificate: certificate,
        }),
        ..(*parts.connection).clone()
    });
    let target = Target::parse(&parts.method, path).unwrap();
    let request = Request::new(RequestParts {
        connection,
        target,
        ..parts
    });
    block_on(async { Reply::read(service.call(request).wait().await).await })
}

#[test]
fn a_verified_certificate_names_the_client() {
    let service = Routes::new().get("/", who).get("/maybe", maybe).service();
    let alice = Some("CN=alice");
    assert_eq!(response_to(&service, "/", alice).text(), "CN=alice 0a");
    assert_eq!(response_to(&service, "/", None).status, 403);
    assert_eq!(response_to(&service, "/maybe", alice).text(), "known");
    assert_eq!(response_to(&service, "/maybe", None).text(), "stranger");
    assert_eq!(get("/").of(&service).status, 403, "without TLS");
}
