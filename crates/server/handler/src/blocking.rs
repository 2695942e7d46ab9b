//! Handlers that block the thread of their worker: the line of the log about them, and `blocking`, which moves work to
//! other threads.

use std::future::Future;
use std::panic::{Location, resume_unwind};
use std::pin::Pin;
#[cfg(feature = "blocked-stacks")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest time that a handler may take the thread of its worker without a line in the log.
const LONGEST: Duration = Duration::from_millis(50);

/// Whether stacks are reported: see [`report_blocked_stacks`].
#[cfg(feature = "blocked-stacks")]
static ARE_STACKS_REPORTED: AtomicBool = AtomicBool::new(false);

/// From now on, the log says where a handler is that blocks its worker for 50 milliseconds, while it still blocks it: the names,
/// files and lines of its functions. `apus dev` does this for applications that have the feature `blocked-stacks`.
///
/// A handler that blocks is interrupted by the signal SIGURG for that, so this is for development.
#[cfg(feature = "blocked-stacks")]
pub fn report_blocked_stacks() {
    ARE_STACKS_REPORTED.store(true, Ordering::Relaxed);
}

/// A handler, for people.
#[derive(Clone, Copy, Debug)]
pub struct HandlerPlace {
    /// The type name of the function.
    pub name: &'static str,
    /// Where its route was added.
    pub at: Option<&'static Location<'static>>,
}

impl HandlerPlace {
    /// Runs a part of the handler, and logs it if that takes too long.
    pub(crate) fn watch<T>(self, run: impl FnOnce() -> T) -> T {
        let start = now();
        #[cfg(feature = "blocked-stacks")]
        let returned = if ARE_STACKS_REPORTED.load(Ordering::Relaxed) {
            apus_watchdog::run_watched(LONGEST, self.stack_report(), run)
        } else {
            run()
        };
        #[cfg(not(feature = "blocked-stacks"))]
        let returned = run();
        let took = now().saturating_sub(start);
        if is_blocked(took) {
            self.log(took);
        }
        returned
    }

    /// Logs where the handler is while it blocks its worker, with the span of the request.
    #[cfg(feature = "blocked-stacks")]
    fn stack_report(self) -> impl FnOnce(apus_watchdog::Stack) + Send + 'static {
        let Self { name, at } = self;
        let span = tracing::Span::current();
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        move |stack| {
            tracing::dispatcher::with_default(&subscriber, || {
                let at = at.map(tracing::field::display);
                span.in_scope(|| {
                    tracing::warn!(
                        handler = name,
                        at,
                        "a handler blocks its worker, and is here:\n{stack}\n"
                    );
                });
            });
        }
    }

    #[cold]
    fn log(self, took: Duration) {
        let Self { name, at } = self;
        let at = at.map(tracing::field::display);
        tracing::warn!(
            handler = name,
            at,
            milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "a handler blocked its worker, and all requests of the worker waited; `apus::blocking` moves work to other threads"
        );
    }
}

fn is_blocked(took: Duration) -> bool {
    took > LONGEST
}

/// The time in steps of some milliseconds, which the kernel keeps: it costs a fifth of a precise one.
fn now() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// The future of a handler, of which each poll is watched.
pub(crate) struct WatchedFuture<'a, F> {
    future: Pin<&'a mut F>,
    place: Option<HandlerPlace>,
}

impl<'a, F> WatchedFuture<'a, F> {
    /// Without a place, it is not watched.
    pub(crate) fn new(future: Pin<&'a mut F>, place: Option<HandlerPlace>) -> Self {
        Self { future, place }
    }
}

impl<F: Future> Future for WatchedFuture<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let place = self.place;
        let mut poll = || self.future.as_mut().poll(cx);
        match place {
            Some(place) => place.watch(poll),
            None => poll(),
        }
    }
}

/// Runs work that blocks, or computes for long, on a separate thread, so that the other requests of the worker do not
/// wait for it. A worker runs up to eight of these at once; more wait. Lines of the log have the span of the request. A
/// panic of the work is one of the handler.
///
/// ```
/// # use apus_handler::{Result, blocking};
/// async fn report() -> Result<String> {
///     let figures = blocking(|| std::fs::read_to_string("/proc/self/stat")).await?;
///     Ok(format!("{} bytes", figures.len()))
/// }
/// ```
///
/// The attribute `#[handler(blocking)]` does this with a whole function.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> + 'static {
    let span = tracing::Span::current();
    let running = tokio::task::spawn_blocking(move || span.in_scope(work));
    async move {
        match running.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The worker ends, and so do its requests.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_fifty_milliseconds_are_too_long() {
        let millisecond = Duration::from_millis(1);
        for (took, expected) in [
            (LONGEST - millisecond, false),
            (LONGEST, false),
            (LONGEST + millisecond, true),
        ] {
            assert_eq!(is_blocked(took), expected, "{took:?}");
        }
    }
}
