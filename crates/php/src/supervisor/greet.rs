//! Workers that connect: they say who they are, and then that the application is booted.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::unidentified::UnidentifiedConnections;
use crate::connection::Connection;
use crate::exchange::Line;
use crate::greeting::greeting;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::wire::Event;

/// How long something that connects may take to say who it is: workers do so at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// Takes connections in.
pub(super) async fn accept(listener: UnixListener, signals: mpsc::UnboundedSender<Signal>) {
    let unidentified = Rc::new(RefCell::new(UnidentifiedConnections::default()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                let entry = unidentified.borrow_mut().enter(user);
                let (signals, unidentified) = (signals.clone(), Rc::clone(&unidentified));
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        biased;
                        greeted = timeout(PATIENCE, greeting(stream)) => {
                            unidentified.borrow_mut().leave(entry.id);
                            if let Ok(Ok(greeting)) = greeted {
                                let _ = signals.send(Signal::Greeted(Box::new(greeting)));
                            }
                        }
                        _ = entry.evicted => {}
                    }
                });
            }
            Err(error) => {
                // No descriptor is left, mostly.
                tracing::warn!(%error, "a worker could not connect");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Waits until a worker is booted, or says why it is not. Whoever looks at the clock ends its connection
/// when it takes too long.
pub(super) async fn wait_until_ready(
    mut connection: Connection,
    signals: mpsc::UnboundedSender<Signal>,
    shared: Arc<Shared>,
) {
    let id = connection.record.id;
    let reason = loop {
        match connection.event().await {
            Ok(Some(Event::Ready(ready))) => {
                let _ = signals.send(Signal::Booted(Box::new(connection), ready));
                return;
            }
            Ok(Some(Event::Log(level, text))) => {
                let line = Line {
                    pool: &shared.plan.name,
                    pid: connection.record.pid_number(),
                    request: None,
                };
                line.write(level, &text);
            }
            Ok(Some(Event::Command(command))) => shared.command(command, None),
            Ok(Some(Event::Failed(text))) => break String::from_utf8_lossy(&text).into_owned(),
            // PHP's words come by the FastCGI request.
            Ok(Some(Event::Bye(_)) | None) => break String::new(),
            Ok(Some(other)) => break format!("the worker said {other:?} while it booted"),
            Err(error) => break error.to_string(),
        }
    };
    let _ = signals.send(Signal::NotBooted(id, reason));
}
