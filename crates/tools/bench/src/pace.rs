//! Slow clients: connections that send and receive no faster than a rate in bytes per second.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// How fast the connections of a load are, in bytes per second of bodies and heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSpeed {
    /// They read what the server sends no faster than this.
    pub receive: Option<NonZeroU32>,
    /// They send requests no faster than this.
    pub send: Option<NonZeroU32>,
}

/// The pace of one direction of a connection.
pub(crate) struct BytePace {
    bytes_per_second: Option<NonZeroU32>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BytePace {
    pub(crate) fn new(bytes_per_second: Option<NonZeroU32>) -> Self {
        Self {
            bytes_per_second,
            timer: None,
        }
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.bytes_per_second.is_some()
    }

    /// The most bytes at once: those of a tenth of a second.
    fn most(&self) -> Option<usize> {
        let rate = self.bytes_per_second?.get();
        Some(usize::try_from(rate / 10).unwrap_or(usize::MAX).max(1))
    }

    /// Waits until more bytes may be sent or received; how many, if there is a limit.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        if let Some(timer) = &mut self.timer {
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
        Poll::Ready(self.most())
    }

    /// Notes that this number of bytes was sent or received.
    pub(crate) fn spend(&mut self, bytes: usize) {
        if let Some(rate) = self.bytes_per_second {
            let time = Duration::from_secs_f64(bytes as f64 / f64::from(rate.get()));
            self.timer = Some(Box::pin(tokio::time::sleep(time)));
        }
    }
}
