//! `HttpError`: the trait of an application's error types that have a status.

use apus_http::{Response, StatusCode};

use crate::error::Error;
use crate::respond::IntoResponse;

/// An error type with a status for each error. Handlers can return it:
///
/// ```
/// use std::fmt;
///
/// use apus::testing::TestClient;
/// use apus::{App, HttpError, Json, Path, StatusCode};
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
/// let client = TestClient::new(App::new().get("/products/{id}", product));
/// client.get("/products/7").send().assert_status(404).assert_text("there is no product 7\n");
/// client.get("/products/2").send().assert_status(500);
/// ```
///
/// In a function that returns [`apus::Result`](crate::Result), `?` converts any error to a 500;
/// `.map_err(HttpError::into_error)?` keeps the status.
pub trait HttpError: std::error::Error + Sized + 'static {
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

impl<E: HttpError> IntoResponse for E {
    fn into_response(self) -> Response {
        self.into_error().into_response()
    }
}
