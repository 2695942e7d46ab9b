//! The proxy as a service: one request to an origin, and its response.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_client::{ClientRequestHead, ClientResponse};
use apus_http::path::{self, InvalidPath};
use apus_http::{
    Body, KnownField, Method, Request, Response, ResponseFuture, ResponseOrigin, RuleChoice,
    Service, ServiceFactory, StatusCode, Version, mount_prefix,
};
use apus_upstream::{UpstreamExchange, UpstreamResponse, Upstreams};
use bytes::Bytes;

use super::client::UpstreamClient;
use super::mirror::RequestMirror;
use super::path_change::{ChangedPath, PathChange, starts_with_authority};
use super::request_label::RequestLabel;
use super::response_headers::{self, OriginReferences, REFERENCES};
use super::settings::{HostHeader, PathForm, ProxySettings};
use super::websocket::{self, HandshakeKey};
use super::{error_response, request_headers, trailers, tunnel};

/// A reverse proxy: a service whose responses come from a group of origins.
#[derive(Clone, Debug)]
pub struct Proxy {
    upstreams: Upstreams,
    group: Arc<str>,
    pub(super) settings: Arc<ProxySettings>,
    /// The groups that rules may choose instead, with their settings.
    choices: Vec<(Arc<str>, Arc<ProxySettings>)>,
}

impl Proxy {
    /// Creates a proxy to a group of `upstreams`. Without such a group every response is a 503.
    pub fn new(upstreams: &Upstreams, group: &str, settings: ProxySettings) -> Self {
        Self {
            upstreams: upstreams.clone(),
            group: group.into(),
            settings: Arc::new(settings),
            choices: Vec::new(),
        }
    }

    /// Returns this proxy with one more group of the same upstreams, for requests that a rule sends there ([`RuleChoice`]), with settings of
    /// its own but for the mirror. A request for which a group is chosen that the proxy does not have goes to its first one.
    #[must_use]
    pub fn choice(mut self, group: &str, settings: ProxySettings) -> Self {
        self.choices.push((group.into(), Arc::new(settings)));
        self
    }
}

impl ServiceFactory for Proxy {
    fn service(&self) -> Rc<dyn Service> {
        let mirror = (self.settings.mirror.as_ref())
            .and_then(|mirror| RequestMirror::new(&self.upstreams, mirror, &self.settings.site));
        let state = |group: &Arc<str>, settings: &Arc<ProxySettings>| {
            Rc::new(ProxyState {
                client: UpstreamClient::new(&self.upstreams, group).of_site(&settings.site),
                mirror: mirror.clone(),
                settings: Arc::clone(settings),
            })
        };
        Rc::new(ProxyService {
            state: state(&self.group, &self.settings),
            choices: (self.choices.iter())
                .map(|(group, settings)| state(group, settings))
                .collect(),
        })
    }
}

/// The proxy on one worker.
struct ProxyService {
    state: Rc<ProxyState>,
    /// The same for the groups that rules may choose.
    choices: Box<[Rc<ProxyState>]>,
}

impl ProxyService {
    /// The state for a request.
    fn state(&self, request: &Request) -> &Rc<ProxyState> {
        if self.choices.is_empty() {
            return &self.state;
        }
        let chosen = RuleChoice::of(request).and_then(RuleChoice::upstream);
        chosen
            .and_then(|name| {
                let mut choices = self.choices.iter();
                choices.find(|state| state.client.name() == name)
            })
            .unwrap_or(&self.state)
    }
}

struct ProxyState {
    client: UpstreamClient,
    mirror: Option<Rc<RequestMirror>>,
    settings: Arc<ProxySettings>,
}

impl Service for ProxyService {
    fn call(&self, request: Request) -> ResponseFuture {
        let state = self.state(&request);
        let mut request = request;
        let mut head = match state.head(&mut request) {
            Ok(head) => head,
            Err(response) => return response.into(),
        };
        let handshake = websocket::begin(&request, &mut head);
        let state = Rc::clone(state);
        let body = request.take_body();
        if !state.settings.substitutions.is_empty()
            && head.method == Method::GET
            && head.upgrade.is_none()
            && head.headers.contains("range")
            && matches!(body, Body::Empty)
        {
            return ResponseFuture::later(respond_to_range(state, request, head));
        }
        let head = Rc::new(head);
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

/// Responds to a request for a range where texts may be replaced. The offsets of the origin do not fit the
/// replaced body: the client gets that completely, and parts of other media types.
async fn respond_to_range(
    state: Rc<ProxyState>,
    request: Request,
    head: ClientRequestHead,
) -> Response {
    let again = request.without_body();
    let mut whole = head.clone();
    whole.headers.remove("range");
    whole.headers.remove("if-range");
    let send = |request, head| {
        let state = Rc::clone(&state);
        ProxyExchange::begin(state, request, Rc::new(head), None, Body::Empty).wait()
    };
    let part = send(request, head).await;
    let substitutions = &state.settings.substitutions;
    if !substitutions.may_concern(&part) {
        return part;
    }
    let whole = send(again, whole).await;
    if substitutions.applies_to(whole.headers()) {
        whole
    } else {
        part
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
        Poll::Ready(match self.state.client.finish(&self.request, result) {
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
        let target = target(request, settings).map_err(refusal)?;
        let expects_continue = request.headers().has(KnownField::Expect);
        // Before the fields are taken, of which `Host` is one.
        let authority = match &settings.host {
            HostHeader::Client => request.authority().unwrap_or("").into(),
            HostHeader::AsSent => request.sent_authority().unwrap_or("").into(),
            HostHeader::Fixed(host) => host.clone(),
        };
        let mut headers =
            request_headers::take(request, &settings.forwarding).map_err(|proxy_loop| {
                error_response::loop_detected(&self.client.log, request, proxy_loop)
            })?;
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
            let label = RequestLabel::of(request);
            return error_response::invalid_accept(
                &self.client.log,
                &upstream.node,
                &label,
                invalid,
            );
        }
        let headers = &mut upstream.response.headers;
        for name in &self.settings.hidden {
            headers.remove(name);
        }
        if headers.has_any(REFERENCES.with(KnownField::SetCookie)) {
            let path = self.path_at_client(request);
            let references = OriginReferences {
                rules: &self.settings.redirects,
                path: path.as_ref(),
                origin: &head.authority,
                client: request.authority(),
                own: [&upstream.node.name, &upstream.node.address],
            };
            references.change_in(headers);
            response_headers::change_cookies(headers, &self.settings.cookies, path.as_ref());
        }
        let mut response = self.response(upstream.response);
        if response.status() == StatusCode::NOT_MODIFIED {
            let substitutions = &self.settings.substitutions;
            substitutions.complete_not_modified(&mut response, &head.headers);
        }
        response.set_origin(origin);
        if let Some(cookie) = upstream.set_cookie {
            // The configuration checks the parts of the cookie.
            let _ = response.headers_mut().try_append("set-cookie", cookie);
        }
        response
    }

    /// Returns the change of paths between the client and the origin: the one in the settings, and the prefix that
    /// the service is mounted at.
    fn path_at_client(&self, request: &Request) -> Option<PathChange> {
        let own = self.settings.path.as_ref();
        match (mount_prefix(request), own) {
            ("", own) => own.cloned(),
            (prefix, None) => Some(PathChange {
                strip: format!("{prefix}/").into(),
                put: "/".into(),
            }),
            (prefix, Some(own)) => Some(PathChange {
                strip: format!("{prefix}{}", own.strip).into(),
                put: own.put.clone(),
            }),
        }
    }

    /// Returns the response of an origin, whose headers are for the client, with the body for the client.
    fn response(&self, upstream: ClientResponse) -> Response {
        let settings = &self.settings;
        let headers = upstream.headers;
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
fn target(request: &Request, settings: &ProxySettings) -> Result<Box<str>, RefusedPath> {
    if *request.method() == Method::OPTIONS && request.path() == "*" {
        return Ok("*".into());
    }
    let sent = request.path();
    let path = match settings.path_form {
        PathForm::Normalized => {
            let path = request.forwarded_path()?;
            path::check_forwarded(path)?;
            path
        }
        PathForm::Raw => path::check_raw(sent).map(|()| sent)?,
    };
    let changed = match settings.path.as_ref().and_then(|change| change.apply(path)) {
        None => None,
        Some(ChangedPath::Path(changed)) => Some(changed),
        Some(ChangedPath::Outside) => return Err(RefusedPath::Outside),
    };
    let path = changed.as_deref().unwrap_or(path);
    if starts_with_authority(path) {
        return Err(InvalidPath::DotSegment.into());
    }
    // No URI has a backslash, which some servers take for a slash.
    let path = if path.contains('\\') {
        Cow::Owned(path.replace('\\', "%5C"))
    } else {
        Cow::Borrowed(path)
    };
    Ok(match request.query() {
        None => path.into(),
        Some(query) => format!("{path}?{query}").into(),
    })
}

/// Why a path is not forwarded.
enum RefusedPath {
    /// Servers would read it in different ways.
    Invalid(InvalidPath),
    /// It is not below the path of the location, only begins with the same letters.
    Outside,
}

impl From<InvalidPath> for RefusedPath {
    fn from(error: InvalidPath) -> Self {
        Self::Invalid(error)
    }
}

fn refusal(refused: RefusedPath) -> Response {
    Response::new(match refused {
        RefusedPath::Invalid(error) => {
            tracing::debug!(%error, "refused an invalid path");
            StatusCode::BAD_REQUEST
        }
        RefusedPath::Outside => StatusCode::NOT_FOUND,
    })
}
