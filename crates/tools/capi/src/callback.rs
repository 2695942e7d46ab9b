//! Callbacks of the program.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::callback_name::CallbackName;
use crate::error::CallError;
use crate::handles::{ApusRequest, ApusResponse, HandlerFunction};
use crate::text::ApusStr;
use crate::user::UserPointer;

/// The return value of a handler or a hook: the response object is the response.
pub const APUS_RESPOND: i32 = 1;

/// The return value of a body callback: no more chunks until apus_deferred_resume().
pub const APUS_PAUSE: i32 = 1;

/// Responds to a request, on the worker.
///
/// It returns 0 (or APUS_RESPOND) when it filled in `response`, called apus_defer() or apus_request_read_body(); or a
/// status of 400 to 599 for an error response in the format that the client accepts (and of apus_app_on_error()).
/// `request` and `response` are valid until it returns, unless it deferred.
pub type ApusHandler = Option<
    extern "C" fn(
        request: *mut ApusRequest,
        response: *mut ApusResponse,
        user: *mut c_void,
    ) -> c_int,
>;

/// Runs before the handlers of an application or group. It returns 0 to continue, APUS_RESPOND to send `response`, or a
/// status of 400 to 599 for an error response.
pub type ApusBeforeFn = Option<
    extern "C" fn(
        request: *mut ApusRequest,
        response: *mut ApusResponse,
        user: *mut c_void,
    ) -> c_int,
>;

/// Runs after the handlers of an application or group, and may change the response.
pub type ApusAfterFn = Option<extern "C" fn(response: *mut ApusResponse, user: *mut c_void)>;

/// A function that runs on a worker.
pub type ApusTaskFn = Option<extern "C" fn(user: *mut c_void)>;

/// Sees the fields of a message, one after another; false ends it.
pub type ApusFieldFn =
    Option<extern "C" fn(name: ApusStr, value: ApusStr, user: *mut c_void) -> bool>;

/// A handler or hook of the program, with its user and its name.
#[derive(Clone)]
pub(crate) struct Callback {
    pub(crate) function: HandlerFunction,
    pub(crate) user: UserPointer,
    pub(crate) name: Arc<CallbackName>,
}

impl Callback {
    pub(crate) fn new(
        function: ApusHandler,
        user: *mut c_void,
        role: String,
    ) -> Result<Self, CallError> {
        let function = function.ok_or_else(|| CallError::null("handler"))?;
        Ok(Self {
            function,
            user: UserPointer(user),
            name: CallbackName::of(function as usize, role),
        })
    }
}
