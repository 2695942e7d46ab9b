//! Middleware: functions around an application, `async fn(Request, Next) -> impl IntoResponse`.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{Request, Response, ResponseFuture};

use crate::gate::{Gate, GateDecision, GatePass, QuotaLeft};
use crate::into_response_future::IntoResponseFuture;
use crate::matched::{Matched, RouteScope};
use crate::panic::change_response;
use crate::rendering::{ErrorRules, Rendering};
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;

/// The services behind a layer: the layers further in, and the target.
pub trait Chain {
    /// Passes a request to the layer at this position, or to the target behind the last one.
    fn call(self: Rc<Self>, position: Position, request: Request) -> ResponseFuture;

    /// The path of the route that is going to respond, as it was written.
    fn route<'c>(&'c self, position: &'c Position, request: &Request) -> Option<&'c str>;

    /// The form of the responses to errors of a layer at this position.
    fn errors(&self, position: &Position, request: &Request) -> &ErrorRules;

    /// Calls the function with the route that is going to respond, and the state that is known there. A chain without
    /// an application has none.
    fn with_matched(
        &self,
        _position: &Position,
        request: &mut Request,
        run: &mut dyn FnMut(&mut Request, &Matched<'_>),
    ) {
        run(request, &Matched::unknown(&RouteScope::default()));
    }
}

/// The position of a layer in its [`Chain`].
pub enum Position {
    /// This layer around the whole application, before the request was routed.
    Outer(usize),
    /// This layer around the target, which the application routed the request to.
    Inner(usize, Box<dyn Any>),
}

/// The layers further in, and the route.
pub struct Next {
    chain: Rc<dyn Chain>,
    position: Position,
}

impl Next {
    /// What follows in a chain from this position on.
    pub fn new(chain: Rc<dyn Chain>, position: Position) -> Self {
        Self { chain, position }
    }

    /// Passes the request on and waits for the response.
    pub async fn run(self, request: Request) -> Response {
        self.call(request).wait().await
    }

    /// Passes the request on.
    pub fn call(self, request: Request) -> ResponseFuture {
        self.chain.call(self.position, request)
    }

    /// Passes the request on, and changes the response. This is for layers that set fields of all responses, or count them: a
    /// panic further in is the response to an error, which is changed as the response to any other error is.
    pub fn call_and_change(
        self,
        request: Request,
        change: impl FnOnce(Response) -> Response + 'static,
    ) -> ResponseFuture {
        change_response(|| self.call(request), change)
    }

    /// Passes a request on that a gate lets pass, for one that is called as any other layer. `keep` makes what writes the fields of its
    /// quotas in the end.
    pub fn call_gate<W>(
        self,
        gate: &dyn Gate,
        mut request: Request,
        keep: impl FnOnce() -> W,
    ) -> ResponseFuture
    where
        W: FnOnce(&QuotaLeft, &mut Response) + 'static,
    {
        let decision = gate.enter(&mut request, &|request| self.rendering(request));
        follow_gate(decision, || self.call(request), keep)
    }

    /// The path of the route that is going to respond, as it was written: `/users/{id}`. A layer around
    /// a whole application runs the router early for this; in a group it is known.
    pub fn route(&self, request: &Request) -> Option<&str> {
        self.chain.route(&self.position, request)
    }

    /// Calls the function with the route that is going to respond.
    pub(crate) fn with_matched(
        &self,
        request: &mut Request,
        run: &mut dyn FnMut(&mut Request, &Matched<'_>),
    ) {
        self.chain.with_matched(&self.position, request, run);
    }

    /// The format of the responses to errors of a layer.
    pub fn rendering(&self, request: &Request) -> Rendering {
        Rendering::of(request, self.chain.errors(&self.position, request))
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// A function around a service. It may change the request and the response, or respond itself.
#[diagnostic::on_unimplemented(
    message = "this function is not middleware",
    label = "not middleware",
    note = "middleware is `async fn(Request, Next) -> impl IntoResponse`"
)]
pub trait Middleware<Marker>: Send + Sync + 'static {
    /// Handles a request before, and its response after, the rest of the chain.
    fn call(&self, request: Request, next: Next) -> ResponseFuture;

    /// Checks before the server listens that the layers further out have what this one needs, and notes the
    /// extensions that it adds for handlers. By default it needs and adds none. A layer that calls another one
    /// calls this function of it, too.
    fn check(&self, _route: &mut RouteCheck<'_>) {}

    /// Whether it passes requests on whatever they are, and changes only fields: security headers, say. A site then calls it
    /// also around the responses that it makes before it calls a handler, such as a redirect of a rewrite rule. A preflight
    /// request that CORS responds to is no exception: nothing else knows its response.
    fn changes_only_fields(&self) -> bool {
        false
    }

    /// The hook that this is, if it is one.
    #[doc(hidden)]
    fn hook(&self) -> Option<Hook<'_>> {
        None
    }
}

/// Middleware that does not call the rest of the chain itself. A chain calls it without a [`Next`], which costs less.
pub enum Hook<'a> {
    /// Runs before the rest of the chain, and may respond itself.
    Before(&'a dyn Fn(&mut Request) -> Result<(), Response>),
    /// Runs after the rest of the chain.
    After(&'a dyn Fn(&mut Response)),
    /// Decides about the request before, and changes the response after, the rest of the chain.
    Gate(&'a dyn Gate),
}

impl fmt::Debug for Hook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before(_) => "Before",
            Self::After(_) => "After",
            Self::Gate(_) => "Gate",
        })
    }
}

/// Calls a service, and changes its response by a layer that is a [`Hook::After`].
pub fn run_after_hook(
    layer: &Arc<dyn AnyMiddleware>,
    call: impl FnOnce() -> ResponseFuture,
) -> ResponseFuture {
    let layer = Arc::clone(layer);
    change_response(call, move |mut response| {
        if let Some(Hook::After(hook)) = layer.hook() {
            hook(&mut response);
        }
        response
    })
}

/// Calls a service behind a layer that is a [`Hook::Gate`], with the request that it lets pass.
pub fn run_gate(
    layer: &Arc<dyn AnyMiddleware>,
    (mut request, rendering): (Request, &dyn Fn(&Request) -> Rendering),
    call: impl FnOnce(Request) -> ResponseFuture + 'static,
) -> ResponseFuture {
    let Some(Hook::Gate(gate)) = layer.hook() else {
        return call(request);
    };
    let decision = gate.enter(&mut request, rendering);
    let keep = || {
        let layer = Arc::clone(layer);
        move |quota: &QuotaLeft, response: &mut Response| {
            if let Some(Hook::Gate(gate)) = layer.hook() {
                gate.write_quota(quota, response);
            }
        }
    };
    follow_gate(decision, move || call(request), keep)
}

/// Calls a service if a gate has decided so, and changes its response as the gate says.
fn follow_gate<W>(
    decision: GateDecision,
    call: impl FnOnce() -> ResponseFuture + 'static,
    keep: impl FnOnce() -> W,
) -> ResponseFuture
where
    W: FnOnce(&QuotaLeft, &mut Response) + 'static,
{
    let change = |pass: GatePass, write: W| {
        move |mut response: Response| {
            pass.leave(&mut response, write);
            response
        }
    };
    match decision {
        GateDecision::Pass(pass) if pass.is_empty() => call(),
        GateDecision::Pass(pass) => change_response(call, change(pass, keep())),
        GateDecision::Respond(response) => response.into(),
        GateDecision::Wait(wait) => {
            let write = keep();
            ResponseFuture::later(async move {
                match wait.await {
                    Ok(pass) => change_response(call, change(pass, write)).wait().await,
                    Err(response) => response,
                }
            })
        }
    }
}

impl<F, Returned, Marker> Middleware<Marker> for F
where
    F: Fn(Request, Next) -> Returned + Send + Sync + 'static,
    Returned: IntoResponseFuture<Marker>,
    Returned::Value: IntoResponse,
{
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        Returned::respond(|| self(request, next), || rendering, None)
    }
}

/// Middleware as a trait object.
pub trait AnyMiddleware: Send + Sync {
    /// As [`Middleware::call`].
    fn call(&self, request: Request, next: Next) -> ResponseFuture;

    /// As [`Middleware::check`].
    fn check(&self, route: &mut RouteCheck<'_>);

    /// As [`Middleware::changes_only_fields`].
    fn changes_only_fields(&self) -> bool;

    /// As [`Middleware::hook`].
    fn hook(&self) -> Option<Hook<'_>>;
}

/// Middleware without the marker in its type.
pub struct ErasedMiddleware<M, Marker>(M, PhantomData<fn() -> Marker>);

impl<M, Marker> ErasedMiddleware<M, Marker> {
    /// Wraps middleware.
    pub fn new(middleware: M) -> Self {
        Self(middleware, PhantomData)
    }
}

impl<M: Middleware<Marker>, Marker> AnyMiddleware for ErasedMiddleware<M, Marker> {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        self.0.call(request, next)
    }

    fn check(&self, route: &mut RouteCheck<'_>) {
        self.0.check(route);
    }

    fn changes_only_fields(&self) -> bool {
        self.0.changes_only_fields()
    }

    fn hook(&self) -> Option<Hook<'_>> {
        self.0.hook()
    }
}

/// A layer for several places, with a name for people.
// One counted pointer: a site clones a layer for each request that passes it.
#[derive(Clone)]
pub struct Layer(Arc<NamedMiddleware<dyn AnyMiddleware>>);

struct NamedMiddleware<M: ?Sized> {
    name: Box<str>,
    settings: Box<str>,
    middleware: M,
}

impl Layer {
    /// A layer that is named after its type.
    pub fn new<M: Middleware<Marker>, Marker: 'static>(middleware: M) -> Self {
        let name = std::any::type_name::<M>();
        let name = name.split('<').next().unwrap_or(name);
        Self(Arc::new(NamedMiddleware {
            name: name.rsplit("::").next().unwrap_or(name).into(),
            settings: Box::default(),
            middleware: ErasedMiddleware::new(middleware),
        }))
    }

    /// A layer with this name, and with its settings as they are printed for debugging.
    pub fn named<M: Middleware<Marker>, Marker: 'static>(
        name: &str,
        settings: &dyn fmt::Debug,
        middleware: M,
    ) -> Self {
        Self(Arc::new(NamedMiddleware {
            name: name.into(),
            settings: format!("{settings:?}").into(),
            middleware: ErasedMiddleware::new(middleware),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether both are clones of one layer.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// As [`Middleware::changes_only_fields`].
    pub fn changes_only_fields(&self) -> bool {
        self.0.middleware.changes_only_fields()
    }

    /// As [`Middleware::check`].
    pub fn check(&self, route: &mut RouteCheck<'_>) {
        self.0.middleware.check(route);
    }

    /// Passes a request through it.
    pub fn call(&self, request: Request, next: Next) -> ResponseFuture {
        self.0.middleware.call(request, next)
    }

    /// The gate that it is, if it is one.
    pub fn gate(&self) -> Option<&dyn Gate> {
        match self.0.middleware.hook() {
            Some(Hook::Gate(gate)) => Some(gate),
            _ => None,
        }
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer")
            .field("name", &self.0.name)
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}
