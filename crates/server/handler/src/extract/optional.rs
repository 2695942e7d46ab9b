//! `Option` and `Result` of extractors: arguments of handlers that respond to a failed extraction themselves.

use std::any::Any;
use std::convert::Infallible;

use apus_http::Request;

use super::{Extraction, FromRequest, FromRequestHead};
use crate::error::Error;
use crate::matched::Matched;
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;

/// `None` if the extraction fails.
///
/// What a value that waits is made of has to be there, and an error of the server, as of a database that is down, is logged.
#[diagnostic::do_not_recommend]
impl<T: FromRequestHead + 'static> FromRequestHead for Option<T> {
    type Rejection = Infallible;

    const WAITS: bool = T::WAITS;

    fn extraction(request: &mut Request, matched: &Matched<'_>) -> Extraction<Self, Infallible> {
        T::extraction(request, matched).map(|value| Ok(value.map_err(log_failure::<T>).ok()))
    }

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(T::from_head(request, matched).ok())
    }

    fn check(route: &mut RouteCheck<'_>) {
        if T::WAITS {
            T::check(route);
        }
    }
}

/// Logs that the server could not make a value.
fn log_failure<T: FromRequestHead>(rejection: T::Rejection) {
    if !T::WAITS {
        return;
    }
    let mut response = rejection.into_response();
    let error = response
        .take_attached()
        .map(<Box<dyn Any>>::downcast::<Error>);
    if let Some(Ok(error)) = error
        && response.status().is_server_error()
    {
        error.log();
    }
}

/// The value, or why the extraction failed.
#[diagnostic::do_not_recommend]
impl<T: FromRequestHead + 'static> FromRequestHead for Result<T, T::Rejection> {
    type Rejection = Infallible;

    const WAITS: bool = T::WAITS;

    fn extraction(request: &mut Request, matched: &Matched<'_>) -> Extraction<Self, Infallible> {
        T::extraction(request, matched).map(Ok)
    }

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(T::from_head(request, matched))
    }

    fn check(route: &mut RouteCheck<'_>) {
        if T::WAITS {
            T::check(route);
        }
    }
}

/// `None` if the extraction fails.
#[diagnostic::do_not_recommend]
impl<T: FromRequest + 'static> FromRequest for Option<T> {
    type Rejection = Infallible;

    async fn from_request(request: Request, body_limit: u64) -> Result<Self, Infallible> {
        Ok(T::from_request(request, body_limit).await.ok())
    }
}

/// The value, or why the extraction failed.
#[diagnostic::do_not_recommend]
impl<T: FromRequest<Rejection: 'static> + 'static> FromRequest for Result<T, T::Rejection> {
    type Rejection = Infallible;

    async fn from_request(request: Request, body_limit: u64) -> Result<Self, Infallible> {
        Ok(T::from_request(request, body_limit).await)
    }
}
