//! The FFI boundary: the bodies of functions that C calls record their errors, and no panic leaves them.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::error::{ApusStatus, CallError, SetUp, lose, remembered};
use crate::last_error::record;
use crate::text::ApusStr;

/// A type that a function returns, with its value for a failure.
pub(crate) trait CallResult {
    fn failure(status: ApusStatus) -> Self;
}

impl CallResult for () {
    fn failure(_: ApusStatus) {}
}

impl CallResult for ApusStatus {
    fn failure(status: ApusStatus) -> Self {
        status
    }
}

impl CallResult for ApusStr {
    fn failure(_: ApusStatus) -> Self {
        Self::ABSENT
    }
}

impl CallResult for bool {
    fn failure(_: ApusStatus) -> Self {
        false
    }
}

impl CallResult for c_int {
    fn failure(_: ApusStatus) -> Self {
        -1
    }
}

impl CallResult for usize {
    fn failure(_: ApusStatus) -> Self {
        0
    }
}

impl CallResult for u64 {
    fn failure(_: ApusStatus) -> Self {
        0
    }
}

impl CallResult for u16 {
    fn failure(_: ApusStatus) -> Self {
        0
    }
}

impl CallResult for *mut c_char {
    fn failure(_: ApusStatus) -> Self {
        std::ptr::null_mut()
    }
}

impl CallResult for *mut c_void {
    fn failure(_: ApusStatus) -> Self {
        std::ptr::null_mut()
    }
}

impl<T> CallResult for Option<Box<T>> {
    fn failure(_: ApusStatus) -> Self {
        None
    }
}

impl<T> CallResult for Option<NonNull<T>> {
    fn failure(_: ApusStatus) -> Self {
        None
    }
}

impl<T> CallResult for Option<&mut T> {
    fn failure(_: ApusStatus) -> Self {
        None
    }
}

/// Runs the body of a function that cannot fail. A panic is logged and becomes an error.
pub(crate) fn protect<T: CallResult>(function: &'static str, body: impl FnOnce() -> T) -> T {
    attempt(function, || Ok(body()))
}

/// Runs the body of a function. Its error becomes the last error of the thread; a panic is logged and becomes an error.
pub(crate) fn attempt<T: CallResult>(
    function: &'static str,
    body: impl FnOnce() -> Result<T, CallError>,
) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => T::failure(record(function, error)),
        Err(panic) => {
            let text = panic.downcast_ref::<&'static str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("a panic").to_owned();
            tracing::error!(function, text, "a function of the C interface panicked");
            T::failure(record(
                function,
                CallError::new(
                    ApusStatus::Internal,
                    "no fault of the library",
                    text,
                    "please report it",
                ),
            ))
        }
    }
}

/// As [`attempt`], for a function that returns a status.
pub(crate) fn status(
    function: &'static str,
    body: impl FnOnce() -> Result<(), CallError>,
) -> ApusStatus {
    attempt(function, || body().map(|()| ApusStatus::Ok))
}

/// As [`attempt`], for a function that returns a new object.
pub(crate) fn object<T>(
    function: &'static str,
    body: impl FnOnce() -> Result<T, CallError>,
) -> Option<Box<T>> {
    attempt(function, || {
        let made = body();
        if let Err(error) = &made {
            lose(function, error);
        }
        made.map(|value| Some(Box::new(value)))
    })
}

/// As [`status`], for a function that sets an object up: its failure is remembered, and reported by the start of the server.
pub(crate) fn setup<T: SetUp>(
    function: &'static str,
    object: Option<&mut T>,
    body: impl FnOnce(&mut T) -> Result<(), CallError>,
) -> ApusStatus {
    status(function, || remembered(function, object, body))
}
