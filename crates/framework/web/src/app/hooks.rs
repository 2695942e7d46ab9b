//! The layers of `App::before` and `App::after`.

use apus_http::{Request, Response, ResponseFuture};

use apus_handler::middleware::{Hook, Middleware, Next};

/// Marks hooks, which implement `Middleware` themselves.
#[derive(Debug)]
pub(super) enum HookMarker {}

/// A hook that runs before each request.
pub(super) struct BeforeHook<F>(pub(super) F);

impl<F> Middleware<HookMarker> for BeforeHook<F>
where
    F: Fn(&mut Request) -> Result<(), Response> + Send + Sync + 'static,
{
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        match (self.0)(&mut request) {
            Ok(()) => next.call(request),
            Err(response) => next.rendering(&request).apply(response).into(),
        }
    }

    fn hook(&self) -> Option<Hook<'_>> {
        Some(Hook::Before(&self.0))
    }
}

/// A hook that runs after each response.
pub(super) struct AfterHook<F>(pub(super) F);

impl<F> Middleware<HookMarker> for std::sync::Arc<AfterHook<F>>
where
    F: Fn(&mut Response) + Send + Sync + 'static,
{
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let hook = self.clone();
        next.call_and_change(request, move |mut response| {
            (hook.0)(&mut response);
            response
        })
    }

    fn hook(&self) -> Option<Hook<'_>> {
        Some(Hook::After(&self.0))
    }
}
