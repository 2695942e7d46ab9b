//! Requests to an origin, and its responses.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use apus_codec::fastcgi::Params;
use apus_http::{Body, Duplex, Headers, Interim, Method, StatusCode, Version};

/// The head of a request on its way to an origin. It is shared, so that sending it again to another
/// origin costs nothing.
#[derive(Clone, Debug)]
pub struct ClientRequestHead {
    /// The method.
    pub method: Method,
    /// `http` or `https`: the `:scheme` of HTTP/2 and HTTP/3.
    pub scheme: &'static str,
    /// The value of `Host` or `:authority`.
    pub authority: Box<str>,
    /// The request target in origin-form, or `*`.
    pub target: Box<str>,
    /// End-to-end fields. `Host`, `Content-Length`, `Expect` and the fields of one connection (RFC 9110
    /// section 7.6.1) are written from other data, and ignored if they are here.
    pub headers: Headers,
    /// The protocol to switch to, such as `websocket`, if the client asks for it: the value of `Upgrade` over
    /// HTTP/1.1, and `:protocol` of an extended CONNECT over HTTP/2 and HTTP/3.
    pub upgrade: Option<Box<str>>,
    /// Whether the client takes trailers: `TE: trailers`.
    pub te_trailers: bool,
    /// Whether the body is held back until the origin asks for it (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
    /// The parameters for a FastCGI application. Over FastCGI only they are sent, and a request without them
    /// fails; over HTTP they are ignored.
    pub params: Option<Params>,
}

/// A request on its way to an origin.
#[derive(Debug)]
pub struct ClientRequest {
    /// All but the body.
    pub template: RequestTemplate,
    /// The body. If its length is known, it is sent with `Content-Length`.
    pub body: Body,
}

/// A request on its way to an origin, without its body: what is the same for all attempts to send it. An attempt borrows it,
/// since most requests are sent once, and few connections need all of it.
#[derive(Clone)]
pub struct RequestTemplate {
    /// The head.
    pub head: Rc<ClientRequestHead>,
    /// Where interim responses (100, 103) go, if they are wanted.
    pub interim: Option<Interim>,
    /// How long each step may take.
    pub timeouts: Rc<Timeouts>,
    /// Receives what a FastCGI application writes to its standard error, piece by piece. Without it that
    /// output is discarded.
    pub stderr: Option<Stderr>,
}

/// Receives what an application wrote to its standard error for a request.
pub type Stderr = Rc<dyn Fn(&ClientRequestHead, &[u8])>;

/// How long the steps of a request to an origin may take. The limits are kept to about a quarter of a second,
/// and never too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the socket is connected; over HTTP/3, until the handshake of QUIC is done.
    pub connect: Duration,
    /// Until the TLS handshake is done.
    pub tls: Duration,
    /// From the end of the request to the head of its response.
    pub first_byte: Duration,
    /// Between two reads of a response's body.
    pub read: Duration,
    /// Between two writes of which the origin takes any bytes.
    pub write: Duration,
}

impl fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestTemplate")
            .field("head", &self.head)
            .field("interim", &self.interim)
            .field("timeouts", &self.timeouts)
            .field("stderr", &self.stderr.is_some())
            .finish()
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(10),
            // nginx waits for 60 seconds, too (`proxy_read_timeout`, `proxy_send_timeout`).
            first_byte: Duration::from_secs(60),
            read: Duration::from_secs(60),
            write: Duration::from_secs(60),
        }
    }
}

/// A response of an origin.
pub struct ClientResponse {
    /// The status: final, or 101 if the request asked for it.
    pub status: StatusCode,
    /// The version that the origin speaks.
    pub version: Version,
    /// End-to-end fields, without the connection-specific ones (RFC 9110 section 7.6.1). `Upgrade` stays with 101 and
    /// 426, and names the protocol of a tunnel over HTTP/2 and HTTP/3, and `Content-Length` where it can be correct.
    pub headers: Headers,
    /// The body. It ends in order only if it is whole. Dropping it early closes an HTTP/1.1 connection, and
    /// has no other effect.
    pub body: Body,
    /// The connection after 101; bytes that the origin sent early are read first.
    pub tunnel: Option<Box<dyn Duplex>>,
}

impl fmt::Debug for ClientResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientResponse")
            .field("status", &self.status)
            .field("version", &self.version)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .field("tunnel", &self.tunnel.is_some())
            .finish()
    }
}

/// Whether an origin that sends a head with this status wants no more of the request's body.
pub(crate) fn refuses_body(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}
