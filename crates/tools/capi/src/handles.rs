//! The request and the response of a handler in C, and what becomes of them after it.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use apus::ResponseOutcome;
use apus::{
    Error, Headers, IntoResponse, Matched, Rendering, Request, Response, ResponseFuture, StatusCode,
};
use bytes::Bytes;

use crate::callback_name::CallbackName;
use crate::error::CallError;
use crate::lifetime::HandleLifetime;
use crate::user::{UserData, UserPointer};

/// How a response ended.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApusOutcome {
    /// The whole response was handed to the system.
    Complete = 0,
    /// The client closed the connection before, or reset the stream.
    ClientGone = 1,
    /// The source of the body failed.
    SourceFailed = 2,
}

impl From<ResponseOutcome> for ApusOutcome {
    fn from(outcome: ResponseOutcome) -> Self {
        match outcome {
            ResponseOutcome::Complete => Self::Complete,
            ResponseOutcome::ClientGone => Self::ClientGone,
            ResponseOutcome::SourceFailed => Self::SourceFailed,
        }
    }
}

/// Is called once for a request, when its response has ended.
pub type ApusDoneFn = Option<extern "C" fn(outcome: ApusOutcome, user: *mut c_void)>;

/// A request.
pub struct ApusRequest {
    lifetime: HandleLifetime,
    slot: Slot<Request>,
    route: RouteOfHandle,
    /// The response of the same handler; NULL if it has none, or is another's.
    response: *mut ApusResponse,
    /// The name of its handler, while that runs.
    owner: Option<NonNull<Arc<CallbackName>>>,
    /// The whole body, once it was read.
    pub(crate) body: Option<Bytes>,
    /// The trailer section, once it was read.
    pub(crate) trailers: Option<Headers>,
    /// Texts that were made for the program.
    texts: Vec<Box<[u8]>>,
    done: Option<Rc<DoneCallbacks>>,
    continuation: Option<Continuation>,
    /// Whether a function reads, or has read, the body.
    pub(crate) is_body_taken: bool,
}

/// A response, as a handler fills it in.
pub struct ApusResponse {
    lifetime: HandleLifetime,
    slot: Slot<Response>,
}

/// A handler that is not NULL.
pub(crate) type HandlerFunction =
    extern "C" fn(*mut ApusRequest, *mut ApusResponse, *mut c_void) -> c_int;

/// What makes the response after a handler that did not.
pub(crate) type Continuation = Box<dyn FnOnce(Handles, &Arc<CallbackName>) -> ResponseFuture>;

/// A message, and whose it is.
enum Slot<T> {
    Owned(T),
    /// Of the layer that called a hook, during the call.
    Borrowed(NonNull<T>),
    /// It was taken.
    Gone,
}

impl<T> Slot<T> {
    fn get(&self) -> Option<&T> {
        match self {
            Self::Owned(value) => Some(value),
            // SAFETY: the pointer is of a `&mut` that outlives the call of the hook, and the handle does not outlive that.
            Self::Borrowed(value) => Some(unsafe { value.as_ref() }),
            Self::Gone => None,
        }
    }

    fn get_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Owned(value) => Some(value),
            // SAFETY: as in `get`; the `&mut` of the caller is not used during the call of the hook.
            Self::Borrowed(value) => Some(unsafe { value.as_mut() }),
            Self::Gone => None,
        }
    }

    fn take(&mut self) -> Option<T> {
        match std::mem::replace(self, Self::Gone) {
            Self::Owned(value) => Some(value),
            Self::Borrowed(_) | Self::Gone => None,
        }
    }
}

/// The route of a request.
enum RouteOfHandle {
    /// The route of the handler that runs.
    Matched(NonNull<Matched<'static>>),
    /// A copy, once the handler has returned.
    Copied {
        parameters: Vec<(Box<str>, Box<str>)>,
        rendering: Rendering,
    },
    /// A hook runs before the route is known.
    Hook,
}

impl ApusRequest {
    /// The request.
    pub(crate) fn request(&self) -> Result<&Request, CallError> {
        self.lifetime.check("request");
        self.slot.get().ok_or_else(taken)
    }

    /// The request, to be changed.
    pub(crate) fn request_mut(&mut self) -> Result<&mut Request, CallError> {
        self.lifetime.check("request");
        self.slot.get_mut().ok_or_else(taken)
    }

    /// The parameters of the path, one after another, until the function returns true.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        match &self.route {
            RouteOfHandle::Matched(matched) => {
                // SAFETY: the route of a handler outlives its call, and the handle is given up, or copies it, at the end of that.
                let matched: &Matched<'_> = unsafe { matched.as_ref() };
                let request = self.slot.get()?;
                let path = matched.decoded.unwrap_or(request.path());
                let at = matched.names.iter().position(|known| **known == *name)?;
                Some(path.get(matched.ranges.get(at)?.clone()).unwrap_or(""))
            }
            RouteOfHandle::Copied { parameters, .. } => {
                let found = parameters.iter().find(|(known, _)| **known == *name);
                found.map(|(_, value)| &**value)
            }
            RouteOfHandle::Hook => None,
        }
    }

    /// The form of its errors; `None` in a hook, whose caller knows it.
    pub(crate) fn rendering(&self) -> Option<Rendering> {
        match &self.route {
            RouteOfHandle::Matched(matched) => {
                // SAFETY: as in `parameter`.
                let matched: &Matched<'_> = unsafe { matched.as_ref() };
                self.slot.get().map(|request| matched.rendering(request))
            }
            RouteOfHandle::Copied { rendering, .. } => Some(rendering.clone()),
            RouteOfHandle::Hook => None,
        }
    }

    /// Whether a hook has it.
    pub(crate) fn is_of_hook(&self) -> bool {
        matches!(self.route, RouteOfHandle::Hook)
    }

    /// Keeps a text as long as the request, and returns it.
    pub(crate) fn keep(&mut self, text: Vec<u8>) -> &[u8] {
        self.texts.push(text.into_boxed_slice());
        self.texts.last().map_or(&[], |text| text)
    }

    /// The callbacks for its end.
    pub(crate) fn done_callbacks(&mut self) -> &Rc<DoneCallbacks> {
        self.done.get_or_insert_default()
    }

    /// Sets what makes the response after the handler.
    pub(crate) fn continue_with(&mut self, continuation: Continuation) -> Result<(), CallError> {
        if self.is_of_hook() {
            return Err(CallError::state(
                "the request of a handler",
                "the request of a hook",
                "do this in a handler",
            ));
        }
        if self.continuation.is_some()
            || matches!(self.route, RouteOfHandle::Copied { .. }) && self.response.is_null()
        {
            return Err(CallError::state(
                "a request whose handler has not deferred its response yet",
                "one that was deferred",
                "call apus_defer() or apus_request_read_body() once for each handler",
            ));
        }
        self.continuation = Some(continuation);
        Ok(())
    }

    /// Takes request and response out of the handles of a handler that still runs.
    pub(crate) fn take_handles(&mut self) -> Result<Handles, CallError> {
        self.request()?;
        let (Some(mut response), Some(owner)) = (NonNull::new(self.response), self.owner) else {
            return Err(taken());
        };
        // SAFETY: the name outlives the call of its handler, at whose end this pointer is removed.
        let owner = unsafe { owner.as_ref() }.clone();
        // SAFETY: the response of the handler that has this request lies beside it until the handler returns.
        let response = unsafe { response.as_mut() };
        let handles = self.move_out(response, &owner).ok_or_else(taken)?;
        self.lifetime.end();
        response.lifetime.end();
        Ok(handles)
    }

    fn move_out(
        &mut self,
        response: &mut ApusResponse,
        owner: &Arc<CallbackName>,
    ) -> Option<Handles> {
        let route = self.copied_route()?;
        Some(Handles {
            request: Self {
                lifetime: HandleLifetime::of(owner),
                slot: Slot::Owned(self.slot.take()?),
                route,
                response: std::ptr::null_mut(),
                owner: None,
                body: self.body.take(),
                trailers: self.trailers.take(),
                texts: std::mem::take(&mut self.texts),
                done: self.done.take(),
                continuation: None,
                is_body_taken: self.is_body_taken,
            },
            response: ApusResponse {
                lifetime: HandleLifetime::of(owner),
                slot: Slot::Owned(response.slot.take()?),
            },
        })
    }

    fn copied_route(&mut self) -> Option<RouteOfHandle> {
        if let RouteOfHandle::Matched(matched) = &self.route {
            // SAFETY: as in `parameter`.
            let matched: &Matched<'_> = unsafe { matched.as_ref() };
            let request = self.slot.get()?;
            let parameters = matched.parameters(request);
            let parameters = parameters.map(|(name, value)| (name.into(), value.into()));
            return Some(RouteOfHandle::Copied {
                parameters: parameters.collect(),
                rendering: matched.rendering(request),
            });
        }
        Some(std::mem::replace(&mut self.route, RouteOfHandle::Hook))
    }
}

fn taken() -> CallError {
    CallError::state(
        "a request or response that is still yours",
        "one that was deferred",
        "after apus_defer() use apus_deferred_request() and apus_deferred_response()",
    )
}

impl ApusResponse {
    /// The response.
    pub(crate) fn response(&self) -> Result<&Response, CallError> {
        self.lifetime.check("response");
        self.slot.get().ok_or_else(taken)
    }

    /// The response, to be changed.
    pub(crate) fn response_mut(&mut self) -> Result<&mut Response, CallError> {
        self.lifetime.check("response");
        self.slot.get_mut().ok_or_else(taken)
    }
}

/// The callbacks for the end of a response. Without a response they are called when they are dropped.
#[derive(Default)]
pub(crate) struct DoneCallbacks(
    RefCell<Vec<(extern "C" fn(ApusOutcome, *mut c_void), UserPointer)>>,
);

impl DoneCallbacks {
    pub(crate) fn add(&self, function: extern "C" fn(ApusOutcome, *mut c_void), user: UserPointer) {
        self.0.borrow_mut().push((function, user));
    }

    /// Calls them, once.
    pub(crate) fn finish(&self, outcome: ApusOutcome) {
        for (function, user) in self.0.take() {
            function(outcome, user.0);
        }
    }
}

impl Drop for DoneCallbacks {
    fn drop(&mut self) {
        self.finish(ApusOutcome::ClientGone);
    }
}

/// The data that the program attached to a request.
#[derive(Clone)]
pub(crate) struct RequestData(pub(crate) Arc<UserData>);

/// The request and the response of a handler.
pub(crate) struct Handles {
    pub(crate) request: ApusRequest,
    pub(crate) response: ApusResponse,
}

impl Handles {
    fn new(request: Slot<Request>, route: RouteOfHandle, owner: &Arc<CallbackName>) -> Self {
        Self {
            request: ApusRequest {
                lifetime: HandleLifetime::of(owner),
                slot: request,
                route,
                response: std::ptr::null_mut(),
                owner: None,
                body: None,
                trailers: None,
                texts: Vec::new(),
                done: None,
                continuation: None,
                is_body_taken: false,
            },
            response: ApusResponse {
                lifetime: HandleLifetime::of(owner),
                slot: Slot::Owned(Response::new(StatusCode::OK)),
            },
        }
    }

    /// The handles of a request that a route matched. They must not outlive the call of its handler.
    pub(crate) fn of_route(
        request: Request,
        matched: &Matched<'_>,
        owner: &Arc<CallbackName>,
    ) -> Self {
        let matched = NonNull::from(matched).cast();
        Self::new(Slot::Owned(request), RouteOfHandle::Matched(matched), owner)
    }

    /// The response, with what has to happen at its end.
    pub(crate) fn finish(&mut self, result: i32, owner: &CallbackName) -> Response {
        let request = &mut self.request;
        let mut response = match result {
            0 | 1 => self
                .response
                .slot
                .take()
                .unwrap_or_else(|| Response::new(StatusCode::INTERNAL_SERVER_ERROR)),
            status => error_response(status, owner),
        };
        if Rendering::changes(&response)
            && let Some(rendering) = request.rendering()
        {
            response = rendering.apply(response);
        }
        if let Some(done) = request.done.take() {
            response.on_complete(move |completion| done.finish(completion.outcome.into()));
        }
        let extensions = request.slot.get().map(Request::extensions);
        if let Some(extensions) = extensions.filter(|extensions| !extensions.is_empty())
            && let Some(data) = extensions.get::<RequestData>().cloned()
        {
            response.on_complete(move |_| drop(data));
        }
        response
    }

    /// Calls a handler with these, and makes its response.
    pub(crate) fn call(
        self,
        function: HandlerFunction,
        user: UserPointer,
        owner: &Arc<CallbackName>,
    ) -> ResponseFuture {
        let mut handles = Placed::new(self);
        let Self { request, response } = handles.get();
        let (request, response) = (&raw mut *request, &raw mut *response);
        let placed = &mut handles.get().request;
        placed.response = response;
        placed.owner = Some(NonNull::from(owner));
        let result = function(request, response, user.0);
        let inner = handles.get();
        inner.request.response = std::ptr::null_mut();
        inner.request.owner = None;
        let future = match inner.request.continuation.take() {
            Some(continuation) => {
                let emptied = handles.take(owner);
                continuation(emptied, owner)
            }
            None => inner.finish(result, owner).into(),
        };
        handles.retire();
        future
    }
}

impl Handles {
    /// Asks a handler, and returns what it returned with the messages.
    pub(crate) fn ask(
        self,
        function: HandlerFunction,
        user: UserPointer,
        owner: &Arc<CallbackName>,
    ) -> Option<(i32, Self)> {
        let mut handles = Placed::new(self);
        let Self { request, response } = handles.get();
        let (request, response) = (&raw mut *request, &raw mut *response);
        let result = function(request, response, user.0);
        let inner = handles.get();
        let emptied = inner.request.move_out(&mut inner.response, owner);
        handles.retire();
        emptied.map(|handles| (result, handles))
    }

    /// Lends the request to a function, and ends it.
    pub(crate) fn lend(self, call: impl FnOnce(*mut ApusRequest)) {
        let mut handles = Placed::new(self);
        call(&raw mut handles.get().request);
        handles.retire();
    }
}

/// An error response of a status that a callback returned.
pub(crate) fn error_response(status: i32, owner: &CallbackName) -> Response {
    let known = u16::try_from(status)
        .ok()
        .filter(|status| (400..600).contains(status));
    let status = match known.and_then(|status| StatusCode::from_u16(status).ok()) {
        Some(status) => status,
        None => {
            tracing::error!(
                handler = %owner,
                returned = status,
                "expected 0, APUS_RESPOND or a status of 400 to 599 of a handler"
            );
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    Error::of(status).into_response()
}

/// Handles at a place that C has pointers to: on the stack, or on the heap where their end is checked.
struct Placed {
    #[cfg(not(debug_assertions))]
    handles: Handles,
    #[cfg(debug_assertions)]
    handles: Box<Handles>,
}

impl Placed {
    fn new(handles: Handles) -> Self {
        Self {
            #[cfg(not(debug_assertions))]
            handles,
            #[cfg(debug_assertions)]
            handles: Box::new(handles),
        }
    }

    fn get(&mut self) -> &mut Handles {
        &mut self.handles
    }

    /// Moves the messages out of the handles.
    fn take(&mut self, owner: &Arc<CallbackName>) -> Handles {
        let Handles { request, response } = self.get();
        let taken = request.move_out(response, owner);
        // They are gone if the handler deferred them.
        taken.unwrap_or_else(|| Handles::new(Slot::Gone, RouteOfHandle::Hook, owner))
    }

    #[cfg(not(debug_assertions))]
    fn retire(self) {}

    #[cfg(debug_assertions)]
    fn retire(mut self) {
        self.handles.retire();
        crate::lifetime::retire(self.handles);
    }
}

impl Handles {
    /// Empties the handles: nothing of a thread is left in them.
    pub(crate) fn retire(&mut self) {
        let request = &mut self.request;
        request.slot.take();
        request.slot = Slot::Gone;
        request.route = RouteOfHandle::Hook;
        request.body = None;
        request.trailers = None;
        request.texts = Vec::new();
        request.done = None;
        request.continuation = None;
        request.lifetime.end();
        self.response.slot.take();
        self.response.slot = Slot::Gone;
        self.response.lifetime.end();
    }
}

/// Calls a hook before a request is routed. `Err` is its response.
pub(crate) fn call_before(
    function: HandlerFunction,
    user: UserPointer,
    owner: &Arc<CallbackName>,
    request: &mut Request,
) -> Result<(), Response> {
    let request = Slot::Borrowed(NonNull::from(request));
    let handles = Handles::new(request, RouteOfHandle::Hook, owner);
    let mut handles = Placed::new(handles);
    let Handles { request, response } = handles.get();
    let (request, response) = (&raw mut *request, &raw mut *response);
    let result = function(request, response, user.0);
    let returned = match result {
        0 => Ok(()),
        1 => Err(handles.get().response.slot.take()),
        status => Err(Some(error_response(status, owner))),
    };
    handles.retire();
    returned.map_err(|response| {
        response.unwrap_or_else(|| Response::new(StatusCode::INTERNAL_SERVER_ERROR))
    })
}

/// Calls a function with a response, which it may change.
pub(crate) fn call_with_response(
    response: &mut Response,
    owner: &Arc<CallbackName>,
    call: impl FnOnce(*mut ApusResponse),
) {
    let mut handles = Placed::new(Handles::new(Slot::Gone, RouteOfHandle::Hook, owner));
    handles.get().response.slot = Slot::Borrowed(NonNull::from(response));
    call(&raw mut handles.get().response);
    handles.retire();
}
