//! `Option` and `Result` of extractors: arguments of handlers that respond to a failed extraction themselves.

use std::convert::Infallible;

use apus_http::Request;

use super::{Extraction, FromRequest, FromRequestHead};
use crate::matched::Matched;

/// `None` if the extraction fails.
#[diagnostic::do_not_recommend]
impl<T: FromRequestHead + 'static> FromRequestHead for Option<T> {
    type Rejection = Infallible;

    const WAITS: bool = T::WAITS;

    fn extraction(request: &mut Request, matched: &Matched<'_>) -> Extraction<Self, Infallible> {
        T::extraction(request, matched).map(|value| Ok(value.ok()))
    }

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(T::from_head(request, matched).ok())
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
