//! Yielding of a task to the others that are ready.

use std::future::poll_fn;
use std::task::Poll;

/// Yields to the other tasks of this thread that are ready.
///
/// A task waits for this before it writes, so that requests which arrived together are read together and sent
/// together: the peer is woken once for several of them.
pub(crate) async fn yield_to_ready_tasks() {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        // The runtime queues this task behind the others.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
