//! The thread that writes the files: one for each connection, of a bounded size and number.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use apus_quic_protocol::{ConnectionId, ObservedEvent, Side};
use serde_json::{Value, json};

use super::record::{self, Record};

/// Connections that are logged at a time.
pub(super) const MAX_CONNECTIONS: usize = 100;
/// The size of a file from which on no further events are written to it: some 13,000 packets.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Files of a folder. Before a further one, the oldest is removed.
const MAX_FILES: usize = 500;
/// Bytes of a file that are written at once.
const BATCH: usize = 64 * 1024;
/// How often files are looked for whose connections have ended without a message.
const SWEEP: Duration = Duration::from_secs(1);
/// The shortest time between two warnings.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The extension of files.
const EXTENSION: &str = "sqlog";
/// The separator of JSON text sequences (RFC 7464 section 2.2).
const RECORD_SEPARATOR: u8 = 0x1e;

/// A message of a connection to the thread.
#[derive(Debug)]
pub(super) enum QlogMessage {
    Begin {
        connection: u64,
        side: Side,
        original_destination: ConnectionId,
        began: (SystemTime, Instant),
        /// The events that were lost on the way.
        lost: Arc<AtomicU64>,
    },
    Event {
        connection: u64,
        now: Instant,
        event: ObservedEvent,
        /// The memory of its lists and texts.
        size: usize,
    },
    End(u64),
    /// All that came before is to be written.
    Flush(SyncSender<()>),
}

/// The thread's state.
pub(super) struct QlogWriter {
    folder: PathBuf,
    /// The memory of events that wait in the channel.
    waiting: Arc<AtomicUsize>,
    /// The files of the folder, the oldest first, once the folder was read.
    files: Option<VecDeque<PathBuf>>,
    open: HashMap<u64, ConnectionFile>,
    warned: Option<Instant>,
}

/// The file of a connection.
struct ConnectionFile {
    file: File,
    buffer: Vec<u8>,
    written: u64,
    /// Milliseconds since 1970 at the beginning.
    began_at: f64,
    began: Instant,
    /// Events that were lost because the channel was full, and because the file was.
    lost: Arc<AtomicU64>,
    cut: u64,
}

impl QlogWriter {
    pub(super) fn new(folder: &Path, waiting: Arc<AtomicUsize>) -> Self {
        Self {
            folder: folder.to_owned(),
            waiting,
            files: None,
            open: HashMap::new(),
            warned: None,
        }
    }

    /// Writes what comes, until no connection and no configuration is left that could send something.
    pub(super) fn run(mut self, messages: &Receiver<QlogMessage>) {
        loop {
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    // Nothing more comes for now: a reader sees what there is.
                    self.write_all();
                    match self.wait(messages) {
                        Ok(message) => message,
                        Err(RecvTimeoutError::Disconnected) => break,
                        Err(RecvTimeoutError::Timeout) => {
                            self.sweep();
                            continue;
                        }
                    }
                }
            };
            self.handle(message);
        }
        for connection in self.open.keys().copied().collect::<Vec<_>>() {
            self.end(connection);
        }
    }

    fn wait(&self, messages: &Receiver<QlogMessage>) -> Result<QlogMessage, RecvTimeoutError> {
        if self.open.is_empty() {
            messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            messages.recv_timeout(SWEEP)
        }
    }

    pub(super) fn handle(&mut self, message: QlogMessage) {
        match message {
            QlogMessage::Begin {
                connection,
                side,
                original_destination,
                began,
                lost,
            } => {
                if self.open.len() > MAX_CONNECTIONS {
                    self.sweep();
                }
                let name = format!(
                    "{original_destination:?}_{}.{EXTENSION}",
                    record::vantage_point(side)
                );
                match self.create(&name) {
                    Ok(file) => {
                        let mut file = ConnectionFile::new(file, began, lost);
                        file.push(&record::header(side, original_destination));
                        self.open.insert(connection, file);
                    }
                    Err(error) => self.warn(&error),
                }
            }
            QlogMessage::Event {
                connection,
                now,
                event,
                size,
            } => {
                self.waiting.fetch_sub(size, Ordering::Relaxed);
                let result = match self.open.get_mut(&connection) {
                    Some(file) => file.log(now, &event),
                    None => Ok(()),
                };
                if let Err(error) = result {
                    self.warn(&error);
                }
            }
            QlogMessage::End(connection) => self.end(connection),
            QlogMessage::Flush(done) => {
                self.write_all();
                let _ = done.try_send(());
            }
        }
    }

    /// A new file. A client that chooses the ID of another connection does not overwrite its file.
    fn create(&mut self, name: &str) -> io::Result<File> {
        let folder = &self.folder;
        let files = match &mut self.files {
            Some(files) => files,
            None => self.files.insert(prepare(folder)?),
        };
        while files.len() >= MAX_FILES
            && let Some(oldest) = files.pop_front()
        {
            // Somebody may have removed it.
            let _ = fs::remove_file(oldest);
        }
        let path = folder.join(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
        files.push_back(path);
        Ok(file)
    }

    fn end(&mut self, connection: u64) {
        let Some(mut file) = self.open.remove(&connection) else {
            return;
        };
        let lost = file.lost.load(Ordering::Relaxed);
        let result = file.end(lost);
        if let Err(error) = result {
            self.warn(&error);
        } else if lost > 0 {
            self.warn(&io::Error::other(format!(
                "{lost} events of a connection came faster than they could be written"
            )));
        }
    }

    /// Ends files whose connections are gone.
    fn sweep(&mut self) {
        let is_gone = |file: &ConnectionFile| Arc::strong_count(&file.lost) == 1;
        let gone: Vec<u64> = self
            .open
            .iter()
            .filter_map(|(connection, file)| is_gone(file).then_some(*connection))
            .collect();
        for connection in gone {
            self.end(connection);
        }
    }

    fn write_all(&mut self) {
        let mut failure = None;
        for file in self.open.values_mut() {
            if let Err(error) = file.write() {
                failure = Some(error);
            }
        }
        if let Some(error) = failure {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &io::Error) {
        let is_due = self
            .warned
            .is_none_or(|time| time.elapsed() >= REPORT_INTERVAL);
        if is_due {
            self.warned = Some(Instant::now());
            let folder = self.folder.display();
            tracing::warn!(%folder, %error, "a connection is not logged, or not all of it");
        }
    }
}

impl ConnectionFile {
    fn new(file: File, (time, began): (SystemTime, Instant), lost: Arc<AtomicU64>) -> Self {
        let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            file,
            buffer: Vec::new(),
            written: 0,
            began_at: record::milliseconds(since_1970),
            began,
            lost,
            cut: 0,
        }
    }

    fn push(&mut self, value: &Value) {
        let text = value.to_string();
        self.buffer.push(RECORD_SEPARATOR);
        self.buffer.extend_from_slice(text.as_bytes());
        self.buffer.push(b'\n');
    }

    fn log(&mut self, now: Instant, event: &ObservedEvent) -> io::Result<()> {
        if self.written + self.buffer.len() as u64 >= MAX_FILE_BYTES {
            self.cut += 1;
            return Ok(());
        }
        let time = self.began_at + record::milliseconds(now.saturating_duration_since(self.began));
        for Record { name, data } in record::records(event) {
            self.push(&json!({"time": time, "name": name, "data": data}));
        }
        if self.buffer.len() >= BATCH {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Says how many events are not in the file, and writes the rest.
    fn end(&mut self, lost: u64) -> io::Result<()> {
        for (count, why) in [
            (lost, "came faster than they could be written"),
            (self.cut, "came after the file was full"),
        ] {
            if count > 0 {
                let message = format!("{count} events {why}");
                let time = self.began_at + record::milliseconds(self.began.elapsed());
                self.push(&json!({
                    "time": time, "name": "loglevel:warning", "data": {"message": message},
                }));
            }
        }
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.file.write_all(&self.buffer);
        // Also after an error: what cannot be written must not fill the memory.
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        result
    }
}

/// Creates the folder, if there is none. Returns its files, the oldest first.
fn prepare(folder: &Path) -> io::Result<VecDeque<PathBuf>> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|own| own == EXTENSION))
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc::sync_channel;

    use apus_quic_protocol::{LossReason, PacketKind};

    fn id(number: u64) -> ConnectionId {
        ConnectionId::new(&number.to_be_bytes())
    }

    fn begin(connection: u64) -> (QlogMessage, Arc<AtomicU64>) {
        let lost = Arc::new(AtomicU64::new(0));
        let message = QlogMessage::Begin {
            connection,
            side: Side::Server,
            original_destination: id(connection),
            began: (SystemTime::now(), Instant::now()),
            lost: Arc::clone(&lost),
        };
        (message, lost)
    }

    fn event(connection: u64) -> QlogMessage {
        QlogMessage::Event {
            connection,
            now: Instant::now(),
            event: ObservedEvent::PacketLost {
                kind: PacketKind::OneRtt,
                number: 7,
                reason: LossReason::Time,
                is_mtu_probe: false,
            },
            size: 0,
        }
    }

    fn text(folder: &Path, connection: u64) -> String {
        let path = folder.join(format!("{connection:016x}_server.sqlog"));
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_oldest_files_are_removed_before_there_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut writer = QlogWriter::new(folder, Arc::default());
        fs::write(folder.join("notes.txt"), "").unwrap();
        for connection in 0..MAX_FILES as u64 + 2 {
            writer.handle(begin(connection).0);
            writer.handle(QlogMessage::End(connection));
        }
        let names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names.len(), MAX_FILES + 1);
        for removed in [0, 1] {
            let name = format!("{removed:016x}_server.sqlog");
            assert!(!names.contains(&name));
        }
        assert!(names.contains(&"notes.txt".to_owned()));
    }

    #[test]
    fn a_file_is_bounded_and_says_how_many_events_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = QlogWriter::new(folder.path(), Arc::default());
        let (message, lost) = begin(1);
        writer.handle(message);
        writer.handle(event(1));
        while writer.open[&1].cut < 3 {
            writer.handle(event(1));
        }
        lost.fetch_add(5, Ordering::Relaxed);
        writer.handle(QlogMessage::End(1));
        let text = text(folder.path(), 1);
        assert!(text.len() as u64 >= MAX_FILE_BYTES);
        assert!((text.len() as u64) < MAX_FILE_BYTES + 1_024);
        assert!(text.contains("5 events came faster than they could be written"));
        assert!(text.contains("3 events came after the file was full"));
    }

    #[test]
    fn a_connection_with_the_id_of_another_one_does_not_overwrite_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = QlogWriter::new(folder.path(), Arc::default());
        writer.handle(begin(1).0);
        writer.handle(event(1));
        let (QlogMessage::Begin { began, lost, .. }, _) = begin(2) else {
            panic!("it begins");
        };
        writer.handle(QlogMessage::Begin {
            connection: 2,
            side: Side::Server,
            original_destination: id(1),
            began,
            lost,
        });
        writer.handle(event(2));
        writer.handle(QlogMessage::End(2));
        writer.handle(QlogMessage::End(1));
        assert_eq!(text(folder.path(), 1).matches("packet_lost").count(), 1);
    }

    #[test]
    fn a_connection_whose_end_found_the_channel_full_gives_its_place_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = QlogWriter::new(folder.path(), Arc::default());
        let (message, lost) = begin(1);
        writer.handle(message);
        writer.sweep();
        assert_eq!(writer.open.len(), 1);
        drop(lost);
        writer.sweep();
        assert!(writer.open.is_empty());
    }

    #[test]
    fn what_was_logged_is_in_the_file_after_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, messages) = sync_channel(8);
        let writer = QlogWriter::new(folder.path(), Arc::default());
        let thread = std::thread::spawn(move || writer.run(&messages));
        sender.send(begin(1).0).unwrap();
        sender.send(event(1)).unwrap();
        let (done, written) = sync_channel(1);
        sender.send(QlogMessage::Flush(done)).unwrap();
        written.recv().unwrap();
        assert!(text(folder.path(), 1).contains("quic:packet_lost"));
        drop(sender);
        thread.join().unwrap();
    }
}
