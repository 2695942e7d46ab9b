//! Waiting in tests for a condition that another thread or task brings about.

use std::time::{Duration, Instant};

/// How long a test waits for a condition. It is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// The time between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(2);

/// What a test can wait for: a `bool` that becomes true, or an [`Option`] that becomes a value.
pub trait WaitCondition {
    /// What the test gets when the condition holds.
    type Value;

    /// The value, if the condition holds.
    fn value(self) -> Option<Self::Value>;
}

impl WaitCondition for bool {
    type Value = ();

    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> WaitCondition for Option<T> {
    type Value = T;

    fn value(self) -> Self {
        self
    }
}

/// Blocks the thread until a condition holds. Panics if that takes too long.
pub fn wait_until<C: WaitCondition>(what: &str, mut condition: impl FnMut() -> C) -> C::Value {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().value() {
            return value;
        }
        check(start, what);
        std::thread::park_timeout(INTERVAL);
    }
}

/// As [`wait_until`], while the other tasks of the thread run.
pub async fn eventually<C: WaitCondition>(
    what: &str,
    mut condition: impl FnMut() -> C,
) -> C::Value {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().value() {
            return value;
        }
        check(start, what);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// As [`eventually`], for a condition that is asked for and waited for.
pub async fn eventually_async<C: WaitCondition>(
    what: &str,
    mut condition: impl AsyncFnMut() -> C,
) -> C::Value {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await.value() {
            return value;
        }
        check(start, what);
        tokio::time::sleep(INTERVAL).await;
    }
}

fn check(start: Instant, what: &str) {
    assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
}
