//! The limits of the tunnels of a worker, for the services that run them.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::limits::Limits;

/// The least memory of a worker, so that a message of the usual limits fits on machines with many cores.
const MIN_MEMORY: usize = 8 << 20;

thread_local! {
    static OF_WORKER: Cell<Option<TunnelLimits>> = const { Cell::new(None) };
}

/// The limits of the tunnels of a worker, from its [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// The time in which a client has to take `send_rate`, while output waits for it.
    pub send_timeout: Duration,
    /// The least bytes per second that a client takes, while output waits for it.
    pub send_rate: u64,
    /// The least bytes per second of a message of a client.
    pub receive_rate: u64,
    /// Bytes of memory for the messages of this worker's WebSockets.
    pub websocket_memory: usize,
}

impl TunnelLimits {
    /// The limits in force on the worker of this thread; on other threads the default ones.
    pub fn of_worker() -> Self {
        OF_WORKER
            .get()
            .unwrap_or_else(|| Self::new(&Limits::default(), NonZeroUsize::MIN))
    }

    fn new(limits: &Limits, workers: NonZeroUsize) -> Self {
        let memory = usize::try_from(limits.websocket_memory).unwrap_or(usize::MAX);
        Self {
            send_timeout: limits.send_timeout,
            send_rate: limits.send_rate,
            receive_rate: limits.body_rate,
            websocket_memory: (memory / workers).max(MIN_MEMORY),
        }
    }

    /// Puts limits in force on this thread. The memory of tunnels is divided among the `workers`.
    pub(crate) fn set(limits: &Limits, workers: NonZeroUsize) {
        OF_WORKER.set(Some(Self::new(limits, workers)));
    }
}
