//! Turns: what a task does behind those that are ready, too.

use std::future::poll_fn;
use std::task::Poll;

/// Lets the other tasks of this thread that are ready go first.
///
/// Whoever is about to write waits for this, so that the requests that came together are read
/// together and answered together: one wake-up of the peer serves for several answers, and the
/// kernel's way out stays warm from one to the next.
pub(crate) async fn yield_to_ready_tasks() {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        // Behind those that are in the queue already.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
