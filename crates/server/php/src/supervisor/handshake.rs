//! The handshake of workers that connect: HELLO, and READY once the application is booted.

use std::cell::RefCell;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::boot::PhpOutput;
use super::unidentified::UnidentifiedConnections;
use crate::connection::WorkerConnection;
use crate::error_log::{ErrorLogMessage, ErrorLogReader};
use crate::hello::read_hello;
use crate::log_line::WorkerLogLine;
use crate::shared::SharedPool;
use crate::supervisor_message::SupervisorMessage;
use crate::wire::{LogLevel, WorkerEvent};

/// The time limit of the HELLO, which workers send at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);

/// The maximum number of log lines, and of messages of the error log, that wait for the end of a boot.
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

/// A worker that connected and boots.
pub(super) struct BootingWorker {
    pub(super) connection: WorkerConnection,
    /// It moves to the connection at the end of the boot. Until then it is read on its own, as the order in which messages
    /// of both arrive is no order of the worker.
    pub(super) error_log: Option<ErrorLogReader>,
    pub(super) output: Rc<RefCell<PhpOutput>>,
}

/// What a worker does while it boots.
enum BootEvent {
    Worker(io::Result<Option<WorkerEvent>>),
    ErrorLog(ErrorLogMessage),
}

impl BootingWorker {
    /// Waits until it is booted, or reports why it cannot boot. The supervisor closes the connection when the boot
    /// takes too long.
    pub(super) async fn wait_until_ready(
        mut self,
        supervisor: mpsc::UnboundedSender<SupervisorMessage>,
        shared: Arc<SharedPool>,
    ) {
        let id = self.connection.record.id;
        let reason = loop {
            let event = match self.event().await {
                BootEvent::Worker(event) => event,
                BootEvent::ErrorLog(message) => {
                    self.keep_message(&shared, message);
                    continue;
                }
            };
            match event {
                Ok(Some(WorkerEvent::Ready(ready))) => {
                    let connection = self.booted(&shared);
                    let _ = supervisor.send(SupervisorMessage::Booted(Box::new(connection), ready));
                    return;
                }
                Ok(Some(WorkerEvent::Log(level, text))) => {
                    let mut output = self.output.borrow_mut();
                    if output.lines.len() < MAX_LINES {
                        output.lines.push((level, text))
                    } else {
                        write_line(&self.connection, &shared, level, &text)
                    }
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
        // PHP may write more before the FastCGI request ends.
        self.output.borrow_mut().error_log_reader = self.error_log;
        let _ = supervisor.send(SupervisorMessage::BootFailed(id, reason));
    }

    async fn event(&mut self) -> BootEvent {
        let error_log = &mut self.error_log;
        let message = async {
            match error_log {
                Some(error_log) => error_log.message().await,
                None => pending().await,
            }
        };
        tokio::select! {
            event = self.connection.event() => BootEvent::Worker(event),
            message = message => BootEvent::ErrorLog(message),
        }
    }

    fn keep_message(&self, shared: &SharedPool, message: ErrorLogMessage) {
        let mut output = self.output.borrow_mut();
        if output.error_log.len() < MAX_LINES {
            output.error_log.push(message)
        } else {
            write_line(&self.connection, shared, message.level, &message.text)
        }
    }

    /// Logs what was kept, and returns the connection for requests.
    fn booted(mut self, shared: &SharedPool) -> WorkerConnection {
        // Otherwise they would be messages of its first request.
        let late = self.error_log.as_mut().map(ErrorLogReader::take_all);
        let mut output = self.output.borrow_mut();
        let messages = std::mem::take(&mut output.error_log).into_iter();
        for message in messages.chain(late.into_iter().flatten()) {
            write_line(&self.connection, shared, message.level, &message.text);
        }
        for (level, text) in std::mem::take(&mut output.lines) {
            write_line(&self.connection, shared, level, &text);
        }
        drop(output);
        if let Some(error_log) = self.error_log {
            self.connection.set_error_log(error_log);
        }
        self.connection
    }
}

fn write_line(connection: &WorkerConnection, shared: &SharedPool, level: LogLevel, text: &[u8]) {
    let line = WorkerLogLine {
        pool: &shared.plan.name,
        pid: connection.record.pid_number(),
        request: None,
    };
    line.write(level, text);
}
