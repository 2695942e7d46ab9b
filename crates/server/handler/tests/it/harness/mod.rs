//! Handlers and layers without a framework around them, called by tests or run by a server.

mod routes;
mod server;

use apus_http::ServiceFactory;
use apus_testkit::{LocalClient, Reply, RequestBuilder, ask};

pub(crate) use routes::Routes;
pub(crate) use server::Server;

/// A request with these field lines, from 127.0.0.1.
pub(crate) fn head(method: &str, path: &str, lines: &[&str]) -> RequestBuilder {
    ask(method, path)
        .lines(lines)
        .peer(([127, 0, 0, 1], 50_000))
}

/// The response of a new service.
pub(crate) fn request(service: impl ServiceFactory, request: RequestBuilder) -> Reply {
    LocalClient::of(&service).send(request)
}

/// The response of a new service to a GET request with these field lines.
pub(crate) fn get(service: impl ServiceFactory, path: &str, lines: &[&str]) -> Reply {
    request(service, head("GET", path, lines))
}
