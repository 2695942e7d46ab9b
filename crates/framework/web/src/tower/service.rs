//! `TowerService`: a service of `http` messages, and how it is called.

use std::future::poll_fn;

use apus_http::{Response, StatusCode};

use super::BoxError;
use super::body::SendBody;

/// A service of `http` messages that can be mounted.
pub trait TowerService:
    tower_service::Service<
        http::Request<SendBody>,
        Response = http::Response<Self::Content>,
        Error: Into<BoxError>,
        Future: 'static,
    > + Clone
    + 'static
{
    /// The body of its responses.
    type Content: http_body::Body<Data: Send, Error: Into<BoxError>> + 'static;
}

impl<S, B> TowerService for S
where
    S: tower_service::Service<
            http::Request<SendBody>,
            Response = http::Response<B>,
            Error: Into<BoxError>,
            Future: 'static,
        > + Clone
        + 'static,
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + 'static,
{
    type Content = B;
}

/// Calls a service once it is ready.
///
/// # Errors
/// The errors of the service.
pub(super) async fn call_when_ready<S: TowerService>(
    mut service: S,
    request: http::Request<SendBody>,
) -> Result<http::Response<S::Content>, BoxError> {
    poll_fn(|cx| service.poll_ready(cx))
        .await
        .map_err(Into::into)?;
    service.call(request).await.map_err(Into::into)
}

/// A 500 without details; the log has the error.
pub(super) fn failed(error: BoxError) -> Response {
    tracing::error!(%error, "a mounted service failed");
    Response::new(StatusCode::INTERNAL_SERVER_ERROR)
}
