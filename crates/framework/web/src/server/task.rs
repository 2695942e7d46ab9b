//! Background tasks of a server, which run once or at an interval.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, spawn_local};

use super::running::Stopping;

/// How long a run of an interval task may continue after the server stops.
const LAST_RUN_TIMEOUT: Duration = Duration::from_secs(5);

/// A task that is not started yet.
pub(super) type Task = Box<dyn FnOnce(Stopping) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Runs a task, and logs a panic at once.
pub(super) fn spawn(name: String, task: Task, stopping: Stopping) -> JoinHandle<()> {
    spawn_local(async move {
        // The inner task catches the panic.
        if let Err(error) = spawn_local(async move { task(stopping).await }).await {
            let panic = message(error);
            tracing::error!(
                task = name,
                panic,
                "a task panicked; the server continues without it"
            );
        }
    })
}

/// A task that runs repeatedly: first after one interval, then one interval after the end of each run.
pub(super) fn every<F>(
    name: String,
    interval: Duration,
    run: impl Fn() -> F + Send + 'static,
) -> Task
where
    F: Future<Output = ()> + 'static,
{
    Box::new(move |mut stopping| {
        let run = Rc::new(run);
        Box::pin(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    () = stopping.wait() => return,
                }
                let run = run.clone();
                let mut run = spawn_local(async move { run().await });
                let ended = tokio::select! {
                    ended = &mut run => ended,
                    () = stopping.wait() => match tokio::time::timeout(LAST_RUN_TIMEOUT, run).await {
                        Ok(ended) => ended,
                        Err(_) => return,
                    },
                };
                if let Err(error) = ended {
                    let panic = message(error);
                    tracing::error!(
                        task = name,
                        panic,
                        "a run of a task panicked; the next run follows"
                    );
                }
            }
        })
    })
}

/// The message of a panic. The tasks are never cancelled, so other errors do not occur.
fn message(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => apus_handler::PanicError::new(&*panic).message().to_owned(),
        Err(error) => error.to_string(),
    }
}
