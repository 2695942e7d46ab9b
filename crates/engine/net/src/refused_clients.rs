//! Closing the open connections of clients that may not be connected any more.

use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;

use crate::worker::Worker;

/// The time between a change of the filter and the look at the open connections.
// A client that is refused for its request has its response by then. And however many changes there are, all connections are
// looked at once in this time.
const CLOSE_AFTER: Duration = Duration::from_secs(1);

/// Closes the connections of clients whenever the filter of the plan in force begins to refuse them.
// Nothing is asked for a request or a byte: with 10,000 connections, a change costs a worker a millisecond.
pub(crate) async fn close_refused(worker: Rc<Worker>) {
    let mut changes: Option<watch::Receiver<()>> = None;
    loop {
        tokio::select! {
            () = worker.filter_replaced() => {
                let new = worker.filter_changes();
                // Most reloads leave it as it is; what it has reported already is known.
                if !matches!((&changes, &new), (Some(known), Some(new)) if known.same_channel(new)) {
                    changes = new;
                    changes.iter_mut().for_each(watch::Receiver::mark_changed);
                }
            }
            () = changed(&mut changes) => {
                tokio::time::sleep(CLOSE_AFTER).await;
                worker.close_refused();
            }
        }
    }
}

/// Waits for a change.
async fn changed(changes: &mut Option<watch::Receiver<()>>) {
    if let Some(receiver) = changes
        && receiver.changed().await.is_ok()
    {
        return;
    }
    pending().await
}
