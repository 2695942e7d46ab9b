//! Waiting during a comparison, which Ctrl-C and SIGTERM end, so that what was started is stopped.

use std::time::Duration;

use crate::BenchError;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits, and knows whether the user has interrupted the comparison.
pub(crate) struct ComparisonClock {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    is_interrupted: bool,
}

impl ComparisonClock {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (interrupt, terminate) = {
            let _entered = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            )
        };
        Ok(Self {
            runtime,
            interrupt,
            terminate,
            is_interrupted: false,
        })
    }

    /// Waits; returns whether the user has interrupted the comparison.
    pub(crate) fn wait(&mut self, time: Duration) -> bool {
        if !self.is_interrupted {
            let (interrupt, terminate) = (&mut self.interrupt, &mut self.terminate);
            let asked = async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            };
            let waited = async { tokio::time::timeout(time, asked).await };
            self.is_interrupted = self.runtime.block_on(waited).is_ok();
        }
        self.is_interrupted
    }

    /// Waits, also when the user has interrupted the comparison: something ends.
    pub(crate) fn pause(&self, time: Duration) {
        let sleep = async { tokio::time::sleep(time).await };
        self.runtime.block_on(sleep);
    }
}
