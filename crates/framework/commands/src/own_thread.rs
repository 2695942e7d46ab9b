//! Futures of code that blocks, such as a command: they run on a separate thread.

use std::future::Future;
use std::io;
use std::thread;

/// Runs a future on a separate thread and blocks until it ends. It works with and without a runtime on this thread.
///
/// # Errors
/// No thread or no runtime can be started.
pub fn run_on_own_thread<F, T>(name: &str, work: impl FnOnce() -> F + Send) -> io::Result<T>
where
    F: Future<Output = T>,
    T: Send,
{
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn_scoped(scope, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok(runtime.block_on(work()))
        })?;
        let ended = thread.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_runs_inside_of_a_runtime_and_outside() {
        let name = async || thread::current().name().map(str::to_owned);
        let found = || run_on_own_thread("apart", name).unwrap();
        assert_eq!(found().as_deref(), Some("apart"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let inside = runtime.block_on(async { found() });
        assert_eq!(inside.as_deref(), Some("apart"));
    }

    #[test]
    #[should_panic(expected = "of the work")]
    fn a_panic_is_passed_on() {
        let _ = run_on_own_thread("apart", async || panic!("of the work"));
    }
}
