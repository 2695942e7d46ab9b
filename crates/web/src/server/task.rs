//! Tasks beside the workers: once and for as long as the server runs, or again and again.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, spawn_local};

use super::running::Stopping;

/// How long the turn of an interval may go on once the server stops.
const LAST_TURN: Duration = Duration::from_secs(5);

/// A task that has not begun.
pub(super) type Task = Box<dyn FnOnce(Stopping) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Runs a task, and tells at once if it panics.
pub(super) fn spawn(name: String, task: Task, stopping: Stopping) -> JoinHandle<()> {
    spawn_local(async move {
        // On a task of its own from its first line on, so that the panic is its own too.
        if let Err(error) = spawn_local(async move { task(stopping).await }).await {
            let panic = message(error);
            tracing::error!(
                task = name,
                panic,
                "a task panicked; the server goes on without it"
            );
        }
    })
}

/// A task that takes turns: first after one interval, and then one interval after each end.
pub(super) fn every<F>(
    name: String,
    interval: Duration,
    turn: impl Fn() -> F + Send + 'static,
) -> Task
where
    F: Future<Output = ()> + 'static,
{
    Box::new(move |mut stopping| {
        let turn = Rc::new(turn);
        Box::pin(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    () = stopping.wait() => return,
                }
                let turn = turn.clone();
                let mut turn = spawn_local(async move { turn().await });
                let ended = tokio::select! {
                    ended = &mut turn => ended,
                    () = stopping.wait() => match tokio::time::timeout(LAST_TURN, turn).await {
                        Ok(ended) => ended,
                        Err(_) => return,
                    },
                };
                if let Err(error) = ended {
                    let panic = message(error);
                    tracing::error!(
                        task = name,
                        panic,
                        "a turn of a task panicked; the next one comes"
                    );
                }
            }
        })
    })
}

/// What was panicked with. Nobody cancels these tasks, so that they end by nothing else.
fn message(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => apus_layers::panic_message(&*panic).to_owned(),
        Err(error) => error.to_string(),
    }
}
