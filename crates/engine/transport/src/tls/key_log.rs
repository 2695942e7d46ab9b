//! A file of the secrets of TLS connections, in the format of NSS that Wireshark reads (draft-ietf-tls-keylogfile).

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustls::KeyLog;

/// Lines that wait for the thread that writes them. A handshake of TLS 1.3 has five.
const WAITING_LINES: usize = 8_192;
/// How long [`KeyLogFile::flush`] waits: the file may be on a disk that does not respond.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest time between two reports of lost lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Only the owner of the file may read it.
const MODE: u32 = 0o600;

/// A file of the secrets of TLS connections. Whoever reads it can decrypt them.
///
/// A thread of its own writes it, so that no handshake waits for a disk; what comes faster than it is written is lost and
/// counted. The thread ends with the last copy of this value.
#[derive(Clone)]
pub struct KeyLogFile(Arc<KeyLogQueue>);

struct KeyLogQueue {
    path: PathBuf,
    sender: SyncSender<KeyLogMessage>,
    lost: Arc<AtomicU64>,
}

enum KeyLogMessage {
    Line(Vec<u8>),
    /// All lines before it are to be written.
    Flush(SyncSender<()>),
}

struct KeyLogWriter {
    file: File,
    path: PathBuf,
    lost: Arc<AtomicU64>,
    /// When lost lines were last reported, and how many.
    reported: Option<(Instant, u64)>,
    /// Whether the file may end within a line, since it could not be written to the end.
    is_cut: bool,
}

impl KeyLogFile {
    /// Opens a file, to which lines are appended, as [`open_key_log`].
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_file(open_key_log(path)?, path)
    }

    /// Uses a file that somebody else has opened.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn from_file(file: File, path: &Path) -> io::Result<Self> {
        let (sender, messages) = sync_channel(WAITING_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = KeyLogWriter {
            file,
            path: path.to_owned(),
            lost: Arc::clone(&lost),
            reported: None,
            is_cut: false,
        };
        std::thread::Builder::new()
            .name("key-log".to_owned())
            .spawn(move || writer.run(&messages))?;
        Ok(Self(Arc::new(KeyLogQueue {
            path: path.to_owned(),
            sender,
            lost,
        })))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Lines that were lost, as they came faster than they could be written, or could not be written at all.
    pub fn lost_lines(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Waits until what was logged before is in the file, for a second at most. It blocks the thread.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.0.sender.try_send(KeyLogMessage::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = key_log_line(label, client_random, secret);
        if self.0.sender.try_send(KeyLogMessage::Line(line)).is_err() {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyLogFile").field(&self.0.path).finish()
    }
}

impl KeyLogWriter {
    fn run(mut self, messages: &Receiver<KeyLogMessage>) {
        let mut lines = Vec::new();
        while let Ok(first) = messages.recv() {
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    KeyLogMessage::Line(line) => lines.push(line),
                    KeyLogMessage::Flush(done) => {
                        self.write(&mut lines);
                        let _ = done.try_send(());
                    }
                }
                next = messages.try_recv().ok();
            }
            self.write(&mut lines);
        }
    }

    fn write(&mut self, lines: &mut Vec<Vec<u8>>) {
        if lines.is_empty() {
            return;
        }
        let mut text = lines.concat();
        if self.is_cut {
            // A reader skips the part of a line before it.
            text.insert(0, b'\n');
        }
        // In one write, so that lines of another process that appends to the file do not cut them.
        let written = self.file.write_all(&text);
        self.is_cut = written.is_err();
        if let Err(error) = written {
            self.lost.fetch_add(lines.len() as u64, Ordering::Relaxed);
            self.report(Some(&error));
        } else {
            self.report(None);
        }
        lines.clear();
    }

    fn report(&mut self, error: Option<&io::Error>) {
        let lost = self.lost.load(Ordering::Relaxed);
        let is_due = match self.reported {
            None => lost > 0,
            Some((time, before)) => lost > before && time.elapsed() >= REPORT_INTERVAL,
        };
        if !is_due {
            return;
        }
        self.reported = Some((Instant::now(), lost));
        let path = self.path.display();
        let why = error.map_or_else(
            || "they came faster than they could be written".to_owned(),
            ToString::to_string,
        );
        tracing::warn!(%path, lost, %why, "lines of the key log were lost");
    }
}

/// Opens a file of secrets, to which lines are appended: a new one that its owner alone can read and write, or an old one, which
/// gets these permissions.
///
/// The folder may be one that others can write to, such as `/tmp`. So what somebody else may have put there is refused: a
/// symbolic link or another name of a file of this user, a file of another user, who could read it, and a named pipe, which
/// would block.
///
/// # Errors
/// The file cannot be opened, or is none of this user's own.
pub fn open_key_log(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => refused("it is a symbolic link, which is not followed"),
            Some(Errno::NXIO) => refused("it is a named pipe or a socket, and no file"),
            _ => error,
        })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(refused("it is no regular file"));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(refused(
            "it belongs to another user, who could read the secrets",
        ));
    }
    if found.nlink() != 1 {
        return Err(refused("it has another name, too (a hard link)"));
    }
    file.set_permissions(Permissions::from_mode(MODE))?;
    Ok(file)
}

/// A line of the file: a label, the random number of the client, and a secret.
fn key_log_line(label: &str, client_random: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(label.len() + 2 * (client_random.len() + secret.len()) + 3);
    line.extend_from_slice(label.as_bytes());
    for bytes in [client_random, secret] {
        line.push(b' ');
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                line.push(char::from_digit(digit.into(), 16).map_or(b'0', |digit| digit as u8));
            }
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{chown, symlink};

    fn temporary(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("apus-key-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder.join(name)
    }

    #[test]
    fn lines_have_the_format_of_nss_and_only_the_owner_can_read_them() {
        let path = temporary("lines");
        fs::write(&path, "before\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let log = KeyLogFile::open(&path).unwrap();
        log.log("CLIENT_RANDOM", &[0x0f, 0xa0], &[0xff, 0x01]);
        log.clone().log("EXPORTER_SECRET", &[1], &[2]);
        log.flush();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "before\nCLIENT_RANDOM 0fa0 ff01\nEXPORTER_SECRET 01 02\n"
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            MODE
        );
        assert_eq!(log.lost_lines(), 0);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_others_may_have_put_in_the_place_of_the_file_is_refused() {
        let target = temporary("target");
        fs::write(&target, "").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o644)).unwrap();
        let place = temporary("place");
        let refused = |why: &str| {
            let error = KeyLogFile::open(&place).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            fs::remove_file(&place).unwrap();
        };
        symlink(&target, &place).unwrap();
        refused("symbolic link");
        fs::hard_link(&target, &place).unwrap();
        refused("hard link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &place,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&place)
            .unwrap();
        assert!(KeyLogFile::open(&place).is_err());
        drop(reader);
        refused("named pipe");
        if geteuid().is_root() {
            fs::write(&place, "").unwrap();
            chown(&place, Some(12_345), None).unwrap();
            refused("another user");
        }
        assert!(KeyLogFile::open(Path::new("/dev/null")).is_err());
        let found = fs::metadata(&target).unwrap();
        assert_eq!((found.len(), found.mode() & 0o777), (0, 0o644));
        fs::remove_file(target).unwrap();
    }

    #[test]
    fn a_line_after_one_that_could_not_be_written_to_the_end_stands_on_its_own() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = KeyLogWriter {
            file: OpenOptions::new().write(true).open("/dev/full").unwrap(),
            path: PathBuf::new(),
            lost: Arc::default(),
            reported: None,
            is_cut: false,
        };
        log.write(&mut vec![key_log_line("LOST", &[1], &[2])]);
        assert_eq!(log.lost.load(Ordering::Relaxed), 1);
        log.file = File::from(std::os::fd::OwnedFd::from(writer));
        log.write(&mut vec![key_log_line("NEXT", &[1], &[2])]);
        log.write(&mut vec![key_log_line("LAST", &[1], &[2])]);
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "\nNEXT 01 02\nLAST 01 02\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_nothing_waits() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let log = KeyLogFile::from_file(full, Path::new("/dev/full")).unwrap();
        for _ in 0..WAITING_LINES * 2 {
            log.log("CLIENT_RANDOM", &[1], &[2]);
        }
        while log.lost_lines() < 2 * WAITING_LINES as u64 {
            log.flush();
            std::thread::yield_now();
        }
        assert_eq!(log.lost_lines(), 2 * WAITING_LINES as u64);
    }
}
