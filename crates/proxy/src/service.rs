//! One request and its answer by way of an origin.

use std::rc::Rc;
use std::sync::Arc;

use apus_http::path::InvalidPath;
use apus_http::{
    Answer, Body, Method, Request, Response, Service, ServiceFactory, StatusCode, Version,
};
use apus_net::client::{ClientRequestHead, ClientResponse};
use apus_upstream::Upstreams;
use bytes::Bytes;

use super::backward::{self, Names};
use super::exchange::Exchange;
use super::mirror::Copies;
use super::settings::{Host, ProxySettings};
use super::websocket::{self, Handshake};
use super::{forward, refusal, trailers, tunnel};

/// A reverse proxy: requests are answered by a group of origins.
#[derive(Clone, Debug)]
pub struct Proxy {
    upstreams: Upstreams,
    group: Arc<str>,
    pub(super) settings: Arc<ProxySettings>,
}

impl Proxy {
    /// Has a group of `upstreams` answer. Without such a group every answer is a 503.
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
        Rc::new(ProxyService(Rc::new(Inner {
            exchange: Exchange::new(&self.upstreams, &self.group),
            copies: (self.settings.mirror.as_ref())
                .and_then(|mirror| Copies::open(&self.upstreams, mirror)),
            settings: Arc::clone(&self.settings),
        })))
    }
}

/// The proxy at work on one worker.
struct ProxyService(Rc<Inner>);

struct Inner {
    exchange: Exchange,
    copies: Option<Rc<Copies>>,
    settings: Arc<ProxySettings>,
}

/// A request, and what is to be sent of it.
struct Asked {
    request: Request,
    head: Rc<ClientRequestHead>,
    handshake: Option<Handshake>,
}

impl Service for ProxyService {
    fn call(&self, request: Request) -> Answer {
        let inner = &self.0;
        let mut head = match inner.head(&request) {
            Ok(head) => head,
            Err(response) => return response.into(),
        };
        let handshake = websocket::begin(&request, &mut head);
        let head = Rc::new(head);
        let inner = Rc::clone(inner);
        Answer::later(async move {
            let asked = Asked {
                request,
                head,
                handshake,
            };
            inner.answer(asked).await
        })
    }
}

impl Inner {
    /// The head of the request for the origin.
    fn head(&self, request: &Request) -> Result<ClientRequestHead, Response> {
        let settings = &self.settings;
        let target = target(request, settings).map_err(refuse)?;
        let mut headers = forward::fields(request, &settings.forwarding)
            .map_err(|circle| refusal::circle(request, circle))?;
        let upgrade = forward::upgrade(request, &settings.forwarding);
        if upgrade.is_none() && request.upgrade().is_some() && request.version() > Version::HTTP_11
        {
            // An extended CONNECT means this protocol and nothing else (RFC 9220 section 3).
            return Err(Response::new(StatusCode::NOT_IMPLEMENTED));
        }
        if !settings.substitutions.is_empty() {
            // Texts are found in what is not compressed.
            headers.remove("accept-encoding");
        }
        let authority = match &settings.host {
            Host::Client => request.authority().unwrap_or("").into(),
            Host::Fixed(host) => host.clone(),
        };
        Ok(ClientRequestHead {
            method: request.method().clone(),
            scheme: settings.scheme,
            authority,
            target,
            headers,
            upgrade,
            te_trailers: request.accepts_trailers(),
            expects_continue: request.headers().contains("expect"),
            params: None,
        })
    }

    async fn answer(&self, asked: Asked) -> Response {
        let settings = &self.settings;
        let Asked {
            mut request,
            head,
            handshake,
        } = asked;
        let hold = settings.hold_request.as_ref();
        let body = match self.exchange.content(&mut request, hold).await {
            Ok(body) => body,
            Err(response) => return response,
        };
        let body = trailers::of_request(body, &settings.forwarding);
        let body = match &self.copies {
            Some(copies) => copies.of(&request, &head, body),
            None => body,
        };
        let (mut delivered, source) = match self.exchange.ask(&request, &head, body).await {
            Ok(answered) => answered,
            Err(response) => return response,
        };
        if let Some(handshake) = handshake
            && let Err(wrong) = handshake.finish(&mut delivered.response)
        {
            return refusal::handshake(&self.exchange.log, &delivered.node, wrong);
        }
        let names = Names {
            origin: &head.authority,
            client: request.authority(),
            own: [&delivered.node.name, &delivered.node.address],
        };
        let mut response = self.response(delivered.response, &names);
        response.set_source(source);
        if let Some(cookie) = delivered.set_cookie {
            // A cookie of a plan that was checked.
            let _ = response.headers_mut().try_append("set-cookie", cookie);
        }
        response
    }

    /// The answer of an origin in the terms of the site.
    fn response(&self, answer: ClientResponse, names: &Names<'_>) -> Response {
        let settings = &self.settings;
        let mut headers = answer.headers;
        for name in &settings.hidden {
            headers.remove(name);
        }
        if headers.contains("location") || !settings.redirects.is_empty() {
            backward::redirects(&mut headers, &settings.redirects, names);
        }
        backward::cookies(&mut headers, &settings.cookies);
        let body = match trailers::of_response(answer.body, &settings.hidden) {
            // An origin that says nothing means it: no page of ours takes its place.
            Body::Empty => Body::Bytes(Bytes::new()),
            body => body,
        };
        let mut response = Response::with_shared_headers(answer.status, Rc::new(headers), body);
        settings.substitutions.apply(&mut response);
        if let Some(hold) = &settings.hold_response {
            // What is held may lie in a file, in which texts are not replaced.
            let body = response.take_body();
            *response.body_mut() = hold.run_ahead(body);
        }
        if let Some(origin) = answer.tunnel {
            let idle = settings.tunnel_timeout;
            response.set_tunnel(Box::new(move |client| {
                Box::pin(tunnel::carry(client, origin, idle))
            }));
        }
        response
    }
}

/// The request target for the origin.
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

fn refuse(error: InvalidPath) -> Response {
    tracing::debug!(%error, "refused a path");
    Response::new(StatusCode::BAD_REQUEST)
}
