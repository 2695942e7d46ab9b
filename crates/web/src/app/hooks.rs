//! Layers that look only one way.

use apus_http::{Answer, Request, Response};

use apus_handler::middleware::{Middleware, Next};

/// Marks hooks, which are layers by what they are and not as functions.
#[derive(Debug)]
pub(super) enum Hook {}

/// Sees requests.
pub(super) struct Before<F>(pub(super) F);

impl<F> Middleware<Hook> for Before<F>
where
    F: Fn(&mut Request) -> Result<(), Response> + Send + Sync + 'static,
{
    fn call(&self, mut request: Request, next: Next) -> Answer {
        match (self.0)(&mut request) {
            Ok(()) => next.call(request),
            Err(response) => response.into(),
        }
    }
}

/// Sees responses.
pub(super) struct After<F>(pub(super) F);

impl<F> Middleware<Hook> for std::sync::Arc<After<F>>
where
    F: Fn(&mut Response) + Send + Sync + 'static,
{
    fn call(&self, request: Request, next: Next) -> Answer {
        match next.call(request) {
            Answer::Now(mut response) => {
                (self.0)(&mut response);
                response.into()
            }
            Answer::Later(future) => {
                let hook = self.clone();
                Answer::later(async move {
                    let mut response = future.await;
                    (hook.0)(&mut response);
                    response
                })
            }
        }
    }
}
