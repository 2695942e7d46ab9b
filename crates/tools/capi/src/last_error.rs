//! The last error of a thread, for the program.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use crate::error::{ApusStatus, CallError};
use crate::text::ApusStr;

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

struct LastError {
    error: CallError,
    text: CString,
}

/// Keeps the error of a call as the last one of this thread; returns its status.
pub(crate) fn record(function: &str, error: CallError) -> ApusStatus {
    let status = error.status;
    let text = format!("{function}: {error}").replace('\0', "\\0");
    let text = CString::new(text).unwrap_or_default();
    // A destructor of C may run while the thread ends.
    let _ = LAST.try_with(|last| last.replace(Some(LastError { error, text })));
    status
}

/// The text of the last error of this thread: what was expected, what came, what to do. "" if there was none. It is valid
/// until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn apus_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ref().map(|last| last.text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The parts of the last error of this thread: what was expected, what came, and what to do. Each pointer may be NULL. The
/// strings are valid as long as the string of apus_last_error(). Returns the status of that error, or APUS_OK if there was
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_last_error_parts(
    expected: Option<&mut ApusStr>,
    got: Option<&mut ApusStr>,
    advice: Option<&mut ApusStr>,
) -> ApusStatus {
    let read = LAST.try_with(|last| {
        let last = last.borrow();
        let parts = last.as_ref().map(|last| &last.error);
        let put = |to: Option<&mut ApusStr>, text: Option<&str>| {
            if let Some(to) = to {
                *to = ApusStr::of_option(text.map(str::as_bytes));
            }
        };
        put(expected, parts.map(|error| &*error.expected));
        put(got, parts.map(|error| &*error.got));
        put(advice, parts.map(|error| &*error.advice));
        parts.map_or(ApusStatus::Ok, |error| error.status)
    });
    read.unwrap_or(ApusStatus::Ok)
}
