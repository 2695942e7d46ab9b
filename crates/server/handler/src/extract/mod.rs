//! Extractors: the arguments of handlers, read from a request.

mod after_wait;
mod body;
#[cfg(feature = "cookies")]
mod cookies;
mod identity;
mod in_layers;
mod multipart;
mod optional;
mod paging;
mod path_parameters;
mod path_shape;
mod request_id;
mod tuples;
mod unreadable_field;
mod values;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::rc::Rc;

use apus_http::{
    Body, ConnectionInfo, Headers, Method, Peer, Request, Response, StatusCode, Target,
};
use http::HeaderMap;
use serde::de::DeserializeOwned;

#[cfg(feature = "cookies")]
pub use ::cookie;
pub use after_wait::{AsyncExtractor, Extraction};
pub use body::{Form, form_body, form_values, json_body};
#[cfg(feature = "cookies")]
pub use cookies::Cookies;
pub use identity::Identity;
pub use in_layers::Require;
pub use multipart::{Multipart, MultipartForm, Part, Upload, UploadLimits, Uploads};
pub use paging::{PageLinks, Paging};
pub use unreadable_field::UnreadableField;

use crate::error::{Error, ErrorFormat};
use crate::matched::Matched;
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;
use values::{FormFields, path_parameters};

/// An extractor that reads the head of a request. One that waits is an [`AsyncExtractor`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be extracted from the head of a request",
    label = "a handler cannot take this here",
    note = "a handler takes `Path`, `Query`, `State`, `Method`, `HeaderMap`, `Peer` and the like in \
            any order, and last, if at all, what reads the body: `Json`, `Form`, `String`, \
            `Bytes` or `Request`; a type of your own can implement `FromRequestHead` or `AsyncExtractor`",
    note = "the `T` of `Path<T>` and `Query<T>` has `#[derive(serde::Deserialize)]`, and the `T` of `State<T>` `#[derive(Clone)]`"
)]
pub trait FromRequestHead: Sized {
    /// The response on failure.
    type Rejection: IntoResponse + 'static;

    /// Whether the extraction may wait, as in an [`AsyncExtractor`].
    #[doc(hidden)]
    const WAITS: bool = false;

    /// Extracts the value.
    ///
    /// # Errors
    /// The request does not have it.
    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Self::Rejection>;

    /// The extraction, which may wait.
    #[doc(hidden)]
    fn extraction(
        request: &mut Request,
        matched: &Matched<'_>,
    ) -> Extraction<Self, Self::Rejection> {
        Extraction::Ready(Self::from_head(request, matched))
    }

    /// Checks before the server listens that a route and its layers have what the extractor needs. Mistakes of the
    /// program belong here, as a state that is missing; by default there are none.
    fn check(_route: &mut RouteCheck<'_>) {}
}

/// An extractor that reads a whole request with its body; the last argument of a handler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be extracted from a request",
    label = "a handler cannot take this",
    note = "a handler takes `Path`, `Query`, `State`, `Method`, `HeaderMap`, `Peer` and the like in \
            any order, and last, if at all, what reads the body: `Json`, `Form`, `String`, \
            `Bytes` or `Request`",
    note = "the `T` of `Json<T>` and `Form<T>` has `#[derive(serde::Deserialize)]`"
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
    field: Option<Box<UnreadableField>>,
    /// Whether the client sent JSON, and so reads it.
    is_of_json: bool,
}

impl Rejection {
    /// A rejection. The client sees the reason.
    pub fn new(status: StatusCode, reason: impl fmt::Display) -> Self {
        Self {
            status,
            reason: reason.to_string(),
            field: None,
            is_of_json: false,
        }
    }

    /// The field that serde could not read, if that is the reason.
    pub fn field(&self) -> Option<&UnreadableField> {
        self.field.as_deref()
    }

    /// A field of a `part` of the request is not what the handler takes.
    fn of_field(status: StatusCode, part: &str, field: UnreadableField) -> Self {
        let rejection = match field.path() {
            "" => Self::misfit(status, part, field.message()),
            path => Self::misfit(status, part, format_args!("{path}: {}", field.message())),
        };
        Self {
            field: Some(Box::new(field)),
            ..rejection
        }
    }

    /// The same of a request with JSON: the response is problem details if the client states no preference.
    fn of_json(mut self) -> Self {
        self.is_of_json = true;
        self
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
        let mut error = Self::new(rejection.status, rejection.reason);
        if let Some(field) = rejection.field.filter(|field| !field.path().is_empty()) {
            error = error.with("errors", HashMap::from([(field.path(), [field.message()])]));
        }
        if rejection.is_of_json {
            error.prefer(ErrorFormat::Json)
        } else {
            error
        }
    }
}

/// The parameters of the path: one value, a tuple in order, or a struct by name.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequestHead for Path<T> {
    type Rejection = Rejection;

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Rejection> {
        let read = T::deserialize(path_parameters(matched.parameters(request)));
        read.map(Self)
            .map_err(|error| Rejection::misfit(StatusCode::NOT_FOUND, "path", error))
    }

    fn check(route: &mut RouteCheck<'_>) {
        let names: Vec<&str> = route.parameters().collect();
        if let Err(shape) = path_shape::check::<T>(&names) {
            let path = match &*names {
                [] => "no parameters".to_owned(),
                names => format!("{{{}}}", names.join("}, {")),
            };
            let name = std::any::type_name::<T>();
            route.mistake(format!(
                "the handler takes Path<{name}>, which {shape}, and the path has {path}"
            ));
        }
    }
}

/// The query as a struct or a map. A repeated parameter can be a `Vec`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestHead for Query<T> {
    type Rejection = Rejection;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Rejection> {
        let query = request.query().unwrap_or("").as_bytes();
        read_fields(query, StatusCode::BAD_REQUEST, "query").map(Self)
    }
}

/// Reads the fields of a query or a form. If one is not what `T` takes, they are read again to find out which.
fn read_fields<T: DeserializeOwned>(
    encoded: &[u8],
    status: StatusCode,
    part: &str,
) -> Result<T, Rejection> {
    let misfit = |error| Rejection::misfit(status, part, error);
    T::deserialize(FormFields::parse(encoded).map_err(misfit)?).or_else(|_| {
        let fields = FormFields::parse(encoded).map_err(misfit)?;
        serde_path_to_error::deserialize(fields)
            .map_err(|error| Rejection::of_field(status, part, UnreadableField::of(&error)))
    })
}

/// An extractor of a value of the application's state.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + 'static> FromRequestHead for State<T> {
    type Rejection = Error;

    fn from_head(_: &Request, matched: &Matched<'_>) -> Result<Self, Error> {
        let value = matched.state::<T>().cloned();
        value.map(Self).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            Error::not_provided(format!(
                "a handler takes State<{name}>, but the App was given no state of type {name}"
            ))
        })
    }

    fn check(route: &mut RouteCheck<'_>) {
        if !route.has_state::<T>() {
            let name = std::any::type_name::<T>();
            route.mistake(format!(
                "the handler takes State<{name}>, and the application has no state of this type; \
                 `App::state` adds it"
            ));
        }
    }
}

/// An extractor of a value that a layer added to the extensions of the request.
#[derive(Clone, Copy, Debug)]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequestHead for Extension<T> {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        let value = request.extensions().get::<T>().cloned();
        value.map(Self).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            Error::not_provided(format!(
                "a handler takes Extension<{name}>, but no layer put one there"
            ))
        })
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
