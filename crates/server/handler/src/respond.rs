//! `IntoResponse`: the return types of handlers, and their conversion to responses.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use apus_http::{
    Body, BodyError, BodyStream, Frame, HeaderValue, Headers, Response, StatusCode, header,
};
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use serde::Serialize;

use crate::error::Error;

/// A type that can be converted to a response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a response",
    label = "this is what the handler returns",
    note = "a handler returns text, `Html`, `Json`, `StatusCode`, `Response`, `(StatusCode, T)`, \
            `Result<T, E>` of two such types, or its own type that implements `IntoResponse`; an error type \
            of its own implements `HttpError`",
    note = "the `T` of `Json<T>` has `#[derive(serde::Serialize)]`"
)]
pub trait IntoResponse {
    /// Converts it to a response.
    fn into_response(self) -> Response;

    /// The response with a header field. An invalid field makes it a 500, and is logged.
    ///
    /// ```
    /// # use apus_handler::{IntoResponse, Json};
    /// # use apus_http::Response;
    /// async fn figures() -> Response {
    ///     Json([1, 2, 3]).with("cache-control", "max-age=60").with("x-figures", "3")
    /// }
    /// ```
    fn with(self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Response
    where
        Self: Sized,
    {
        ([(name, value)], self).into_response()
    }
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(StatusCode::NO_CONTENT)
    }
}

impl IntoResponse for Body {
    fn into_response(self) -> Response {
        Response::new(StatusCode::OK).with_body(self)
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        typed(&BYTES, self.into())
    }
}

impl IntoResponse for Vec<u8> {
    fn into_response(self) -> Response {
        typed(&BYTES, self.into())
    }
}

impl IntoResponse for &'static str {
    fn into_response(self) -> Response {
        typed(&TEXT, self.into())
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        typed(&TEXT, self.into())
    }
}

impl IntoResponse for Cow<'static, str> {
    fn into_response(self) -> Response {
        match self {
            Cow::Borrowed(text) => text.into_response(),
            Cow::Owned(text) => text.into_response(),
        }
    }
}

static BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
static HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
static JSON: HeaderValue = HeaderValue::from_static("application/json");
static TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

fn typed(content_type: &HeaderValue, body: Body) -> Response {
    let mut headers = Headers::new();
    headers.append(&header::CONTENT_TYPE, content_type);
    Response::with_headers(StatusCode::OK, headers, body)
}

/// Sets the status.
impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        response.set_status(self.0);
        response
    }
}

/// Sets header fields. An invalid field makes it a 500.
impl<T, N, V, const COUNT: usize> IntoResponse for ([(N, V); COUNT], T)
where
    T: IntoResponse,
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        for (name, value) in self.0 {
            if let Err(error) = response.headers_mut().try_insert(name, value) {
                tracing::error!(%error, "a handler set a field that cannot be sent");
                return Response::new(StatusCode::INTERNAL_SERVER_ERROR);
            }
        }
        response
    }
}

/// Sets the status and header fields.
impl<T, N, V, const COUNT: usize> IntoResponse for (StatusCode, [(N, V); COUNT], T)
where
    T: IntoResponse,
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    fn into_response(self) -> Response {
        (self.1, (self.0, self.2)).into_response()
    }
}

/// Sets header fields; of a name, all lines.
impl<T: IntoResponse> IntoResponse for (HeaderMap, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        let headers = response.headers_mut();
        for name in self.0.keys() {
            headers.remove(name.as_str());
        }
        for (name, value) in &self.0 {
            headers.append(name, value);
        }
        response
    }
}

/// Sets the status and header fields; of a name, all lines.
impl<T: IntoResponse> IntoResponse for (StatusCode, HeaderMap, T) {
    fn into_response(self) -> Response {
        (self.1, (self.0, self.2)).into_response()
    }
}

/// Sets header fields; of a name, all lines.
impl<T: IntoResponse> IntoResponse for (Headers, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        let headers = response.headers_mut();
        headers.retain(|name| !self.0.names().any(|set| set.eq_ignore_ascii_case(name)));
        headers.append_from(&self.0, |_, _| true);
        response
    }
}

/// Sets the status and header fields; of a name, all lines.
impl<T: IntoResponse> IntoResponse for (StatusCode, Headers, T) {
    fn into_response(self) -> Response {
        (self.1, (self.0, self.2)).into_response()
    }
}

/// A response with the error in its extensions, from which [`crate::Rendering`] makes the body.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.status_code());
        response.attach(Box::new(self));
        response
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// `None` is a 404.
impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        match self {
            Some(value) => value.into_response(),
            None => Response::new(StatusCode::NOT_FOUND),
        }
    }
}

/// HTML text.
#[derive(Clone, Copy, Debug)]
pub struct Html<T>(pub T);

impl<T: Into<Body>> IntoResponse for Html<T> {
    fn into_response(self) -> Response {
        typed(&HTML, self.0.into())
    }
}

/// JSON (RFC 8259): a response, and an extractor of a request body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(json) => typed(&JSON, json.into()),
            Err(error) => Error::from(error).into_response(),
        }
    }
}

/// 201: a resource was created, and the response tells its location (RFC 9110 section 15.3.2).
#[derive(Clone, Debug)]
pub struct Created<T> {
    location: String,
    body: T,
}

impl<T> Created<T> {
    /// A resource at this URL, and the body of the response.
    pub fn at(location: impl Into<String>, body: T) -> Self {
        Self {
            location: location.into(),
            body,
        }
    }
}

impl<T: IntoResponse> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (
            StatusCode::CREATED,
            [("location", self.location)],
            self.body,
        )
            .into_response()
    }
}

/// A redirect (RFC 9110 section 15.4).
#[derive(Clone, Debug)]
pub struct Redirect {
    status: StatusCode,
    location: String,
}

impl Redirect {
    /// 303: the client sends a GET request to the location, for example after a form.
    pub fn to(location: impl Into<String>) -> Self {
        Self {
            status: StatusCode::SEE_OTHER,
            location: location.into(),
        }
    }

    /// 307: a temporary redirect with the same method.
    pub fn temporary(location: impl Into<String>) -> Self {
        Self {
            status: StatusCode::TEMPORARY_REDIRECT,
            location: location.into(),
        }
    }

    /// 308: a permanent redirect with the same method.
    pub fn permanent(location: impl Into<String>) -> Self {
        Self {
            status: StatusCode::PERMANENT_REDIRECT,
            location: location.into(),
        }
    }
}

impl IntoResponse for Redirect {
    fn into_response(self) -> Response {
        ([("location", self.location)], self.status).into_response()
    }
}

/// A response whose body is a [`Stream`] of bytes.
#[derive(Debug)]
pub struct Streaming<S>(pub S);

impl<S, E> IntoResponse for Streaming<S>
where
    S: Stream<Item = Result<Bytes, E>> + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn into_response(self) -> Response {
        Response::new(StatusCode::OK).with_body(Body::stream(StreamingBody(Box::pin(self.0))))
    }
}

struct StreamingBody<S>(Pin<Box<S>>);

impl<S, E> BodyStream for StreamingBody<S>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(match ready!(self.0.as_mut().poll_next(cx)) {
            Some(Ok(bytes)) => Some(Ok(Frame::Data(bytes))),
            Some(Err(error)) => Some(Err(BodyError::Source(error.into()))),
            None => None,
        })
    }
}
