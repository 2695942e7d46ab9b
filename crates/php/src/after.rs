//! Connections of workers without a request: ending, working on, or abandoned by their client.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::connection::Connection;
use crate::exchange::Line;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::wire::{self, Event};

/// Has a worker end that is free: it is told, if `tell`, and killed if it takes longer than `limit`.
pub(crate) async fn end(shared: Arc<Shared>, connection: Connection, tell: bool, limit: Duration) {
    let record = Arc::clone(&connection.record);
    let ended = async {
        let mut connection = connection.adopt()?;
        if tell {
            connection.write_all(&wire::stop()).await?;
        }
        while let Some(event) = connection.event().await? {
            shared.aside(&connection, event);
        }
        io::Result::Ok(())
    };
    if timeout(limit, ended).await.is_err() {
        record.kill();
    }
    record.hang_up();
}

/// Waits until a worker that works on behind its answer is free.
pub(crate) async fn work_on(shared: Arc<Shared>, connection: Connection) {
    let record = Arc::clone(&connection.record);
    record.awaits(true);
    let Ok(mut connection) = connection.adopt() else {
        shared.forget(record.id);
        record.hang_up();
        return;
    };
    loop {
        match connection.event().await {
            Ok(Some(Event::Ready(_))) => return shared.release(connection),
            Ok(Some(Event::Bye(_))) => return shared.signal(Signal::Leaving(connection)),
            Ok(Some(event)) => shared.aside(&connection, event),
            Ok(None) | Err(_) => return shared.discard(&connection),
        }
    }
}

/// Reads an answer whose client is gone, so that its worker is free for the next.
pub(crate) async fn drain(shared: Arc<Shared>, connection: Connection, pulled: bool) {
    let record = Arc::clone(&connection.record);
    record.awaits(true);
    let drained = async {
        let mut connection = connection.adopt()?;
        connection.write_all(&wire::cancel()).await?;
        let mut is_answered = pulled;
        loop {
            match connection.event().await? {
                // Each wish for content has to be answered, and a CANCEL is an answer.
                Some(Event::Pull(_)) if std::mem::take(&mut is_answered) => {}
                Some(Event::Pull(_)) => connection.write_all(&wire::cancel()).await?,
                Some(Event::End(ending)) => return Ok((connection, ending)),
                Some(Event::Bye(_)) | None => {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                Some(event) => shared.aside(&connection, event),
            }
        }
    };
    match drained.await {
        Ok((connection, ending)) => {
            if ending.leaves || !connection.is_read_up() {
                shared.signal(Signal::Leaving(connection));
            } else if ending.works_on {
                work_on(shared, connection).await;
            } else {
                shared.release(connection);
            }
        }
        Err(_) => {
            shared.forget(record.id);
            record.hang_up();
        }
    }
}

impl Shared {
    /// What a worker says aside.
    fn aside(&self, connection: &Connection, event: Event) {
        match event {
            Event::Log(level, text) => {
                let line = Line {
                    pool: &self.plan.name,
                    pid: connection.record.pid_number(),
                    request: None,
                };
                line.write(level, &text);
            }
            Event::Command(command) => self.command(command, None),
            _ => {}
        }
    }
}

impl Connection {
    /// The next event; `None` at the end of the connection.
    pub(crate) async fn event(&mut self) -> io::Result<Option<Event>> {
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
