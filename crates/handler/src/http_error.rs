//! `HttpError`: the trait of an application's error types that have a status.

use apus_http::{Response, StatusCode};

use crate::error::Error;
use crate::respond::IntoResponse;

/// An error type that says with which status each of its errors is answered. Handlers return it as it is:
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
/// Where a function returns [`apus::Result`](crate::Result), a `?` makes any error a 500, as it knows no more of
/// it than that; `.map_err(HttpError::into_error)?` keeps the status.
pub trait HttpError: std::error::Error + Sized + 'static {
    /// The status that the client gets.
    fn status(&self) -> StatusCode;

    /// What the client is told: the text of the error if the client is to blame for it, and else nothing, so that
    /// it is for the log alone.
    fn detail(&self) -> Option<String> {
        self.status().is_client_error().then(|| self.to_string())
    }

    /// An [`Error`] with this status and detail, and this as its source.
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
