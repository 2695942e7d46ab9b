//! The thread beside the workers: it writes access logs, and looks after the origins of configurations.
//!
//! It starts when it is first needed, and runs as long as the process.

use std::sync::{Mutex, OnceLock, PoisonError, mpsc as blocking};

use apus::tokio;
use apus_server::access_log::{AccessLogs, LogWriterHandle};
use tokio::sync::mpsc;

use crate::error::CallError;

/// A function for the thread.
type Work = Box<dyn FnOnce() + Send>;

static WORK: OnceLock<mpsc::UnboundedSender<Work>> = OnceLock::new();
static LOGS: Mutex<Option<OpenLogs>> = Mutex::new(None);

/// The access logs of the process.
struct OpenLogs {
    logs: AccessLogs,
    /// Asks the thread to write what was logged so far, and waits for it.
    finish: mpsc::UnboundedSender<blocking::Sender<()>>,
}

/// Runs a function on the thread, in its runtime.
pub(crate) fn run(work: Work) -> Result<(), CallError> {
    if WORK.get().is_none() {
        start()?;
    }
    let sent = WORK.get().and_then(|sender| sender.send(work).ok());
    sent.ok_or_else(|| CallError::io("the thread beside the workers", &"it has ended"))
}

fn start() -> Result<(), CallError> {
    let (sender, mut work) = mpsc::unbounded_channel::<Work>();
    if WORK.set(sender).is_err() {
        // Another thread was faster.
        return Ok(());
    }
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, async move {
                while let Some(work) = work.recv().await {
                    work();
                }
            }),
            Err(error) => tracing::error!(%error, "the thread beside the workers cannot start"),
        }
    };
    let thread = std::thread::Builder::new()
        .name("apus-background".to_owned())
        .spawn(run);
    thread
        .map(drop)
        .map_err(|error| CallError::io("a thread", &error))
}

/// The access logs of the process.
pub(crate) fn access_logs() -> Result<AccessLogs, CallError> {
    let mut open = LOGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = &*open {
        return Ok(open.logs.clone());
    }
    let (logs, writer) = AccessLogs::new();
    let (finish, mut requests) = mpsc::unbounded_channel::<blocking::Sender<()>>();
    run(Box::new(move || {
        let writer: LogWriterHandle = writer.spawn();
        tokio::task::spawn_local(async move {
            while let Some(done) = requests.recv().await {
                writer.finish().await;
                let _ = done.send(());
            }
        });
    }))?;
    *open = Some(OpenLogs {
        logs: logs.clone(),
        finish,
    });
    Ok(logs)
}

/// Waits until all that was logged so far is in its files.
pub(crate) fn finish_access_logs() {
    let open = LOGS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(open) = &*open else { return };
    let (done, is_done) = blocking::channel();
    if open.finish.send(done).is_ok() {
        let _ = is_done.recv();
    }
}
