//! Connections of workers that are outside of an exchange: shutdown, work after the response, cancelled requests.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::connection::WorkerConnection;
use crate::log_line::{LoggedRequest, WorkerLogLine};
use crate::shared::SharedPool;
use crate::supervisor_message::SupervisorMessage;
use crate::wire::{self, WorkerEvent};

/// Shuts down an idle worker, with a STOP frame if `send_stop`, and kills it after `limit`.
pub(crate) async fn shutdown(
    shared: Arc<SharedPool>,
    connection: WorkerConnection,
    send_stop: bool,
    limit: Duration,
) {
    let record = Arc::clone(&connection.record);
    let end = async {
        let mut connection = connection.adopt()?;
        if send_stop {
            connection.write_all(&wire::stop()).await?;
        }
        while let Some(event) = connection.event().await? {
            shared.handle_event(&connection, None, event);
        }
        io::Result::Ok(())
    };
    if timeout(limit, end).await.is_err() {
        record.kill();
    }
    record.disconnect();
}

/// Waits until a worker that continues to work after its response to `request` is idle.
pub(crate) async fn finish_background_work(
    shared: Arc<SharedPool>,
    connection: WorkerConnection,
    request: LoggedRequest,
) {
    let record = Arc::clone(&connection.record);
    record.set_executing(true);
    let Ok(mut connection) = connection.adopt() else {
        shared.remove(record.id);
        record.disconnect();
        return;
    };
    loop {
        match connection.event().await {
            Ok(Some(WorkerEvent::Ready(_))) => {
                shared.log_late_messages(&mut connection, &request);
                return shared.release(connection);
            }
            Ok(Some(WorkerEvent::Bye(_))) => {
                shared.log_late_messages(&mut connection, &request);
                return shared.notify_supervisor(SupervisorMessage::Leaving(connection));
            }
            Ok(Some(event)) => shared.handle_event(&connection, Some(&request), event),
            Ok(None) | Err(_) => return shared.discard(&connection),
        }
    }
}

/// Cancels a request whose client is gone, and reads the rest of the response until the worker is idle.
pub(crate) async fn drain(
    shared: Arc<SharedPool>,
    connection: WorkerConnection,
    is_pulling: bool,
    request: LoggedRequest,
) {
    let record = Arc::clone(&connection.record);
    record.set_executing(true);
    let drained = async {
        let mut connection = connection.adopt()?;
        connection.write_all(&wire::cancel()).await?;
        let mut is_pull_cancelled = is_pulling;
        loop {
            match connection.event().await? {
                // Each PULL needs a response, and a CANCEL is one.
                Some(WorkerEvent::Pull(_)) if std::mem::take(&mut is_pull_cancelled) => {}
                Some(WorkerEvent::Pull(_)) => connection.write_all(&wire::cancel()).await?,
                Some(WorkerEvent::End(end)) => return Ok((connection, end)),
                Some(WorkerEvent::Bye(_)) | None => {
                    shared.log_late_messages(&mut connection, &request);
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                Some(event) => shared.handle_event(&connection, Some(&request), event),
            }
        }
    };
    match drained.await {
        Ok((mut connection, end)) => {
            shared.log_late_messages(&mut connection, &request);
            if end.is_leaving || !connection.is_input_empty() {
                shared.notify_supervisor(SupervisorMessage::Leaving(connection));
            } else if end.continues_working {
                finish_background_work(shared, connection, request).await;
            } else {
                shared.release(connection);
            }
        }
        Err(_) => {
            shared.remove(record.id);
            record.disconnect();
        }
    }
}

impl SharedPool {
    /// Logs the messages of PHP's error log of which the reactor does not know yet. The next request would get them.
    fn log_late_messages(&self, connection: &mut WorkerConnection, request: &LoggedRequest) {
        for message in connection.late_messages() {
            let event = WorkerEvent::Log(message.level, message.text);
            self.handle_event(connection, Some(request), event);
        }
    }

    /// Handles log lines and commands.
    fn handle_event(
        &self,
        connection: &WorkerConnection,
        request: Option<&LoggedRequest>,
        event: WorkerEvent,
    ) {
        match event {
            WorkerEvent::Log(level, text) => {
                let line = WorkerLogLine {
                    pool: &self.plan.name,
                    pid: connection.record.pid_number(),
                    request,
                };
                line.write(level, &text);
            }
            WorkerEvent::Command(command) => self.execute(command, None),
            _ => {}
        }
    }
}

impl WorkerConnection {
    /// The next event; `None` at the end of the connection.
    pub(crate) async fn event(&mut self) -> io::Result<Option<WorkerEvent>> {
        loop {
            if let Some(event) = self.next_event().map_err(io::Error::other)? {
                return Ok(Some(event));
            }
            match std::future::poll_fn(|cx| self.poll_read(cx)).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written =
                std::future::poll_fn(|cx| self.poll_write(cx, &[IoSlice::new(bytes)])).await?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}
