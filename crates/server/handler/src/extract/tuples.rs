//! Tuples of extractors, the arguments of an [`super::AsyncExtractor`].

use std::convert::Infallible;

use apus_http::{Request, Response};

use super::{Extraction, FromRequestHead};
use crate::matched::Matched;
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;

#[diagnostic::do_not_recommend]
impl FromRequestHead for () {
    type Rejection = Infallible;

    fn from_head(_: &Request, _: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($part:ident)*);)*) => {$(
        /// All of them, or the rejection of the first that fails.
        #[allow(non_snake_case, reason = "names of types stand for their values")]
        #[diagnostic::do_not_recommend]
        impl<$($part: FromRequestHead + 'static,)*> FromRequestHead for ($($part,)*) {
            type Rejection = Response;

            const WAITS: bool = false $(|| $part::WAITS)*;

            fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Response> {
                Ok(($($part::from_head(request, matched).map_err(IntoResponse::into_response)?,)*))
            }

            fn extraction(
                request: &mut Request,
                matched: &Matched<'_>,
            ) -> Extraction<Self, Response> {
                if const { !Self::WAITS } {
                    return Extraction::Ready(Self::from_head(request, matched));
                }
                $(let $part = $part::extraction(request, matched);)*
                Extraction::Later(Box::pin(async move {
                    Ok(($($part.wait().await.map_err(IntoResponse::into_response)?,)*))
                }))
            }

            fn check(route: &mut RouteCheck<'_>) {
                $($part::check(route);)*
            }
        }
    )*};
}

tuples! {
    (A);
    (A B);
    (A B C);
    (A B C D);
    (A B C D E);
    (A B C D E F);
    (A B C D E F G);
    (A B C D E F G H);
}
