//! The proxy as a service: one request to an origin, and its response.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_client::{ClientRequestHead, ClientResponse};
use apus_http::path::InvalidPath;
use apus_http::{
    Body, KnownField, Method, Request, Response, ResponseFuture, ResponseOrigin, Service,
    ServiceFactory, StatusCode, Version,
};
use apus_upstream::{UpstreamExchange, UpstreamResponse, Upstreams};
use bytes::Bytes;

use super::client::UpstreamClient;
use super::mirror::RequestMirror;
use super::response_headers::{self, OriginNames};
use super::settings::{HostHeader, ProxySettings};
use super::websocket::{self, HandshakeKey};
use super::{error_response, request_headers, trailers, tunnel};

/// A reverse proxy: a service whose responses come from a group of origins.
#[derive(Clone, Debug)]
pub struct Proxy {
    upstreams: Upstreams,
    group: Arc<str>,
    pub(super) settings: Arc<ProxySettings>,
}

impl Proxy {
    /// Creates a proxy to a group of `upstreams`. Without such a group every response is a 503.
    pub fn new(upstreams: &Upstreams, group: &str, settings: ProxySettings) -> Self {
        Self {
            upstreams: upstreams.clone(),
            group: group.into(),
            settings: Arc::new(settings),
        }
    }
}

impl ServiceFactory for Proxy {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(ProxyService(Rc::new(ProxyState {
            client: UpstreamClient::new(&self.upstreams, &self.group),
            mirror: (self.settings.mirror.as_ref())
                .and_then(|mirror| RequestMirror::new(&self.upstreams, mirror)),
            settings: Arc::clone(&self.settings),
        })))
    }
}

/// The proxy on one worker.
struct ProxyService(Rc<ProxyState>);

struct ProxyState {
    client: UpstreamClient,
    mirror: Option<Rc<RequestMirror>>,
    settings: Arc<ProxySettings>,
}

impl Service for ProxyService {
    fn call(&self, request: Request) -> ResponseFuture {
        let state = &self.0;
        let mut request = request;
        let mut head = match state.head(&mut request) {
            Ok(head) => head,
            Err(response) => return response.into(),
        };
        let handshake = websocket::begin(&request, &mut head);
        let head = Rc::new(head);
        let state = Rc::clone(state);
        let body = request.take_body();
        match &state.settings.hold_request {
            Some(hold) if !matches!(body, Body::Empty) => {
                let hold = hold.clone();
                ResponseFuture::later(async move {
                    match UpstreamClient::hold_body(body, &hold).await {
                        Ok(body) => {
                            let sent = ProxyExchange::begin(state, request, head, handshake, body);
                            sent.wait().await
                        }
                        Err(response) => response,
                    }
                })
            }
            _ => ProxyExchange::begin(state, request, head, handshake, body),
        }
    }
}

/// A request that was sent to an origin.
struct ProxyExchange {
    state: Rc<ProxyState>,
    request: Request,
    head: Rc<ClientRequestHead>,
    handshake: Option<HandshakeKey>,
    upstream: UpstreamExchange,
}

impl ProxyExchange {
    /// Sends a request with this head and body.
    fn begin(
        state: Rc<ProxyState>,
        request: Request,
        head: Rc<ClientRequestHead>,
        handshake: Option<HandshakeKey>,
        body: Body,
    ) -> ResponseFuture {
        let body = state.outgoing_body(&request, &head, body);
        match state.client.begin(&request, &head.headers, &head, body) {
            Ok(upstream) => ResponseFuture::later(Self {
                state,
                request,
                head,
                handshake,
                upstream,
            }),
            Err(response) => response.into(),
        }
    }
}

impl Future for ProxyExchange {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let result = ready!(Pin::new(&mut self.upstream).poll(cx));
        Poll::Ready(match self.state.client.finish(result) {
            Ok((upstream, origin)) => self.state.respond(
                &self.request,
                &self.head,
                self.handshake.as_ref(),
                upstream,
                origin,
            ),
            Err(response) => response,
        })
    }
}

impl ProxyState {
    /// Returns the head of the request for the origin, which has the headers of the request from now on.
    fn head(&self, request: &mut Request) -> Result<ClientRequestHead, Response> {
        let settings = &self.settings;
        let target = target(request, settings).map_err(bad_request)?;
        let expects_continue = request.headers().has(KnownField::Expect);
        let mut headers = request_headers::take(request, &settings.forwarding)
            .map_err(|proxy_loop| error_response::loop_detected(request, proxy_loop))?;
        let upgrade = request_headers::upgrade(request, &settings.forwarding);
        if upgrade.is_none() && request.upgrade().is_some() && request.version() > Version::HTTP_11
        {
            // An extended CONNECT asks for this protocol only (RFC 9220 section 3).
            return Err(Response::new(StatusCode::NOT_IMPLEMENTED));
        }
        if !settings.substitutions.is_empty() {
            // Substitutions need a body that is not compressed.
            headers.remove("accept-encoding");
        }
        let authority = match &settings.host {
            HostHeader::Client => request.authority().unwrap_or("").into(),
            HostHeader::Fixed(host) => host.clone(),
        };
        Ok(ClientRequestHead {
            method: request.method().clone(),
            scheme: settings.scheme,
            authority,
            target,
            headers,
            upgrade,
            te_trailers: request.accepts_trailers(),
            expects_continue,
            params: None,
        })
    }

    /// Returns the body for the origin, of which the mirror gets a copy.
    fn outgoing_body(&self, request: &Request, head: &Rc<ClientRequestHead>, body: Body) -> Body {
        let body = trailers::of_request(body, &self.settings.forwarding);
        match &self.mirror {
            Some(mirror) => mirror.copy(request, head, body),
            None => body,
        }
    }

    /// Returns the response for the client.
    fn respond(
        &self,
        request: &Request,
        head: &ClientRequestHead,
        handshake: Option<&HandshakeKey>,
        mut upstream: UpstreamResponse,
        origin: ResponseOrigin,
    ) -> Response {
        if let Some(handshake) = handshake
            && let Err(invalid) = handshake.check_response(&mut upstream.response)
        {
            return error_response::invalid_accept(&self.client.log, &upstream.node, invalid);
        }
        let names = || OriginNames {
            origin: &head.authority,
            client: request.authority(),
            own: [&upstream.node.name, &upstream.node.address],
        };
        let mut response = self.response(upstream.response, names);
        response.set_origin(origin);
        if let Some(cookie) = upstream.set_cookie {
            // The configuration checks the parts of the cookie.
            let _ = response.headers_mut().try_append("set-cookie", cookie);
        }
        response
    }

    /// Returns the response of an origin with the headers and the body for the client.
    fn response<'a>(
        &self,
        upstream: ClientResponse,
        names: impl FnOnce() -> OriginNames<'a>,
    ) -> Response {
        let settings = &self.settings;
        let mut headers = upstream.headers;
        for name in &settings.hidden {
            headers.remove(name);
        }
        if headers.has(KnownField::Location) || !settings.redirects.is_empty() {
            response_headers::change_redirects(&mut headers, &settings.redirects, &names());
        }
        response_headers::change_cookies(&mut headers, &settings.cookies);
        let body = match trailers::of_response(upstream.body, &settings.hidden) {
            // An origin that sends no body means it: no error page replaces it.
            Body::Empty => Body::Bytes(Bytes::new()),
            body => body,
        };
        let mut response = Response::with_headers(upstream.status, headers, body);
        settings.substitutions.apply(&mut response);
        if let Some(hold) = &settings.hold_response {
            // After the substitutions, which cannot search file ranges.
            let body = response.take_body();
            *response.body_mut() = hold.read_ahead(body);
        }
        if let Some(origin) = upstream.tunnel {
            let idle = settings.tunnel_timeout;
            response.set_tunnel(Box::new(move |client| {
                Box::pin(tunnel::copy_bidirectional(client, origin, idle))
            }));
        }
        response
    }
}

/// Returns the request target for the origin.
fn target(request: &Request, settings: &ProxySettings) -> Result<Box<str>, InvalidPath> {
    if *request.method() == Method::OPTIONS && request.path() == "*" {
        return Ok("*".into());
    }
    let path = request.forwarded_path()?;
    let changed = settings.path.as_ref().and_then(|change| change.apply(path));
    let path = changed.as_deref().unwrap_or(path);
    Ok(match request.query() {
        None => path.into(),
        Some(query) => format!("{path}?{query}").into(),
    })
}

fn bad_request(error: InvalidPath) -> Response {
    tracing::debug!(%error, "refused an invalid path");
    Response::new(StatusCode::BAD_REQUEST)
}
