//! Tells services that their worker stops: what would never end by itself, as a stream of events, has to then.

use tokio::sync::watch;

thread_local! {
    static STOPPING: watch::Sender<bool> = watch::Sender::new(false);
}

/// Waits until the worker of this thread is told to stop, with open requests to be ended within a time. Goes on
/// for ever on threads that are no worker's.
pub async fn worker_stop() {
    let mut stopping = STOPPING.with(watch::Sender::subscribe);
    // Fails only when the thread ends, and its tasks before it.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// Tells the services of this thread.
pub(crate) fn announce_stop() {
    STOPPING.with(|stopping| stopping.send_replace(true));
}
