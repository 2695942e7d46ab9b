//! `HttpError`: the trait of an application's error types that have a status, by which `?` converts errors.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::OnceLock;

use apus_http::{BodyError, Response, StatusCode};

use crate::error::Error;
use crate::respond::IntoResponse;

/// An error type with a status for each error. Handlers can return it:
///
/// ```
/// # use apus_handler::{HttpError, Json, Path};
/// # use apus_http::StatusCode;
/// use std::fmt;
///
/// // With the crate `thiserror`: #[derive(Debug, thiserror::Error)], and #[error("...")] for each.
/// #[derive(Debug)]
/// enum ShopError {
///     NoProduct(u32),
///     Database(std::io::Error),
/// }
/// # impl fmt::Display for ShopError {
/// #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
/// #         match self {
/// #             Self::NoProduct(id) => write!(f, "there is no product {id}"),
/// #             Self::Database(_) => f.write_str("the database failed"),
/// #         }
/// #     }
/// # }
/// # impl std::error::Error for ShopError {}
///
/// impl HttpError for ShopError {
///     fn status(&self) -> StatusCode {
///         match self {
///             Self::NoProduct(_) => StatusCode::NOT_FOUND,
///             Self::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
///         }
///     }
/// }
///
/// async fn product(Path(id): Path<u32>) -> Result<Json<&'static str>, ShopError> {
///     match id {
///         1 => Ok(Json("tea")),
///         2 => Err(ShopError::Database(std::io::Error::other("gone"))),
///         id => Err(ShopError::NoProduct(id)),
///     }
/// }
///
/// let error = ShopError::NoProduct(7).into_error();
/// assert_eq!(error.status_code(), StatusCode::NOT_FOUND);
/// assert_eq!(error.detail(), Some("there is no product 7"));
/// // The client does not see what failed.
/// let error = ShopError::Database(std::io::Error::other("gone")).into_error();
/// assert_eq!(error.detail(), None);
/// ```
///
/// In a function that returns [`apus::Result`](crate::Result), `?` keeps the status of a type that the attribute
/// `#[http_error]` above the `impl` declares (feature `macros`). It converts other errors to a 500;
/// `.map_err(HttpError::into_error)?` keeps the status without the attribute.
pub trait HttpError: std::error::Error + Send + Sync + Sized + 'static {
    /// The status that the client gets.
    fn status(&self) -> StatusCode;

    /// The detail for the client. Default: the message of the error for 4xx, and nothing for 5xx, where the
    /// message is only logged.
    fn detail(&self) -> Option<String> {
        self.status().is_client_error().then(|| self.to_string())
    }

    /// An [`Error`] with this status and detail, and this error as its source.
    fn into_error(self) -> Error {
        let error = match self.detail() {
            Some(detail) => Error::new(self.status(), detail),
            None => Error::of(self.status()),
        };
        error.caused_by(self)
    }
}

#[diagnostic::do_not_recommend]
impl<E: HttpError> IntoResponse for E {
    fn into_response(self) -> Response {
        self.into_error().into_response()
    }
}

/// The body of a request that ends before it is complete is a fault of the client, unless its source failed.
impl HttpError for BodyError {
    fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Self::Source(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// A type that implements [`HttpError`], by which `?` recognises its errors.
#[derive(Clone, Copy)]
pub struct HttpErrorType {
    id: fn() -> TypeId,
    convert: fn(Box<dyn Any>) -> Option<Error>,
}

/// The function that finds the types that the program declares.
static FIND: OnceLock<fn(TypeId) -> Option<HttpErrorType>> = OnceLock::new();

impl HttpErrorType {
    /// The type.
    pub const fn of<E: HttpError>() -> Self {
        Self {
            id: TypeId::of::<E>,
            convert: |error| error.downcast::<E>().ok().map(|error| error.into_error()),
        }
    }

    /// A type of another crate, with the conversion of its boxed errors.
    pub const fn of_other<E: 'static>(convert: fn(Box<dyn Any>) -> Option<Error>) -> Self {
        Self {
            id: TypeId::of::<E>,
            convert,
        }
    }

    /// Its identifier.
    pub fn id(&self) -> TypeId {
        (self.id)()
    }

    /// Sets the function that finds the types of the program, unless one is set.
    pub fn find_by(find: fn(TypeId) -> Option<Self>) {
        FIND.get_or_init(|| find);
    }

    /// Converts an error of a declared type, or of the body of a request; others are returned.
    pub(crate) fn convert<E: 'static>(error: E) -> Result<Error, E> {
        let mut error = Some(error);
        let of_body: &mut dyn Any = &mut error;
        if let Some(of_body) = of_body.downcast_mut::<Option<BodyError>>()
            && let Some(of_body) = of_body.take()
        {
            return Ok(of_body.into_error());
        }
        let Some(error) = error else {
            return Ok(Error::of(StatusCode::INTERNAL_SERVER_ERROR));
        };
        let known = FIND.get().and_then(|find| find(TypeId::of::<E>()));
        let Some(known) = known else {
            return Err(error);
        };
        // The function finds a type by its identifier, so the conversion does not fail.
        let converted = (known.convert)(Box::new(error));
        Ok(converted.unwrap_or_else(|| Error::of(StatusCode::INTERNAL_SERVER_ERROR)))
    }
}

impl fmt::Debug for HttpErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpErrorType").field(&self.id()).finish()
    }
}

/// A declared type keeps its status; others are a 500, of which the client sees no more.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        HttpErrorType::convert(error)
            .unwrap_or_else(|error| Self::of(StatusCode::INTERNAL_SERVER_ERROR).caused_by(error))
    }
}
