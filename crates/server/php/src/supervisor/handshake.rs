//! The handshake of workers that connect: HELLO, and READY once the application is booted.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::boot::PhpOutput;
use super::unidentified::UnidentifiedConnections;
use crate::connection::WorkerConnection;
use crate::hello::read_hello;
use crate::log_line::WorkerLogLine;
use crate::shared::SharedPool;
use crate::supervisor_message::SupervisorMessage;
use crate::wire::{LogLevel, WorkerEvent};

/// The time limit of the HELLO, which workers send at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);

/// The maximum number of log lines that wait for the end of a boot.
const MAX_LINES: usize = 256;

/// Accepts the connections of workers.
pub(super) async fn accept(
    listener: UnixListener,
    supervisor: mpsc::UnboundedSender<SupervisorMessage>,
) {
    let unidentified = Rc::new(RefCell::new(UnidentifiedConnections::default()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                let entry = unidentified.borrow_mut().enter(user);
                let (supervisor, unidentified) = (supervisor.clone(), Rc::clone(&unidentified));
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        biased;
                        received = timeout(HELLO_TIMEOUT, read_hello(stream)) => {
                            unidentified.borrow_mut().leave(entry.id);
                            if let Ok(Ok(hello)) = received {
                                let _ = supervisor.send(SupervisorMessage::HelloReceived(Box::new(hello)));
                            }
                        }
                        _ = entry.evicted => {}
                    }
                });
            }
            Err(error) => {
                // Mostly because the process has no free file descriptor.
                tracing::warn!(%error, "a worker could not connect");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Waits until a worker is booted, or reports why it cannot boot. The supervisor closes the connection when the
/// boot takes too long.
pub(super) async fn wait_until_ready(
    mut connection: WorkerConnection,
    supervisor: mpsc::UnboundedSender<SupervisorMessage>,
    shared: Arc<SharedPool>,
    output: Rc<RefCell<PhpOutput>>,
) {
    let id = connection.record.id;
    // If it does not boot, they are a part of the reason, which is logged once and not with each attempt.
    let mut lines: Vec<(LogLevel, Bytes)> = Vec::new();
    let reason = loop {
        match connection.event().await {
            Ok(Some(WorkerEvent::Ready(ready))) => {
                for (level, text) in lines {
                    write_line(&connection, &shared, level, &text);
                }
                let _ = supervisor.send(SupervisorMessage::Booted(Box::new(connection), ready));
                return;
            }
            Ok(Some(WorkerEvent::Log(level, text))) if lines.len() < MAX_LINES => {
                lines.push((level, text));
            }
            Ok(Some(WorkerEvent::Log(level, text))) => {
                write_line(&connection, &shared, level, &text);
            }
            Ok(Some(WorkerEvent::Command(command))) => shared.execute(command, None),
            Ok(Some(WorkerEvent::Failed(text))) => {
                break String::from_utf8_lossy(&text).into_owned();
            }
            // The FastCGI request has the output of PHP.
            Ok(Some(WorkerEvent::Bye(_)) | None) => break String::new(),
            Ok(Some(other)) => break format!("the worker sent {other:?} while it booted"),
            Err(error) => break error.to_string(),
        }
    };
    for (_, text) in lines {
        output.borrow_mut().keep_error(&text);
    }
    let _ = supervisor.send(SupervisorMessage::BootFailed(id, reason));
}

fn write_line(connection: &WorkerConnection, shared: &SharedPool, level: LogLevel, text: &[u8]) {
    let line = WorkerLogLine {
        pool: &shared.plan.name,
        pid: connection.record.pid_number(),
        request: None,
    };
    line.write(level, text);
}
