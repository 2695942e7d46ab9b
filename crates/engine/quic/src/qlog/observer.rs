//! The observers of connections, which pass events to the thread that writes them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use apus_quic_protocol::{ConnectionId, ConnectionObserver, ObservedEvent, Side, StartObserver};

use super::writer::{MAX_CONNECTIONS, QlogMessage, QlogWriter};

/// Events that wait for the thread that writes them.
const WAITING_EVENTS: usize = 16_384;
/// How long the end of a process waits for what is not written yet: the disk may not respond.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Begins to log connections in a folder.
#[derive(Debug)]
pub(super) struct QlogObserver(Arc<QlogQueue>);

#[derive(Debug)]
struct QlogQueue {
    sender: SyncSender<QlogMessage>,
    /// The connections that are logged.
    open: AtomicUsize,
    /// The number of the next connection.
    next: AtomicU64,
}

impl QlogObserver {
    /// Starts the thread that writes the files.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let (sender, messages) = sync_channel(WAITING_EVENTS);
        let writer = QlogWriter::new(folder);
        std::thread::Builder::new()
            .name("qlog".to_owned())
            .spawn(move || writer.run(&messages))?;
        Ok(Self(Arc::new(QlogQueue {
            sender,
            open: AtomicUsize::new(0),
            next: AtomicU64::new(0),
        })))
    }

    /// Waits until all is written that was logged before.
    pub(super) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.0.sender.try_send(QlogMessage::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

impl StartObserver for QlogObserver {
    fn start(
        &self,
        side: Side,
        original_destination: ConnectionId,
    ) -> Option<Box<dyn ConnectionObserver>> {
        let queue = &self.0;
        if queue.open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            queue.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        // From here on, its end gives its place back.
        let observer = LoggedConnection {
            number: queue.next.fetch_add(1, Ordering::Relaxed),
            queue: Arc::clone(queue),
            lost: Arc::default(),
        };
        let begin = QlogMessage::Begin {
            connection: observer.number,
            side,
            original_destination,
            began: (SystemTime::now(), Instant::now()),
            lost: Arc::clone(&observer.lost),
        };
        queue.sender.try_send(begin).ok()?;
        Some(Box::new(observer))
    }
}

/// A connection that is logged.
struct LoggedConnection {
    number: u64,
    queue: Arc<QlogQueue>,
    /// Its events that found the channel full.
    lost: Arc<AtomicU64>,
}

impl ConnectionObserver for LoggedConnection {
    fn on_event(&mut self, now: Instant, event: ObservedEvent) {
        let connection = self.number;
        let message = QlogMessage::Event {
            connection,
            now,
            event,
        };
        if self.queue.sender.try_send(message).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for LoggedConnection {
    fn drop(&mut self) {
        self.queue.open.fetch_sub(1, Ordering::Relaxed);
        // If the channel is full, the thread finds out by the count of `lost`, which it shares with this value.
        let _ = self.queue.sender.try_send(QlogMessage::End(self.number));
    }
}
