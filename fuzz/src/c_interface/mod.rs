//! Fuzz target of libapus: the functions of `apus.h`, called in the order that the input says.

mod handlers;
mod input;
mod objects;
mod sockets;

use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_capi::{ApusStatus, ApusStr, apus_last_error, apus_last_error_parts, apus_log_callback};

use input::take_mistakes;

/// The first byte selects what the others call: functions that make and combine objects, functions of a handler and of what it
/// defers, or functions of a WebSocket. Whatever the order, mistakes are errors with a text: nothing panics, each object can be
/// freed, and each request that waits for its response gets one.
pub fn c_interface(data: &[u8]) {
    static LOG: Once = Once::new();
    LOG.call_once(|| {
        apus_log_callback(1, Some(log_line), std::ptr::null_mut());
    });
    let (first, rest) = data.split_first().unwrap_or((&0, data));
    match first % 3 {
        // The thread of the others has a worker, where no server can be freed.
        0 => std::thread::scope(|threads| {
            threads.spawn(|| run(rest, objects::call));
        }),
        1 => run(rest, handlers::call),
        _ => run(rest, sockets::call),
    }
}

fn run(data: &[u8], call: fn()) {
    input::begin(data);
    call();
    let mistakes = take_mistakes();
    assert!(mistakes.is_empty(), "{mistakes:?}");
    assert!(
        !HAS_FAILED.swap(false, Ordering::Relaxed),
        "a panic was caught, or a server not freed"
    );
}

static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Panics inside the library are caught there, and logged; so are servers that it cannot free.
extern "C" fn log_line(_: c_int, message: ApusStr, _: *mut c_void) {
    // SAFETY: a line of the log is valid during the call.
    let line = unsafe { std::slice::from_raw_parts(message.data.cast::<u8>(), message.len) };
    let line = String::from_utf8_lossy(line);
    if line.contains("panicked") || line.contains("cannot be freed") {
        HAS_FAILED.store(true, Ordering::Relaxed);
    }
}

/// The result of a call: any status but a fault of the library, and a text for each error.
fn noted(status: ApusStatus) -> ApusStatus {
    if status == ApusStatus::Internal {
        input::add_mistake("APUS_INTERNAL");
    }
    if !matches!(status, ApusStatus::Ok | ApusStatus::End) {
        // SAFETY: the pointer is never NULL, and the text is valid until the next call of this thread that fails.
        let is_empty = unsafe { *apus_last_error() } == 0;
        if is_empty {
            input::add_mistake("an error without a text");
        }
    }
    status
}

/// An object, or an error that is no fault of the library.
fn made<T>(object: Option<T>) -> Option<T> {
    if object.is_none() {
        noted(apus_last_error_parts(None, None, None));
    }
    object
}
