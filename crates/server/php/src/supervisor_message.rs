//! Messages to the supervisor of a pool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::connection::WorkerConnection;
use crate::hello::ReceivedHello;
use crate::log_line::LoggedRequest;
use crate::record::WorkerId;
use crate::task::TaskResult;
use crate::wire::ReadyFrame;

/// A message to the supervisor.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// An idle worker is to be replaced.
    RecycleDue(WorkerConnection),
    /// A worker ends by itself.
    Leaving(WorkerConnection),
    /// The client of a request disconnected.
    ClientGone {
        connection: WorkerConnection,
        /// Whether the worker waits for a part of the body.
        is_pulling: bool,
        request: Box<LoggedRequest>,
    },
    /// A classic application cannot be included twice: each request needs a separate process.
    CannotIncludeTwice,
    /// A task for later.
    Task {
        name: Bytes,
        payload: Bytes,
        delay: Duration,
    },
    /// A process connected and sent its HELLO.
    HelloReceived(Box<ReceivedHello>),
    /// A worker is booted.
    Booted(Box<WorkerConnection>, ReadyFrame),
    /// A worker reported why it cannot boot, or did not boot in time.
    BootFailed(WorkerId, String),
    /// The FastCGI request of a worker ended.
    BootRequestEnded(WorkerId),
    /// A task or timer is done.
    TaskDone(TaskResult),
    /// Files of the application changed.
    FilesChanged(PathBuf),
    /// The application is to be reloaded. The reply comes when that is done.
    Reload(oneshot::Sender<Result<(), Arc<str>>>),
    /// The pool is to stop. The reply comes when that is done.
    Stop(oneshot::Sender<()>),
}
