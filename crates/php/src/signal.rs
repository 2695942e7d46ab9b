//! Messages to the supervisor of a pool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::connection::Connection;
use crate::greeting::Greeting;
use crate::record::WorkerId;
use crate::task::TaskDone;
use crate::wire::Ready;

/// A message to the supervisor.
#[derive(Debug)]
pub(crate) enum Signal {
    /// A worker is free and has to make room.
    Spent(Connection),
    /// A worker ends by itself.
    Leaving(Connection),
    /// The client of a request is gone. `pulled` says that the worker waits for content.
    Abandoned {
        connection: Connection,
        pulled: bool,
    },
    /// A classic application cannot be included twice: each request gets a process of its own.
    NotTwice,
    /// A task for later.
    Task {
        name: Bytes,
        payload: Bytes,
        delay: Duration,
    },
    /// Something connected and said who it is.
    Greeted(Box<Greeting>),
    /// A worker is booted.
    Booted(Box<Connection>, Ready),
    /// A worker said why it cannot boot, or none came in time.
    NotBooted(WorkerId, String),
    /// The FastCGI request of a worker ended.
    Ended(WorkerId),
    /// A task or timer is done.
    TaskDone(TaskDone),
    /// Files of the application changed.
    Changed(PathBuf),
    /// The application is to be loaded anew. The answer comes when that is so.
    Reload(oneshot::Sender<Result<(), Arc<str>>>),
    /// All is to end. The answer comes when that is so.
    Stop(oneshot::Sender<()>),
}
