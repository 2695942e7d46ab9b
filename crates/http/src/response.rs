//! A response on its way to the client.

use std::any::Any;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::fields::CacheResult;
use crate::{Body, Headers, Tunnel};

/// A response: status, field lines, content, and what happens once it was sent.
///
/// The field lines may be shared with a cache, so that an answer from there costs no copy; they are
/// copied at the first [`Response::headers_mut`]. `Date`, `Connection`, `Transfer-Encoding` and a
/// missing `Content-Length` are the connection's to write, not the response's.
pub struct Response {
    status: StatusCode,
    headers: Rc<Headers>,
    body: Body,
    is_coding_chosen: bool,
    cache: Option<CacheResult>,
    attachments: Option<Box<ResponseAttachments>>,
}

#[derive(Default)]
struct ResponseAttachments {
    tunnel: Option<Tunnel>,
    observers: Vec<Observer>,
    origin: Option<ResponseOrigin>,
    value: Option<Box<dyn Any>>,
}

type Observer = Box<dyn FnOnce(&Completion)>;

/// How a response ended.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The status that was sent.
    pub status: StatusCode,
    /// Bytes of content handed to the transport, without head and framing.
    pub body_bytes: u64,
    /// All bytes handed to the transport, before TLS.
    pub bytes: u64,
    /// From the first byte of the request's head to the last byte of the response.
    pub duration: Duration,
    /// Whether the client can have got all of it.
    pub outcome: ResponseOutcome,
    /// The origin that gave it, if one did and whoever watches was told.
    pub origin: Option<ResponseOrigin>,
    /// What a cache did, likewise.
    pub cache: Option<CacheResult>,
}

/// The origin that gave a response, for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseOrigin {
    /// Its address.
    pub address: Arc<str>,
    /// The status that it answered with.
    pub status: StatusCode,
    /// From the choice of the origin to the head of its response.
    pub duration: Duration,
}

/// Whether a client can have got all of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// All was handed to the transport.
    Complete,
    /// The client went away, or read too slowly.
    ClientGone,
    /// The source of the content failed; the connection was cut so that the client can tell.
    SourceFailed,
}

impl Response {
    /// An empty response.
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: Rc::default(),
            body: Body::Empty,
            is_coding_chosen: false,
            cache: None,
            attachments: None,
        }
    }

    /// A response whose field lines are shared, as by a cache.
    pub fn with_shared_headers(status: StatusCode, headers: Rc<Headers>, body: Body) -> Self {
        Self {
            status,
            headers,
            body,
            is_coding_chosen: false,
            cache: None,
            attachments: None,
        }
    }

    /// A `text/plain; charset=utf-8` response.
    pub fn text(status: StatusCode, text: impl Into<Body>) -> Self {
        Self::new(status)
            .with_header(
                &header::CONTENT_TYPE,
                &HeaderValue::from_static("text/plain; charset=utf-8"),
            )
            .with_body(text)
    }

    /// This response with another body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// This response with a field set.
    #[must_use]
    pub fn with_header(mut self, name: &HeaderName, value: &HeaderValue) -> Self {
        self.headers_mut().insert(name, value);
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Changes the status.
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// The field lines.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The field lines to change; copies them if they are shared.
    pub fn headers_mut(&mut self) -> &mut Headers {
        Rc::make_mut(&mut self.headers)
    }

    /// The content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The content to change.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Takes the content out, leaving none.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Whether the content is in the coding that the client gets, and `Vary` says what it depends on
    /// (RFC 9110 section 12.5.3): nobody on the way out needs to ask again.
    pub fn is_coding_chosen(&self) -> bool {
        self.is_coding_chosen
    }

    /// Sets [`Response::is_coding_chosen`].
    pub fn set_coding_chosen(&mut self, is_chosen: bool) {
        self.is_coding_chosen = is_chosen;
    }

    /// Hands the connection over to `tunnel` once this response was sent. The status must be 101,
    /// or 2xx as the answer to CONNECT; with any other status the tunnel is dropped.
    pub fn set_tunnel(&mut self, tunnel: Tunnel) {
        self.attachments.get_or_insert_default().tunnel = Some(tunnel);
    }

    /// What is to take the connection over.
    pub fn take_tunnel(&mut self) -> Option<Tunnel> {
        self.attachments
            .as_mut()
            .and_then(|attachments| attachments.tunnel.take())
    }

    /// Tells logs which origin gave the response.
    pub fn set_origin(&mut self, origin: ResponseOrigin) {
        self.attachments.get_or_insert_default().origin = Some(origin);
    }

    /// The origin that gave the response, if that was told.
    pub fn origin(&self) -> Option<&ResponseOrigin> {
        self.attachments.as_ref()?.origin.as_ref()
    }

    /// Tells logs what a cache did.
    pub fn set_cache(&mut self, cache: CacheResult) {
        self.cache = Some(cache);
    }

    /// What a cache did, if there was one and it told that.
    pub fn cache(&self) -> Option<CacheResult> {
        self.cache
    }

    /// Attaches a value for layers further out, in place of the one before.
    pub fn attach(&mut self, value: Box<dyn Any>) {
        self.attachments.get_or_insert_default().value = Some(value);
    }

    /// The value that was attached.
    pub fn attached(&self) -> Option<&dyn Any> {
        self.attached.as_ref()?.value.as_deref()
    }

    /// Takes the value that was attached.
    pub fn take_attached(&mut self) -> Option<Box<dyn Any>> {
        self.attachments.as_mut()?.value.take()
    }

    /// Calls `observer` when the response was sent or broke off.
    pub fn on_complete(&mut self, observer: impl FnOnce(&Completion) + 'static) {
        self.attachments
            .get_or_insert_default()
            .observers
            .push(Box::new(observer));
    }

    /// Whether anybody waits for the end of this response.
    pub fn is_observed(&self) -> bool {
        self.attachments
            .as_ref()
            .is_some_and(|attachments| !attachments.observers.is_empty())
    }

    /// Takes out what waits for the end of this response.
    pub fn take_observers(&mut self) -> Vec<Observer> {
        self.attachments
            .as_mut()
            .map(|attachments| std::mem::take(&mut attachments.observers))
            .unwrap_or_default()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl From<StatusCode> for Response {
    fn from(status: StatusCode) -> Self {
        Self::new(status)
    }
}
