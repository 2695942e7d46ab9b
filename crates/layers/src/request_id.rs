//! Request ids: one name for a request in the logs of all servers that handle it.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use apus_http::Network;
use apus_http::{HeaderName, HeaderValue, Request, ResponseFuture};
use aws_lc_rs::rand;

use apus_handler::{Error, FromRequestHead, Matched, Middleware, Next, RequestSpan, RouteCheck};

/// The longest id that is accepted from a proxy, in bytes.
const MAX_LEN: usize = 128;

/// The id of a request: an extractor, where [`RequestIds`] is a layer.
///
/// It has 32 hexadecimal digits, unless a trusted proxy sent another. It is unique, but not secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of a request, if the layer gave it one.
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }

    fn new() -> Self {
        let [high, low] = next_number();
        Self(format!("{high:016x}{low:016x}").into())
    }

    /// The id of a proxy, if it has only characters that are safe in logs and fields.
    fn parse(value: &[u8]) -> Option<Self> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=:@".contains(byte);
        if value.is_empty() || value.len() > MAX_LEN || !value.iter().all(is_plain) {
            return None;
        }
        std::str::from_utf8(value).ok().map(|id| Self(id.into()))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromRequestHead for RequestId {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        Self::of(request).cloned().ok_or_else(|| {
            Error::not_provided("a handler takes RequestId, but RequestIds is no layer")
        })
    }

    fn check(route: &mut RouteCheck<'_>) {
        if route.lacks::<Self>() {
            route.mistake("the handler takes RequestId, and no layer `RequestIds` is around it");
        }
    }
}

/// A layer that gives each request an id: for handlers, and as `X-Request-Id` in the request to origins and in
/// the response.
///
/// It keeps the id of a request from a trusted proxy. It replaces the id of any other client, so that clients
/// cannot write into logs.
#[derive(Clone, Debug)]
pub struct RequestIds {
    field: HeaderName,
    trusted: Vec<Network>,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestIds {
    /// A new id for each request.
    pub fn new() -> Self {
        Self {
            field: HeaderName::from_static("x-request-id"),
            trusted: Vec::new(),
        }
    }

    /// Keeps the ids of requests that come from these networks, as `"10.0.0.0/8".parse()?`.
    #[must_use]
    pub fn trust(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.trusted.extend(networks);
        self
    }

    /// The field of the id, in place of `X-Request-Id`.
    #[must_use]
    pub fn field(mut self, name: HeaderName) -> Self {
        self.field = name;
        self
    }

    /// The id of the request, if it comes from a trusted proxy.
    fn brought(&self, request: &Request) -> Option<RequestId> {
        let peer = &request.connection().peer;
        let is_trusted = self.trusted.iter().any(|network| network.contains(peer));
        let value = request.headers().get(&self.field).filter(|_| is_trusted)?;
        RequestId::parse(value)
    }
}

impl Middleware<()> for RequestIds {
    fn check(&self, route: &mut RouteCheck<'_>) {
        route.provide::<RequestId>();
    }

    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        // A site around an application may have given one before.
        let known = RequestId::of(&request).cloned();
        let id = (known.or_else(|| self.brought(&request))).unwrap_or_else(RequestId::new);
        request.extensions_mut().insert(id.clone());
        if let Some(span) = RequestSpan::of(&request) {
            span.record_id(id.as_str());
        }
        let field = self.field.clone();
        if let Ok(value) = HeaderValue::from_str(id.as_str()) {
            // For origins and PHP.
            request.headers_mut().insert(&field, &value);
        }
        next.call(request).map(move |mut response| {
            if let Ok(value) = HeaderValue::from_str(id.as_str()) {
                response.headers_mut().insert(&field, &value);
            }
            response
        })
    }
}

/// A number that is unique over threads and processes: a counter, mixed with a random start of the thread.
fn next_number() -> [u64; 2] {
    thread_local! {
        static STATE: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    }
    let (start, count) = STATE.get().unwrap_or_else(|| {
        let mut seed = [0; 8];
        if rand::fill(&mut seed).is_err() {
            tracing::error!("the system gives no random numbers; request ids may repeat");
        }
        (u64::from_ne_bytes(seed), 0)
    });
    let count = count.wrapping_add(1);
    STATE.set(Some((start, count)));
    [mix(start), mix(start ^ mix(count))]
}

/// The finaliser of SplitMix64, which maps no two numbers to one.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
