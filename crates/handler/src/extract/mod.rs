//! Extractors: the arguments of handlers, read from a request.

mod body;
mod cookies;
mod identity;
mod multipart;
mod values;

use std::fmt;
use std::future::Future;
use std::rc::Rc;

use apus_http::{
    Body, ConnectionInfo, Headers, Method, Peer, Request, Response, StatusCode, Target,
};
use http::HeaderMap;
use serde::de::DeserializeOwned;

pub use ::cookie;
pub use body::Form;
pub use cookies::Cookies;
pub use identity::Identity;
pub use multipart::{Multipart, MultipartForm, Part, Upload, UploadLimits, Uploads};

use crate::error::Error;
use crate::matched::Matched;
use crate::respond::IntoResponse;
use values::{FormFields, PathParameters};

/// An extractor that reads the head of a request.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be extracted from the head of a request",
    label = "a handler cannot take this here",
    note = "a handler takes `Path`, `Query`, `State`, `Method`, `HeaderMap`, `Peer` and the like in \
            any order, and last, if at all, what reads the body: `Json`, `Form`, `String`, \
            `Bytes` or `Request`"
)]
pub trait FromRequestHead: Sized {
    /// The response on failure.
    type Rejection: IntoResponse;

    /// Extracts the value.
    ///
    /// # Errors
    /// The request does not have it.
    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Self::Rejection>;
}

/// An extractor that reads a whole request with its body; the last argument of a handler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be extracted from a request",
    label = "a handler cannot take this",
    note = "a handler takes `Path`, `Query`, `State`, `Method`, `HeaderMap`, `Peer` and the like in \
            any order, and last, if at all, what reads the body: `Json`, `Form`, `String`, \
            `Bytes` or `Request`"
)]
pub trait FromRequest: Sized {
    /// The response on failure.
    type Rejection: IntoResponse;

    /// Extracts the value. It keeps at most `body_limit` bytes of the body in memory.
    fn from_request(
        request: Request,
        body_limit: u64,
    ) -> impl Future<Output = Result<Self, Self::Rejection>> + 'static;
}

/// The error of an extractor.
#[derive(Clone, Debug)]
pub struct Rejection {
    status: StatusCode,
    reason: String,
}

impl Rejection {
    /// A rejection. The client sees the reason.
    pub fn new(status: StatusCode, reason: impl fmt::Display) -> Self {
        Self {
            status,
            reason: reason.to_string(),
        }
    }

    /// A `part` of the request has another type than the handler takes.
    fn misfit(status: StatusCode, part: &str, error: impl fmt::Display) -> Self {
        Self::new(status, format_args!("the {part} does not fit: {error}"))
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        Error::from(self).into_response()
    }
}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        Self::new(rejection.status, rejection.reason)
    }
}

/// The parameters of the path: one value, a tuple in order, or a struct by name.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequestHead for Path<T> {
    type Rejection = Rejection;

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Rejection> {
        let parameters = matched.parameters(request).collect();
        let read = T::deserialize(PathParameters(parameters));
        read.map(Self)
            .map_err(|error| Rejection::misfit(StatusCode::NOT_FOUND, "path", error))
    }
}

/// The query as a struct or a map. A repeated parameter can be a `Vec`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestHead for Query<T> {
    type Rejection = Rejection;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Rejection> {
        let fields = FormFields::parse(request.query().unwrap_or("").as_bytes());
        let read = fields.and_then(|fields| T::deserialize(fields));
        read.map(Self)
            .map_err(|error| Rejection::misfit(StatusCode::BAD_REQUEST, "query", error))
    }
}

/// An extractor of a value of the application's state.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + 'static> FromRequestHead for State<T> {
    type Rejection = StatusCode;

    fn from_head(_: &Request, matched: &Matched<'_>) -> Result<Self, StatusCode> {
        match matched.state::<T>() {
            Some(value) => Ok(Self(value.clone())),
            None => {
                tracing::error!(
                    "a handler takes State<{0}>, but the App was given no state of type {0}",
                    std::any::type_name::<T>()
                );
                Err(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

/// An extractor of a value that a layer added to the extensions of the request.
#[derive(Clone, Copy, Debug)]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequestHead for Extension<T> {
    type Rejection = StatusCode;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, StatusCode> {
        match request.extensions().get::<T>() {
            Some(value) => Ok(Self(value.clone())),
            None => {
                tracing::error!(
                    "a handler takes Extension<{}>, but no layer put one there",
                    std::any::type_name::<T>()
                );
                Err(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

/// Extractors that cannot fail.
macro_rules! always {
    ($($type:ty: $from:expr;)*) => {$(
        impl FromRequestHead for $type {
            type Rejection = std::convert::Infallible;

            fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Self::Rejection> {
                let from: fn(&Request) -> Self = $from;
                Ok(from(request))
            }
        }
    )*};
}

always! {
    Method: |request| request.method().clone();
    Target: |request| request.target().clone();
    Headers: |request| request.headers().clone();
    HeaderMap: |request| request.headers().to_header_map();
    Peer: |request| request.client().peer();
    Rc<ConnectionInfo>: |request| request.connection().clone();
}

impl IntoResponse for std::convert::Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

/// `None` if the extraction fails.
impl<T: FromRequestHead> FromRequestHead for Option<T> {
    type Rejection = std::convert::Infallible;

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Self::Rejection> {
        Ok(T::from_head(request, matched).ok())
    }
}

impl FromRequest for Request {
    type Rejection = std::convert::Infallible;

    async fn from_request(request: Request, _: u64) -> Result<Self, Self::Rejection> {
        Ok(request)
    }
}

impl FromRequest for Body {
    type Rejection = std::convert::Infallible;

    async fn from_request(mut request: Request, _: u64) -> Result<Self, Self::Rejection> {
        Ok(request.take_body())
    }
}
