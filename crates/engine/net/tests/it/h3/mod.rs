//! HTTP/3 (RFC 9114) over real sockets: what clients, honest and hostile, get from it.

mod alt_svc;
mod attacks;
mod basics;
mod bodies;
pub(crate) mod client;
mod conformance;
mod continuity;
mod debug_logs;
mod early_data;
mod hostile_packets;
mod lifecycle;
mod on_demand;
mod origin_connections;
mod raw;
mod slow;
mod tunnels;

use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_net::tls::UnknownName;
use apus_net::{EnginePlan, Http3Settings, Limits, ListenerPlan};
use apus_testkit::CertificateAuthority;
use rustls::ClientConfig;

use self::client::{H3Client, H3ClientOptions, H3Request};
use crate::harness::{Server, plan};
use crate::tls::{client_of, site, tls_listener};

/// A listener with all protocols.
fn h3_listener(authority: &CertificateAuthority, service: Arc<dyn ServiceFactory>) -> ListenerPlan {
    let issued = authority.ecdsa(&["example.com"]);
    let sites = [site(&["example.com"], &[&issued])];
    ListenerPlan {
        http3: Some(Http3Settings::default()),
        ..tls_listener(&sites, UnknownName::FirstSite, service)
    }
}

/// A server with HTTP/3, and clients of it.
pub(crate) struct H3Server {
    server: Server,
    options: H3ClientOptions,
    /// TLS of a client that trusts the server.
    tls: ClientConfig,
}

impl H3Server {
    pub(crate) fn start(service: Arc<dyn ServiceFactory>) -> Self {
        Self::with_limits(Limits::default(), service)
    }

    fn with_limits(limits: Limits, service: Arc<dyn ServiceFactory>) -> Self {
        Self::run(limits, service, |plan| plan)
    }

    /// A server with a changed plan.
    fn run(
        limits: Limits,
        service: Arc<dyn ServiceFactory>,
        change: impl FnOnce(EnginePlan) -> EnginePlan,
    ) -> Self {
        let authority = CertificateAuthority::generate();
        let plan = EnginePlan {
            limits,
            ..plan(vec![h3_listener(&authority, service)])
        };
        Self::of(Server::run(change(plan)), client_of(&authority))
    }

    fn of(server: Server, tls: ClientConfig) -> Self {
        Self {
            server,
            options: H3ClientOptions::new(tls.clone()),
            tls,
        }
    }

    pub(crate) fn open(&self) -> H3Client {
        H3Client::open(self.server.address(), &self.options)
    }

    /// A client without control streams, for hostile ones.
    fn open_raw(&self) -> H3Client {
        let options = H3ClientOptions {
            opens_streams: false,
            ..self.options.clone()
        };
        H3Client::open(self.server.address(), &options)
    }
}
