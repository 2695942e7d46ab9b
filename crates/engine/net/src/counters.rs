//! The counters of a worker, which it alone writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and any thread reads.
#[derive(Default)]
pub(crate) struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Adds without a locked instruction: there is one writer.
    pub(crate) fn add(&self, more: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(more),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Counts one more until the result is dropped.
    pub(crate) fn count_one(&self) -> CountedOne<'_> {
        self.add(1);
        CountedOne(self)
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of a counter, such as an open connection, until this is dropped.
pub(crate) struct CountedOne<'a>(&'a WorkerCounter);

impl Drop for CountedOne<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one worker, on their own cache lines.
        #[derive(Default)]
        #[repr(align(128))]
        pub(crate) struct WorkerCounters {
            $(pub(crate) $name: WorkerCounter,)*
        }

        /// The counted values, since the start or at this moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct WorkerTotals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl WorkerTotals {
            /// Names and values, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// The sum of both.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)* }
            }
        }

        impl WorkerCounters {
            pub(crate) fn read(&self) -> WorkerTotals {
                WorkerTotals { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Connections open now.
    connections,
    /// HTTP/1.1 connections open now, with WebSockets and other tunnels over them.
    h1_open,
    /// HTTP/2 connections open now.
    h2_open,
    /// HTTP/3 connections open now.
    h3_open,
    /// Connections accepted.
    accepted,
    /// Connections closed at once because a limit was reached.
    refused,
    /// Connections closed, at once or when their client was banned, or not answered over QUIC, because their client is banned.
    banned,
    /// Connections closed at once, or not answered over QUIC, because their client did much wrong and the workers are busy.
    refused_for_glitches,
    /// Idle connections closed to make room for new ones.
    evicted,
    /// Accepts that failed for a lack of descriptors or memory.
    accept_failures,
    /// Requests whose head was read.
    requests,
    /// Bytes read, after TLS.
    bytes_in,
    /// Bytes written, before TLS.
    bytes_out,
    /// Full or resumed TLS handshakes that succeeded.
    handshakes,
    /// TLS handshakes that failed, by a client's fault or a refused name.
    handshake_failures,
    /// Requests refused because they broke the protocol or a size limit.
    bad_requests,
    /// Connections closed because a head, a body, a handshake or a reader was too slow.
    timeouts,
    /// Handlers that panicked, each of which cost one 500.
    panics,
    /// Responses whose source failed midway, so that the connection was cut.
    broken_responses,
    /// Connections that spoke HTTP/2.
    h2_connections,
    /// Connections that spoke HTTP/3.
    h3_connections,
    /// HTTP/2 and HTTP/3 requests cut off because the client's window stayed closed.
    stalled_streams,
    /// HTTP/2 and HTTP/3 connections closed because too many streams were reset.
    stopped_reset_floods,
    /// HTTP/2 and HTTP/3 connections closed because a field section did not end.
    stopped_field_block_floods,
    /// HTTP/2 and HTTP/3 connections closed because of too many frames that require a reply.
    stopped_reply_floods,
    /// HTTP/2 and HTTP/3 connections closed because of too many frames that carry nothing.
    stopped_idle_floods,
    /// HTTP/2 connections closed because their windows were too small for any body.
    stopped_tiny_window_floods,
}

/// The status of one worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerStatus {
    /// Its number from 0.
    pub index: usize,
    /// The core it is pinned to, if that worked.
    pub core: Option<usize>,
    /// Times it died and was replaced.
    pub restarts: u64,
    /// Its counters, together with the counters of the workers that it replaced.
    pub totals: WorkerTotals,
}
