//! Redirects of requests in clear text to `https`.

use apus_handler::{Middleware, Next};
use apus_http::{HeaderValue, Method, Request, Response, ResponseFuture, StatusCode, header};

/// The redirect of clear-text requests: of a site by `Site::force_https`, of an application as a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForceHttps {
    /// The port of the `https` listener as clients reach it.
    pub port: u16,
    /// The status for GET and HEAD, usually 301; other methods get 308, which keeps the method.
    pub status: StatusCode,
}

impl Default for ForceHttps {
    fn default() -> Self {
        Self {
            port: 443,
            status: StatusCode::MOVED_PERMANENTLY,
        }
    }
}

impl ForceHttps {
    /// The redirect to the same URL with `https`; 400 for a request without a host.
    pub fn redirect(&self, request: &Request) -> Response {
        let Some(host) = request.host() else {
            return Response::new(StatusCode::BAD_REQUEST);
        };
        let status = match *request.method() {
            Method::GET | Method::HEAD => self.status,
            _ => StatusCode::PERMANENT_REDIRECT,
        };
        let target = request.target().path_and_query();
        // Behind a proxy the port of our own listener means nothing to the client.
        let port = match request.proxies() {
            [] => self.port,
            _ => 443,
        };
        let location = match port {
            443 => format!("https://{host}{target}"),
            port => format!("https://{host}:{port}{target}"),
        };
        match HeaderValue::from_bytes(location.as_bytes()) {
            Ok(location) => Response::new(status).with_header(&header::LOCATION, &location),
            Err(_) => Response::new(StatusCode::BAD_REQUEST),
        }
    }
}

/// As a layer it redirects requests that the client sent without TLS, to this server or to its proxy, which the
/// layer [`TrustedProxies`](apus_handler::TrustedProxies) further out detects.
impl Middleware<()> for ForceHttps {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        if request.is_secure() {
            next.call(request)
        } else {
            self.redirect(&request).into()
        }
    }
}
