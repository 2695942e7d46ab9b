//! The observers of connections, which pass events to the thread that writes them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use apus_quic_protocol::{
    ConnectionEnd, ConnectionId, ConnectionObserver, ObservedEnd, ObservedEvent, ObservedFrame,
    Side, StartObserver,
};

use super::writer::{MAX_CONNECTIONS, QlogMessage, QlogWriter};

/// Events that wait for the thread that writes them.
const WAITING_EVENTS: usize = 16_384;
/// The memory of the lists and texts of events that wait. A packet of a thousand PING frames takes a hundred times that of an
/// ordinary one, and clients choose what they send.
const WAITING_BYTES: usize = 16 << 20;
/// How long the end of a process waits for what is not written yet: the disk may not respond.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Begins to log connections in a folder.
#[derive(Debug)]
pub(super) struct QlogObserver(Arc<QlogQueue>);

#[derive(Debug)]
struct QlogQueue {
    sender: SyncSender<QlogMessage>,
    /// Of [`WAITING_BYTES`], which the thread that writes gives back.
    waiting: Arc<AtomicUsize>,
    /// The connections that are logged.
    open: AtomicUsize,
    /// The number of the next connection.
    next: AtomicU64,
}

impl QlogObserver {
    /// Starts the thread that writes the files.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let (sender, messages) = sync_channel(WAITING_EVENTS);
        let waiting = Arc::default();
        let writer = QlogWriter::new(folder, Arc::clone(&waiting));
        std::thread::Builder::new()
            .name("qlog".to_owned())
            .spawn(move || writer.run(&messages))?;
        Ok(Self(Arc::new(QlogQueue {
            sender,
            waiting,
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
        let (connection, size) = (self.number, memory_of(&event));
        let message = QlogMessage::Event {
            connection,
            now,
            event,
            size,
        };
        let QlogQueue {
            sender, waiting, ..
        } = &*self.queue;
        let is_within = waiting.fetch_add(size, Ordering::Relaxed) < WAITING_BYTES;
        if !is_within || sender.try_send(message).is_err() {
            waiting.fetch_sub(size, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The memory of an event beside its own size, which the number of events bounds.
fn memory_of(event: &ObservedEvent) -> usize {
    match event {
        ObservedEvent::PacketSent(packet) | ObservedEvent::PacketReceived(packet) => {
            let of_frame = |frame: &ObservedFrame| match frame {
                ObservedFrame::Ack { ranges, .. } => ranges.capacity() * size_of::<[u64; 2]>(),
                ObservedFrame::Close { reason, .. } => reason.capacity(),
                _ => 0,
            };
            let list = packet.frames.capacity() * size_of::<ObservedFrame>();
            list + packet.frames.iter().map(of_frame).sum::<usize>()
        }
        ObservedEvent::Closed(ObservedEnd::Ended(
            ConnectionEnd::Peer { reason, .. } | ConnectionEnd::Application { reason, .. },
        )) => reason.len(),
        _ => 0,
    }
}

impl Drop for LoggedConnection {
    fn drop(&mut self) {
        self.queue.open.fetch_sub(1, Ordering::Relaxed);
        // If the channel is full, the thread finds out by the count of `lost`, which it shares with this value.
        let _ = self.queue.sender.try_send(QlogMessage::End(self.number));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, TryRecvError};

    use apus_quic_protocol::{ObservedPacket, PacketKind};

    use super::*;

    /// A packet as an attacker may send it.
    fn pings() -> ObservedEvent {
        ObservedEvent::PacketReceived(ObservedPacket {
            kind: PacketKind::OneRtt,
            number: Some(1),
            size: 1_200,
            destination: ConnectionId::new(&[0; 8]),
            source: None,
            frames: vec![ObservedFrame::Ping; 1_150],
        })
    }

    #[test]
    fn packets_of_many_frames_that_wait_have_a_bound() {
        let (sender, messages): (_, Receiver<QlogMessage>) = sync_channel(WAITING_EVENTS);
        let waiting = Arc::new(AtomicUsize::new(0));
        let queue = Arc::new(QlogQueue {
            sender,
            waiting: Arc::clone(&waiting),
            open: AtomicUsize::new(0),
            next: AtomicU64::new(0),
        });
        let observer = QlogObserver(queue);
        let mut connection = observer
            .start(Side::Server, ConnectionId::new(&[1; 8]))
            .unwrap();
        for _ in 0..WAITING_EVENTS - 2 {
            connection.on_event(Instant::now(), pings());
        }
        let size = memory_of(&pings());
        let expected = WAITING_BYTES.div_ceil(size);
        assert!(expected < WAITING_EVENTS / 8);
        assert_eq!(waiting.load(Ordering::Relaxed), expected * size);
        // What has been written makes room.
        let folder = tempfile::tempdir().unwrap();
        let mut writer = QlogWriter::new(folder.path(), Arc::clone(&waiting));
        let mut count = 0;
        loop {
            match messages.try_recv() {
                Ok(message) => {
                    count += usize::from(matches!(message, QlogMessage::Event { .. }));
                    writer.handle(message);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => panic!("it is open"),
            }
        }
        assert_eq!(count, expected);
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
        connection.on_event(Instant::now(), pings());
        assert!(matches!(messages.try_recv(), Ok(QlogMessage::Event { .. })));
    }
}
