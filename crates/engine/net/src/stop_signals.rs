//! `StopSignals`: the signals that stop a program.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that stop a program, such as SIGTERM and SIGINT. From the moment that this is made, they do not end the process any more.
#[derive(Debug)]
pub struct StopSignals(Vec<Signal>);

impl StopSignals {
    /// SIGTERM and SIGINT. The caller is in the runtime that will wait for them.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn new() -> io::Result<Self> {
        Self::of(&[SignalKind::terminate(), SignalKind::interrupt()])
    }

    /// SIGTERM, SIGINT and SIGQUIT, which stops nginx gracefully.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn with_quit() -> io::Result<Self> {
        Self::of(&[
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ])
    }

    fn of(kinds: &[SignalKind]) -> io::Result<Self> {
        let signals = kinds.iter().map(|kind| signal(*kind));
        Ok(Self(signals.collect::<io::Result<_>>()?))
    }

    /// Waits for the next one of them. None is lost if this is dropped before.
    pub async fn next(&mut self) {
        poll_fn(|cx| {
            let mut signals = self.0.iter_mut();
            // A stream ends only with its runtime.
            if signals.any(|signal| signal.poll_recv(cx).is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal as Number, getpid, kill_process};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn each_signal_ends_the_wait_once() {
        let mut signals = StopSignals::with_quit().unwrap();
        for number in [Number::TERM, Number::INT, Number::QUIT] {
            kill_process(getpid(), number).unwrap();
            let waited = timeout(Duration::from_secs(60), signals.next()).await;
            assert!(waited.is_ok(), "{number:?}");
        }
        let early = timeout(Duration::ZERO, signals.next()).await;
        assert!(early.is_err());
    }
}
