//! Extractors in layers: `Next::extract`, and `Require`, which rejects requests that an extractor rejects.

use std::fmt;
use std::marker::PhantomData;

use apus_http::{Request, Response, ResponseFuture};

use super::{Extraction, FromRequestHead};
use crate::into_response_future::ResponseMarker;
use crate::middleware::{Middleware, Next};
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;

impl Next {
    /// Extracts a value as an argument of a handler. A value that waits ([`super::AsyncExtractor`]) is made once: the
    /// handler gets the same.
    ///
    /// ```
    /// # use apus_handler::{Next, State};
    /// # use apus_http::{Request, Response};
    /// async fn counted(mut request: Request, next: Next) -> Result<Response, Response> {
    ///     let State(name): State<&'static str> = next.extract(&mut request).await?;
    ///     println!("a request to {name}");
    ///     Ok(next.run(request).await)
    /// }
    /// ```
    ///
    /// # Errors
    /// The response of the extractor that rejects the request.
    pub async fn extract<T: FromRequestHead + 'static>(
        &self,
        request: &mut Request,
    ) -> Result<T, Response> {
        let value = self.extraction::<T>(request).wait().await;
        value.map_err(IntoResponse::into_response)
    }

    fn extraction<T: FromRequestHead + 'static>(
        &self,
        request: &mut Request,
    ) -> Extraction<T, T::Rejection> {
        let mut found = None;
        self.with_matched(request, &mut |request, matched| {
            found = Some(T::extraction(request, matched));
        });
        // A chain always calls the function.
        found.unwrap_or_else(|| Extraction::Later(Box::pin(std::future::pending())))
    }
}

/// A layer that rejects the requests that an extractor rejects: requests of users without a role, for example.
/// The handlers need not take the value. See [`super::AsyncExtractor`].
pub struct Require<T>(PhantomData<fn() -> T>);

impl<T: FromRequestHead> Require<T> {
    /// The layer for this extractor.
    #[expect(clippy::new_without_default, reason = "a layer is not a default")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: FromRequestHead + 'static> Middleware<ResponseMarker> for Require<T> {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        match next.extraction::<T>(&mut request) {
            Extraction::Ready(Ok(_)) => next.call(request),
            Extraction::Ready(Err(rejection)) => rendering.apply(rejection.into_response()).into(),
            Extraction::Later(value) => ResponseFuture::later(async move {
                match value.await {
                    Ok(_) => next.run(request).await,
                    Err(rejection) => rendering.apply(rejection.into_response()),
                }
            }),
        }
    }

    fn check(&self, route: &mut RouteCheck<'_>) {
        T::check(route);
    }
}

impl<T> fmt::Debug for Require<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Require<{}>", std::any::type_name::<T>())
    }
}
