//! Waiting during a comparison, which Ctrl-C ends.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::BenchError;

/// Waits, and knows whether the user has interrupted the comparison.
pub(super) struct ComparisonClock {
    runtime: Runtime,
    interrupt: Signal,
    is_interrupted: bool,
}

impl ComparisonClock {
    pub(super) fn new() -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let interrupt = runtime.block_on(async { signal(SignalKind::interrupt()) })?;
        Ok(Self {
            runtime,
            interrupt,
            is_interrupted: false,
        })
    }

    /// Waits; returns whether the user has interrupted the comparison.
    pub(super) fn wait(&mut self, time: Duration) -> bool {
        if !self.is_interrupted {
            let interrupt = self.interrupt.recv();
            let waited = async { tokio::time::timeout(time, interrupt).await };
            self.is_interrupted = self.runtime.block_on(waited).is_ok();
        }
        self.is_interrupted
    }
}
