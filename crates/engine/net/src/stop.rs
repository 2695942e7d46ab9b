//! The signal to services that their worker stops, for responses without an end, such as event streams.

use tokio::sync::watch;

thread_local! {
    static STOPPING: watch::Sender<bool> = watch::Sender::new(false);
}

/// Waits until the worker of this thread has to stop; its open requests then have to end within a time limit.
/// On threads without a worker it waits for ever.
pub async fn worker_stop() {
    let mut stopping = STOPPING.with(watch::Sender::subscribe);
    // It fails only when the thread ends, and its tasks end before it.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// Sends the signal to the services of this thread.
pub(crate) fn announce_stop() {
    STOPPING.with(|stopping| stopping.send_replace(true));
}
