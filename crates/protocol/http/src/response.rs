//! The response of a service.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use crate::completion::{
    Completion, ResponseCount, ResponseObserver, ResponseObservers, ResponseOrigin,
};
use crate::fields::CacheResult;
use crate::{Body, Headers, KnownField, Tunnel};

/// A response: status, field lines, body, and the observers of its end.
///
/// The field lines may be shared with a cache, so that a cached response costs no copy; the first
/// [`Response::headers_mut`] copies them. The connection writes `Date`, `Connection`,
/// `Transfer-Encoding` and a missing `Content-Length`.
pub struct Response {
    status: StatusCode,
    headers: ResponseHeaders,
    body: Body,
    is_coding_chosen: bool,
    is_of_panic: bool,
    ends_connection: bool,
    is_unsent: bool,
    cache: Option<CacheResult>,
    count: Option<ResponseCount>,
    attachments: Option<Box<ResponseAttachments>>,
}

enum ResponseHeaders {
    Own(Headers),
    Shared(Rc<Headers>),
}

#[derive(Default)]
struct ResponseAttachments {
    tunnel: Option<Tunnel>,
    observers: Vec<ResponseObserver>,
    origin: Option<ResponseOrigin>,
    is_internal_removed: bool,
    value: Option<Box<dyn Any>>,
    wrappers: Vec<BodyWrapper>,
}

type BodyWrapper = Box<dyn FnOnce(Body) -> Body>;

impl Response {
    /// An empty response.
    pub fn new(status: StatusCode) -> Self {
        Self::with_headers(status, Headers::new(), Body::Empty)
    }

    /// A response with these field lines.
    pub fn with_headers(status: StatusCode, headers: Headers, body: Body) -> Self {
        Self::from_parts(status, ResponseHeaders::Own(headers), body)
    }

    /// A response whose field lines are shared, such as with a cache.
    pub fn with_shared_headers(status: StatusCode, headers: Rc<Headers>, body: Body) -> Self {
        Self::from_parts(status, ResponseHeaders::Shared(headers), body)
    }

    fn from_parts(status: StatusCode, headers: ResponseHeaders, body: Body) -> Self {
        Self {
            status,
            headers,
            body,
            is_coding_chosen: false,
            is_of_panic: false,
            ends_connection: false,
            is_unsent: false,
            cache: None,
            count: None,
            attachments: None,
        }
    }

    /// No response: nothing is sent, and the stream is reset, or an HTTP/1.1 connection closed. The status is for logs only:
    /// 444, as in nginx.
    pub fn unsent() -> Self {
        let mut response = Self::new(StatusCode::from_u16(444).unwrap_or(StatusCode::FORBIDDEN));
        response.is_unsent = true;
        response
    }

    /// A `text/plain; charset=utf-8` response.
    pub fn text(status: StatusCode, text: impl Into<Body>) -> Self {
        static TYPE: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
        let mut headers = Headers::new();
        headers.append(&header::CONTENT_TYPE, &TYPE);
        Self::with_headers(status, headers, text.into())
    }

    /// The response to a method that a resource does not have (RFC 9110 sections 9.1, 9.3.7 and 15.5.6): 204 to OPTIONS, 405
    /// to methods of RFC 9110 and 5789, and 501 to others, which this server does not know. `allow` are those that it has.
    pub fn refuse_method(method: &Method, allow: &HeaderValue) -> Self {
        let status = match *method {
            Method::OPTIONS => StatusCode::NO_CONTENT,
            Method::GET
            | Method::HEAD
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::CONNECT
            | Method::TRACE
            | Method::PATCH => StatusCode::METHOD_NOT_ALLOWED,
            _ => StatusCode::NOT_IMPLEMENTED,
        };
        Self::new(status).with_header(&header::ALLOW, allow)
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
        match &self.headers {
            ResponseHeaders::Own(headers) => headers,
            ResponseHeaders::Shared(headers) => headers,
        }
    }

    /// The field lines to change; copies them if they are shared.
    pub fn headers_mut(&mut self) -> &mut Headers {
        if let ResponseHeaders::Shared(shared) = &mut self.headers {
            let own = Rc::get_mut(shared).map(std::mem::take);
            let own = own.unwrap_or_else(|| Headers::clone(shared));
            self.headers = ResponseHeaders::Own(own);
        }
        match &mut self.headers {
            ResponseHeaders::Own(headers) => headers,
            ResponseHeaders::Shared(shared) => Rc::make_mut(shared),
        }
    }

    /// The body.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The body to change.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Takes the body, and leaves an empty one.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Has `wrap` change the body when it is sent, after all services have changed it: a limit on bandwidth counts the bytes of the content
    /// coding. The length has to stay the same.
    pub fn wrap_when_sent(&mut self, wrap: impl FnOnce(Body) -> Body + 'static) {
        self.attachments
            .get_or_insert_default()
            .wrappers
            .push(Box::new(wrap));
    }

    /// Takes the body as it is sent to a client, with the changes of [`Response::wrap_when_sent`].
    pub fn take_body_to_send(&mut self) -> Body {
        let body = self.take_body();
        match &mut self.attachments {
            None => body,
            Some(attachments) => {
                let wrappers = std::mem::take(&mut attachments.wrappers);
                wrappers.into_iter().fold(body, |body, wrap| wrap(body))
            }
        }
    }

    /// Whether the body has the content coding that the client gets, and `Vary` names the fields that it
    /// depends on (RFC 9110 section 12.5.3). No outer layer negotiates again then.
    pub fn is_coding_chosen(&self) -> bool {
        self.is_coding_chosen
    }

    /// Sets [`Response::is_coding_chosen`].
    pub fn set_coding_chosen(&mut self, is_chosen: bool) {
        self.is_coding_chosen = is_chosen;
    }

    /// Whether a service panicked, and this is the response in place of its own.
    pub fn is_of_panic(&self) -> bool {
        self.is_of_panic
    }

    /// Sets [`Response::is_of_panic`], so that the server counts the panic.
    pub fn set_of_panic(&mut self) {
        self.is_of_panic = true;
    }

    /// Whether the connection ends after this response, and the others that are under way over it.
    pub fn ends_connection(&self) -> bool {
        self.ends_connection
    }

    /// Sets [`Response::ends_connection`], for a client that is not served any more.
    pub fn set_ends_connection(&mut self) {
        self.ends_connection = true;
    }

    /// Whether this is [`Response::unsent`], of which the client gets nothing.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// Hands the connection over to `tunnel` after this response is sent. The status must be 101, or 2xx
    /// in response to CONNECT; with any other status the tunnel is dropped.
    pub fn set_tunnel(&mut self, tunnel: Tunnel) {
        self.attachments.get_or_insert_default().tunnel = Some(tunnel);
    }

    /// Takes the tunnel that takes the connection over.
    pub fn take_tunnel(&mut self) -> Option<Tunnel> {
        self.attachments
            .as_mut()
            .and_then(|attachments| attachments.tunnel.take())
    }

    /// Sets the origin of the response. A response that is made of this one has to keep it.
    pub fn set_origin(&mut self, origin: ResponseOrigin) {
        self.attachments.get_or_insert_default().origin = Some(origin);
    }

    /// The origin of the response, if it is set.
    pub fn origin(&self) -> Option<&ResponseOrigin> {
        self.attachments.as_ref()?.origin.as_ref()
    }

    /// Removes the fields by which an origin tells the server what to do ([`KnownField::Internal`]). Those that are added
    /// from now on are for a server in front of this one, and are sent.
    pub fn remove_internal(&mut self) {
        if self.headers().has(KnownField::Internal) {
            self.headers_mut().remove_internal();
        }
        if let Some(attachments) = &mut self.attachments {
            attachments.is_internal_removed = true;
        }
    }

    /// Does so for the response of an origin, unless it was done. Whatever sends a response to a client calls this, as it
    /// is behind the last service that may need the fields. Other services of the program may have such fields for a
    /// server in front of it.
    pub fn remove_internal_of_origin(&mut self) {
        let is_of_origin = |attachments: &ResponseAttachments| {
            attachments.origin.is_some() && !attachments.is_internal_removed
        };
        if self.headers().has(KnownField::Internal)
            && self.attachments.as_deref().is_some_and(is_of_origin)
        {
            self.remove_internal();
        }
    }

    /// Sets the result of the cache, for logs.
    pub fn set_cache(&mut self, cache: CacheResult) {
        self.cache = Some(cache);
    }

    /// The result of the cache, if it is set.
    pub fn cache(&self) -> Option<CacheResult> {
        self.cache
    }

    /// Attaches a value for outer layers, and replaces the one before.
    pub fn attach(&mut self, value: Box<dyn Any>) {
        self.attachments.get_or_insert_default().value = Some(value);
    }

    /// The value that was attached.
    pub fn attached(&self) -> Option<&dyn Any> {
        self.attachments.as_ref()?.value.as_deref()
    }

    /// Takes the value that was attached.
    pub fn take_attached(&mut self) -> Option<Box<dyn Any>> {
        self.attachments.as_mut()?.value.take()
    }

    /// Calls `observer` when the response is sent or aborted.
    pub fn on_complete(&mut self, observer: impl FnOnce(&Completion) + 'static) {
        self.attachments
            .get_or_insert_default()
            .observers
            .push(Box::new(observer));
    }

    /// Has the response counted when it is sent or aborted.
    pub fn count(&mut self, mut count: ResponseCount) {
        count.set_status(self.status);
        self.count = Some(count);
    }

    /// Whether there are observers of the end of this response.
    pub fn is_observed(&self) -> bool {
        self.count.is_some()
            || self
                .attachments
                .as_ref()
                .is_some_and(|attachments| !attachments.observers.is_empty())
    }

    /// Takes the observers of the end of this response.
    pub fn take_observers(&mut self) -> ResponseObservers {
        let others = self
            .attachments
            .as_mut()
            .map(|attachments| std::mem::take(&mut attachments.observers));
        ResponseObservers::new(self.count.take(), others.unwrap_or_default())
    }

    /// Adds the observers of another response, which this one takes the place of.
    pub fn add_observers(&mut self, observers: ResponseObservers) {
        let (count, others) = observers.into_parts();
        if count.is_some() {
            self.count = count;
        }
        if !others.is_empty() {
            let attachments = self.attachments.get_or_insert_default();
            attachments.observers.extend(others);
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", self.headers())
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl From<StatusCode> for Response {
    fn from(status: StatusCode) -> Self {
        Self::new(status)
    }
}
