//! Forward authentication: another service decides about each request (nginx: `auth_request`).

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, ResponseMarker};
use apus_http::path::{encode, normalise_for_matching};
use apus_http::trace::{self, Step, StepKind, Trace};
use apus_http::{
    Body, Frame, HeaderName, HeaderValue, Headers, InvalidTarget, Method, RemoteUser, Request,
    Response, ResponseFuture, Service, ServiceFactory, StatusCode, Target, TrustedProxies, header,
};

use super::forward_cache::{AnswerCache, AnswerKey, AuthorityAnswer, RequestLine};
use crate::access::{self, AccessCheck, AccessDecision, AccessGrant};

/// A layer that asks another service, the authority, about each request: with a GET request without body, whose fields say what
/// the client requests. The client is admitted if the response is a success. Its refusal gets to the client: 401, 403, or a
/// redirect to a page for log-in. With any other response, and with none, nobody is admitted.
///
/// ```
/// use std::time::Duration;
/// use apus_layers::auth::ForwardAuth;
/// # use std::rc::Rc;
/// # use apus_http::{HeaderName, Response, StatusCode, service_fn};
/// # let authority = || service_fn(|_| Response::new(StatusCode::OK).into());
///
/// // `authority` is a `Proxy`, or another service.
/// let auth = ForwardAuth::new(authority, "/api/verify")?
///     .copy([HeaderName::from_static("remote-groups")])
///     .user_from(HeaderName::from_static("remote-user"))
///     .remember(Duration::from_secs(30), 10_000);
/// # let _ = auth;
/// # Ok::<(), apus_http::InvalidTarget>(())
/// ```
///
/// The authority gets the fields `Accept`, `Authorization`, `Cookie`, `Origin`, `User-Agent` and `X-Requested-With` of the client
/// ([`ForwardAuth::send`] for others), and what was requested in `X-Forwarded-Method`, `X-Forwarded-Uri`, `X-Original-Method` and
/// `X-Original-URL`. A proxy adds `X-Forwarded-For`, `X-Forwarded-Host` and `X-Forwarded-Proto`. The path is in its normal form, so
/// that the authority decides about the path that is served.
#[derive(Clone)]
pub struct ForwardAuth(Arc<ForwardAuthState>);

#[derive(Clone)]
struct ForwardAuthState {
    authority: Arc<dyn ServiceFactory>,
    uri: Box<str>,
    /// The fields of the client that are sent; `None` is all.
    sent: Option<Box<[HeaderName]>>,
    copied: Box<[HeaderName]>,
    response_fields: Box<[HeaderName]>,
    user_field: Option<HeaderName>,
    cache: Option<AnswerRules>,
}

#[derive(Clone)]
struct AnswerRules {
    time: Duration,
    max: usize,
    keys: Box<[AnswerKey]>,
}

/// The fields of clients that are sent by default.
const DEFAULT_SENT: [HeaderName; 6] = [
    header::ACCEPT,
    header::AUTHORIZATION,
    header::COOKIE,
    header::ORIGIN,
    header::USER_AGENT,
    HeaderName::from_static("x-requested-with"),
];

/// The fields of a refusal that clients get.
const REFUSAL_FIELDS: [HeaderName; 5] = [
    header::LOCATION,
    header::WWW_AUTHENTICATE,
    header::SET_COOKIE,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
];

/// The most bytes of a body that are read, so that the connection can be used again.
const MAX_BODY_BYTES: u64 = 64 * 1024;

impl ForwardAuth {
    /// With this authority, and the path of the requests to it, which may have a query.
    ///
    /// # Errors
    /// The path is invalid.
    pub fn new(authority: impl ServiceFactory + 'static, uri: &str) -> Result<Self, InvalidTarget> {
        let target = Target::parse(&Method::GET, uri)?;
        if !uri.starts_with('/') {
            return Err(InvalidTarget);
        }
        Ok(Self(Arc::new(ForwardAuthState {
            authority: Arc::new(authority),
            uri: target.path_and_query().into(),
            sent: Some(DEFAULT_SENT.into()),
            copied: Box::default(),
            response_fields: Box::default(),
            user_field: None,
            cache: None,
        })))
    }

    /// Sends these fields of the client, in place of the default.
    #[must_use]
    pub fn send(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.with(|state| state.sent = Some(names.into_iter().collect()))
    }

    /// Sends all fields of the client that are not about the body, a range or a condition.
    #[must_use]
    pub fn send_all(self) -> Self {
        self.with(|state| state.sent = None)
    }

    /// Copies these fields of the authority's response into the request. What the client sent in them is removed.
    #[must_use]
    pub fn copy(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.with(|state| state.copied = names.into_iter().collect())
    }

    /// Copies these fields of the authority's response into the response, such as `Set-Cookie` of a session that is extended.
    #[must_use]
    pub fn copy_to_response(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.with(|state| state.response_fields = names.into_iter().collect())
    }

    /// Takes the name of the user from this field of the authority's response.
    #[must_use]
    pub fn user_from(self, name: HeaderName) -> Self {
        self.with(|state| state.user_field = Some(name))
    }

    /// Remembers who was admitted, for this time and for at most `max` requests on each worker: for requests of the same client
    /// with the same fields for the authority, and the same method, scheme, host, path and query.
    #[must_use]
    pub fn remember(self, time: Duration, max: usize) -> Self {
        self.with(|state| {
            state.cache = Some(AnswerRules {
                time,
                max,
                keys: [
                    AnswerKey::Method,
                    AnswerKey::Scheme,
                    AnswerKey::Host,
                    AnswerKey::Uri,
                ]
                .into(),
            });
        })
    }

    /// Remembers for all requests that have these parts of the request line in common, as the authority does not look at the
    /// others. The client and its fields are always part of the key.
    #[must_use]
    pub fn remember_by(self, keys: impl IntoIterator<Item = AnswerKey>) -> Self {
        self.with(|state| {
            if let Some(cache) = &mut state.cache {
                cache.keys = keys.into_iter().collect();
            }
        })
    }

    fn with(mut self, change: impl FnOnce(&mut ForwardAuthState)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

/// The authority and the answers that it gave, for one worker.
struct ForwardAuthWorker {
    service: Rc<dyn Service>,
    answers: RefCell<AnswerCache>,
}

thread_local! {
    /// The clients of this worker.
    static CLIENTS: RefCell<Vec<(Weak<ForwardAuthState>, Rc<ForwardAuthWorker>)>> = const { RefCell::new(Vec::new()) };
}

impl ForwardAuthState {
    /// The client of this worker.
    fn client(self: &Arc<Self>) -> Rc<ForwardAuthWorker> {
        let known = CLIENTS.with_borrow(|clients| {
            let is_own = |state: &Weak<Self>| std::ptr::eq(state.as_ptr(), Arc::as_ptr(self));
            let mut clients = clients.iter();
            let found = clients.find(|(state, _)| is_own(state));
            found.map(|(_, client)| Rc::clone(client))
        });
        if let Some(known) = known {
            return known;
        }
        let client = Rc::new(ForwardAuthWorker {
            service: self.authority.service(),
            answers: RefCell::default(),
        });
        let gone = CLIENTS.with_borrow_mut(|clients| {
            let (live, gone) = std::mem::take(clients)
                .into_iter()
                .partition::<Vec<_>, _>(|(state, _)| state.strong_count() > 0);
            *clients = live;
            clients.push((Arc::downgrade(self), Rc::clone(&client)));
            gone
        });
        // Those of an earlier configuration. They may have clients of their own.
        drop(gone);
        client
    }

    /// The request for the authority, with the fields of the client.
    fn subrequest(&self, request: &Request) -> Request {
        let mut subrequest = request.without_body();
        if !subrequest.are_identity_fields_removed() {
            TrustedProxies::default().establish(&mut subrequest);
        }
        subrequest.headers_mut().retain(|name| match &self.sent {
            // `Via` ends a loop of requests to itself.
            Some(sent) => {
                name == b"via" || sent.iter().any(|sent| sent.as_str().as_bytes() == name)
            }
            None => !is_about_body(name),
        });
        subrequest.set_method(Method::GET);
        if let Some(trace) = Trace::of(request) {
            subrequest.extensions_mut().insert(trace);
        }
        subrequest
    }

    /// Adds what the client requests.
    fn describe(&self, line: &RequestLine<'_>, subrequest: &mut Request) -> Result<(), Error> {
        let request = line.request;
        let method = request.method().as_str();
        let scheme = request.scheme();
        let authority = request.authority().unwrap_or_default();
        let url = format!("{scheme}://{authority}{}", line.uri);
        let headers = subrequest.headers_mut();
        for (name, value) in [
            ("x-forwarded-method", method),
            ("x-forwarded-uri", line.uri),
            ("x-original-method", method),
            ("x-original-url", &url),
        ] {
            headers
                .try_insert(name, value)
                .map_err(|_| Error::bad_request("the request target is invalid"))?;
        }
        let sent = subrequest.set_path_and_query(&self.uri);
        sent.map_err(|_| {
            Error::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the path of the authority is invalid",
            )
        })
    }

    /// What the response of the authority means.
    async fn decide(&self, mut response: Response) -> Result<AuthorityAnswer, Error> {
        let status = response.status();
        let refusal = match status.as_u16() {
            200..=299 => {
                let answer = self.answer(response.headers());
                discard(response.take_body()).await;
                return Ok(answer);
            }
            401 => Error::new(status, "you have to log in"),
            403 => Error::new(status, "you are not allowed to request this"),
            301 | 302 | 303 | 307 | 308 if response.headers().contains("location") => {
                Error::new(status, "you have to log in")
            }
            502..=504 => {
                tracing::warn!(
                    status = status.as_u16(),
                    "the authority of `forward_auth` cannot be asked, so that nobody is admitted"
                );
                Error::new(status, "nobody can be admitted at the moment")
            }
            status => {
                tracing::warn!(
                    status,
                    "the authority of `forward_auth` responds with neither a success nor a refusal, so that nobody is admitted"
                );
                return Err(Error::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the authority made no decision",
                ));
            }
        };
        let fields: &[HeaderName] = if status.is_server_error() {
            &[header::RETRY_AFTER]
        } else {
            &REFUSAL_FIELDS
        };
        let mut refusal = refusal;
        for (name, value) in fields_of(response.headers(), fields) {
            refusal = refusal.header(name, value);
        }
        if matches!(status.as_u16(), 301 | 308) && !response.headers().contains("cache-control") {
            // A browser would never ask again.
            refusal = refusal.header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        discard(response.take_body()).await;
        Err(refusal)
    }

    fn answer(&self, headers: &Headers) -> AuthorityAnswer {
        let user = self.user_field.as_ref().and_then(|name| {
            let mut lines = headers.get_all(name.as_str());
            let line = lines.next().filter(|_| lines.next().is_none())?;
            let name = std::str::from_utf8(line).ok()?;
            (!name.is_empty()).then(|| name.into())
        });
        AuthorityAnswer {
            request_fields: fields_of(headers, &self.copied),
            response_fields: fields_of(headers, &self.response_fields),
            user,
        }
    }
}

/// Reads the rest of a body, so that its connection can be used again.
async fn discard(mut body: Body) {
    let mut read = 0_u64;
    while let Some(Ok(Frame::Data(data))) = body.frame().await {
        read = read.saturating_add(data.len() as u64);
        if read > MAX_BODY_BYTES {
            return;
        }
    }
}

fn fields_of(headers: &Headers, names: &[HeaderName]) -> Vec<(HeaderName, HeaderValue)> {
    let lines = names.iter().flat_map(|name| {
        let values = headers.get_all(name.as_str());
        values.filter_map(|value| Some((name.clone(), HeaderValue::from_bytes(value).ok()?)))
    });
    lines.collect()
}

/// Whether a field is about the body, a range or a condition, so that it makes no sense without them.
fn is_about_body(name: &[u8]) -> bool {
    name.starts_with(b"content-")
        || name.starts_with(b"if-")
        || matches!(name, b"expect" | b"range" | b"accept-encoding")
}

/// Whether applications take both names for the same one: `_` and `.` are the same as `-` in CGI.
fn is_same_name(sent: &[u8], name: &HeaderName) -> bool {
    let plain = |byte: &u8| match byte {
        b'_' | b'.' => b'-',
        byte => *byte,
    };
    let name = name.as_str().as_bytes();
    sent.len() == name.len() && sent.iter().map(plain).eq(name.iter().map(plain))
}

/// What an admitted request gets.
fn grant(answer: &AuthorityAnswer) -> AccessGrant {
    let fields = answer.request_fields.clone();
    let user = answer.user.clone();
    let grant = AccessGrant::of_user(move |request| {
        for (name, value) in &fields {
            request.headers_mut().append(name, value);
        }
        if let Some(name) = user {
            let scheme = RemoteUser::FORWARDED;
            RemoteUser { name, scheme }.set(request);
        }
    });
    if answer.response_fields.is_empty() {
        return grant;
    }
    let fields = answer.response_fields.clone();
    grant.with_response(move |response| {
        for (name, value) in &fields {
            response.headers_mut().append(name, value);
        }
    })
}

impl AccessCheck for ForwardAuth {
    fn name(&self) -> &'static str {
        "forward_auth"
    }

    fn check(&self, request: &Request) -> AccessDecision {
        let state = Arc::clone(&self.0);
        let target = request.original_target();
        let uri = match (normalise_for_matching(target.path()), target.query()) {
            (Ok(path), None) => encode(&path),
            (Ok(path), Some(query)) => format!("{}?{query}", encode(&path)),
            // `OPTIONS *` has no path.
            (Err(_), _) => target.path_and_query().to_owned(),
        };
        let line = RequestLine { request, uri: &uri };
        let mut subrequest = state.subrequest(request);
        let client = state.client();
        let now = apus_clock::monotonic();
        let key = state.cache.as_ref().map(|cache| {
            let key = AnswerKey::digest(&cache.keys, &line, &subrequest);
            (key, cache.max, now.saturating_add(cache.time))
        });
        if let Some((key, ..)) = &key
            && let Some(answer) = client.answers.borrow().get(key, now)
        {
            return AccessDecision::Now(Ok(grant(&answer)));
        }
        if let Err(error) = state.describe(&line, &mut subrequest) {
            return AccessDecision::refused(error);
        }
        trace::note(request, || {
            let why = "it decides whether the client is admitted";
            Step::new(StepKind::Access, format!("asks {}", state.uri), why)
        });
        AccessDecision::Later(Box::pin(async move {
            let response = client.service.call(subrequest).wait().await;
            let answer = Rc::new(state.decide(response).await?);
            if let Some((key, max, until)) = key
                // A cookie is for one response.
                && !answer.response_fields.iter().any(|(name, _)| *name == header::SET_COOKIE)
            {
                let times = (until, now);
                let mut answers = client.answers.borrow_mut();
                answers.insert(key, times, (Rc::clone(&answer), max));
            }
            Ok(grant(&answer))
        }))
    }

    fn establishes_user(&self) -> bool {
        true
    }

    fn remove_claims(&self, request: &mut Request) {
        let names = self.0.copied.iter().chain(&self.0.user_field);
        let is_claim = |sent: &[u8]| names.clone().any(|name| is_same_name(sent, name));
        if request.headers().names().any(is_claim) {
            request.headers_mut().retain(|sent| !is_claim(sent));
        }
    }
}

impl Middleware<ResponseMarker> for ForwardAuth {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
    }
}

impl fmt::Debug for ForwardAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardAuth")
            .field("uri", &self.0.uri)
            .field("copied", &self.0.copied)
            .finish_non_exhaustive()
    }
}
