//! The lingering close of a connection on which the client may still be sending.

use std::task::{Poll, ready};
use std::time::Duration;

use apus_transport::Transport;

use crate::connection_table::ConnectionSlot;
use crate::worker::Worker;

/// How long a closed connection is read, in all and between two reads, so that the client gets the response:
/// a reset caused by unread bytes would destroy it (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(30);
pub(crate) const LINGER_IDLE: Duration = Duration::from_secs(5);
/// The time between two reads while the server stops, which must not wait for slow clients.
pub(crate) const LINGER_AT_END: Duration = Duration::from_secs(1);

/// How long, and how much, a closed connection is read.
#[derive(Clone, Copy)]
pub(crate) struct LingerLimits {
    /// Between two reads.
    pub(crate) idle: Duration,
    /// Bytes in all.
    pub(crate) bytes: usize,
}

/// Ends our side and reads for a while.
pub(crate) async fn linger(
    worker: &Worker,
    slot: &ConnectionSlot,
    transport: &mut Transport,
    LingerLimits { idle, mut bytes }: LingerLimits,
) {
    slot.renew();
    // The client has its response, so the connection may be evicted.
    slot.set_kept(&worker.clock, idle);
    let until = worker.clock.deadline(LINGER);
    let mut shut = false;
    let _ = slot
        .wait(|cx| {
            if !shut {
                ready!(transport.poll_shutdown(cx))?;
                // The end of our side first: a client that waits for it before it stops sending would otherwise be
                // read until the time is over.
                shut = true;
            }
            loop {
                let mut buffer = worker.buffers.take();
                let polled = transport.poll_read(cx, &mut buffer);
                worker.buffers.put(buffer);
                let read = ready!(polled)?;
                bytes = bytes.saturating_sub(read);
                if read == 0 || bytes == 0 || worker.clock.ticks() >= until {
                    return Poll::Ready(Ok(()));
                }
                slot.set_kept(&worker.clock, idle);
            }
        })
        .await;
}
