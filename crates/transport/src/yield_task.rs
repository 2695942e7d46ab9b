//! Yielding of a task to the others that are ready.

use std::cell::Cell;
use std::task::Context;

thread_local! {
    static YIELDED: Cell<bool> = const { Cell::new(false) };
}

/// Makes the task run again after the others that are ready. The caller returns `Pending`.
///
/// A task does this before it writes, so that requests which arrived together are read together and sent
/// together: the peer is woken once for several of them.
pub fn yield_to_ready_tasks(cx: &Context<'_>) {
    YIELDED.set(true);
    // The runtime queues this task behind the others.
    cx.waker().wake_by_ref();
}

/// Whether a task of this thread has yielded since the last call. Such a task runs again in a moment, and
/// need not wait for anything else.
pub fn take_yield() -> bool {
    YIELDED.take()
}
