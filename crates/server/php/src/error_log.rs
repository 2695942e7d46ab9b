//! The named pipe to which the PHP process of a worker writes its error log.
//!
//! PHP sends its log over FastCGI in pieces of several kilobytes, and loses the last one when it is killed. A file of
//! `error_log` gets each message at once, with one write. The pipe moves with the connection of its worker, so that a
//! message is read by the one who knows the request.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use apus_transport::descriptors::DescriptorPermit;
use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags, chmod, mkfifoat, open};
use tokio::net::unix::pipe;

use crate::wire::LogLevel;

/// The named pipe of one worker. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ErrorLogPipe {
    path: PathBuf,
    reader: Option<OwnedFd>,
    /// Of the read end, wherever it is: it stays open while the worker runs.
    _descriptor: DescriptorPermit,
}

impl ErrorLogPipe {
    /// Creates the pipe. All users can open it, as PHP may run as any user: its name must be a secret.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        let mut this = Self {
            path,
            reader: None,
            _descriptor: DescriptorPermit::of_pipe(),
        };
        // Independent of the umask.
        chmod(&this.path, Mode::from_raw_mode(0o666))?;
        // With write access, the pipe has no end while PHP does not have it open.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        this.reader = Some(open(&this.path, flags, Mode::empty())?);
        Ok(this)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The read end; `None` if it was taken.
    pub(crate) fn take_reader(&mut self) -> Option<OwnedFd> {
        self.reader.take()
    }
}

impl Drop for ErrorLogPipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The number of bytes that a pipe holds.
const PIPE_CAPACITY: usize = 65536;

/// The read end of an [`ErrorLogPipe`], with the reactor of one thread.
#[derive(Debug)]
pub(crate) struct ErrorLogReader {
    pipe: pipe::Receiver,
    messages: VecDeque<ErrorLogMessage>,
    /// The beginning of a message that is longer than the pipe.
    incomplete: Vec<u8>,
}

/// The maximum length of a message that is not cut.
const MAX_MESSAGE: usize = 1 << 20;

/// A message of PHP's error log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorLogMessage {
    pub(crate) level: LogLevel,
    pub(crate) text: Bytes,
}

impl ErrorLogReader {
    pub(crate) fn new(reader: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            pipe: pipe::Receiver::from_owned_fd(reader)?,
            messages: VecDeque::new(),
            incomplete: Vec::new(),
        })
    }

    /// Moves it to the reactor of this thread.
    pub(crate) fn adopt(self) -> io::Result<Self> {
        Ok(Self {
            pipe: pipe::Receiver::from_owned_fd(self.pipe.into_nonblocking_fd()?)?,
            messages: self.messages,
            incomplete: self.incomplete,
        })
    }

    /// The next message. Needs no system call if the reactor knows of none.
    pub(crate) fn next(&mut self) -> Option<ErrorLogMessage> {
        if self.messages.is_empty() {
            while let Ok(bytes) = self.pipe.try_io(|| read(&self.pipe)) {
                self.add(&bytes);
            }
        }
        self.messages.pop_front()
    }

    /// All messages, including messages that the reactor has not announced yet.
    pub(crate) fn take_all(&mut self) -> VecDeque<ErrorLogMessage> {
        self.has_more();
        self.messages
            .extend(messages(&std::mem::take(&mut self.incomplete)));
        std::mem::take(&mut self.messages)
    }

    /// Whether there is a message, of which the reactor may not know yet.
    pub(crate) fn has_more(&mut self) -> bool {
        while let Ok(bytes) = read(&self.pipe) {
            self.add(&bytes);
        }
        !self.messages.is_empty()
    }

    /// Adds what was read. PHP ends each message with a line end.
    fn add(&mut self, bytes: &[u8]) {
        self.incomplete.extend_from_slice(bytes);
        if bytes.ends_with(b"\n") || self.incomplete.len() > MAX_MESSAGE {
            self.messages
                .extend(messages(&std::mem::take(&mut self.incomplete)));
        }
    }

    /// Waits for the next message.
    pub(crate) async fn message(&mut self) -> ErrorLogMessage {
        loop {
            if let Some(message) = self.next() {
                return message;
            }
            poll_fn(|cx| self.poll_ready(cx)).await;
        }
    }

    /// Waits until there may be a message.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.pipe.poll_read_ready(cx).map(drop)
    }
}

fn read(pipe: &pipe::Receiver) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(PIPE_CAPACITY);
    match rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut bytes))? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(bytes),
    }
}

/// The messages in what was read. Each begins with the time in brackets, and may have several lines.
fn messages(bytes: &[u8]) -> Vec<ErrorLogMessage> {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match (without_time(line), messages.last_mut()) {
            (None, Some(last)) => last.extend_from_slice(line),
            (text, _) => messages.push(text.unwrap_or(line).to_vec()),
        }
    }
    let message = |text: Vec<u8>| ErrorLogMessage {
        level: level_of(&text),
        text: Bytes::from(text),
    };
    messages.into_iter().map(message).collect()
}

/// A line without its time, as in `[27-Nov-2026 21:14:28 Europe/Berlin] `; `None` if it has none.
fn without_time(line: &[u8]) -> Option<&[u8]> {
    let time = line.strip_prefix(b"[")?;
    let is_time = |at: usize, byte: &u8| match b"00-Aaa-0000 00:00:00 ".get(at) {
        Some(b'0') => byte.is_ascii_digit(),
        Some(b'A' | b'a') => byte.is_ascii_alphabetic(),
        fixed => fixed == Some(byte),
    };
    let (date, zone) = time.split_at_checked(21)?;
    if !date.iter().enumerate().all(|(at, byte)| is_time(at, byte)) {
        return None;
    }
    let end = zone.iter().position(|byte| b"]\n".contains(byte))?;
    zone.get(end..)?.strip_prefix(b"] ")
}

fn level_of(text: &[u8]) -> LogLevel {
    if text.starts_with(b"PHP Fatal error: ") || text.starts_with(b"PHP Parse error: ") {
        LogLevel::Error
    } else {
        LogLevel::Warning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Vec<String> {
        messages(bytes)
            .iter()
            .map(|message| String::from_utf8_lossy(&message.text).into_owned())
            .collect()
    }

    #[test]
    fn each_message_of_phps_error_log_is_one_with_all_its_lines() {
        let log = b"[27-Nov-2026 21:14:28 UTC] one\n[27-Nov-2026 21:14:28 Europe/Berlin] PHP Fatal error:  Uncaught \
            E\nStack trace:\n#0 [internal function]: f()\n[1] x\n[27-Nov-2026 21:14:28 +02:00] \n";
        let expected = [
            "one\n",
            "PHP Fatal error:  Uncaught E\nStack trace:\n#0 [internal function]: f()\n[1] x\n",
            "\n",
        ];
        assert_eq!(texts(log), expected);
        let levels: Vec<_> = messages(log).iter().map(|message| message.level).collect();
        let (error, warning) = (LogLevel::Error, LogLevel::Warning);
        assert_eq!(levels, [warning, error, warning]);
    }

    #[test]
    fn what_is_no_time_belongs_to_the_message() {
        for line in [
            "",
            "[",
            "[]",
            "x\n",
            "[27-Nov-2026 21:14:28 UTC\n] x",
            "[2x-Nov-2026 21:14:28 UTC] x",
        ] {
            assert_eq!(without_time(line.as_bytes()), None, "{line}");
            assert_eq!(texts(line.as_bytes()).concat(), line);
        }
    }
}
