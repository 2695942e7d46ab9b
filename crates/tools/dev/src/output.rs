//! What the application writes to standard error: shown, and kept for pages about it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::net::unix::pipe;
use tokio::task::spawn_local;

use crate::panics::{PanicParser, ReportedPanic};

/// The lines that are kept.
const KEPT_LINES: usize = 200;

/// The longest line that is kept whole, in bytes.
const MAX_LINE: usize = 16 * 1024;

/// The standard error of a process.
pub(crate) struct ProcessOutput {
    /// The end of the pipe that is read. It does not block.
    pipe: OwnedFd,
    /// Shared with the workers, which read it, too: a report of a panic is in the pipe before the response to its
    /// request is sent, so it is read before that response is shown.
    lines: Mutex<OutputLines>,
}

#[derive(Default)]
struct OutputLines {
    unfinished: Vec<u8>,
    last: VecDeque<String>,
    panics: PanicParser,
}

impl ProcessOutput {
    /// Reads a pipe until its end.
    pub(crate) fn read(pipe: OwnedFd) -> io::Result<Arc<Self>> {
        let receiver = pipe::Receiver::from_owned_fd(pipe.try_clone()?)?;
        let output = Arc::new(Self {
            pipe,
            lines: Mutex::default(),
        });
        let reader = Arc::clone(&output);
        spawn_local(async move {
            while receiver.readable().await.is_ok() {
                let mut lines = reader.lock();
                let mut buffer = [0; 8192];
                loop {
                    match receiver.try_read(&mut buffer) {
                        Ok(0) => return,
                        Ok(count) => lines.add(buffer.get(..count).unwrap_or_default()),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(_) => return,
                    }
                }
            }
        });
        Ok(output)
    }

    /// The last lines.
    pub(crate) fn last_lines(&self) -> String {
        let drained = self.drain();
        let lines: Vec<_> = drained.last.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    /// The first panic since this time. Each is returned once.
    pub(crate) fn take_panic_since(&self, start: Instant) -> Option<ReportedPanic> {
        self.drain().panics.take_since(start)
    }

    /// Reads what is there.
    fn drain(&self) -> MutexGuard<'_, OutputLines> {
        let mut lines = self.lock();
        let mut buffer = [0; 8192];
        loop {
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(0) => break,
                Ok(count) => lines.add(buffer.get(..count).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                // There is no more yet, or the pipe has failed.
                Err(_) => break,
            }
        }
        lines
    }

    fn lock(&self) -> MutexGuard<'_, OutputLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputLines {
    fn add(&mut self, bytes: &[u8]) {
        // The reader of standard error may be gone.
        let _ = io::stderr().write_all(bytes);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.unfinished.len() < MAX_LINE {
                self.unfinished.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.unfinished);
                let line = String::from_utf8_lossy(&line);
                let line = line.trim_end_matches(['\n', '\r']);
                self.panics.line(line);
                if self.last.len() == KEPT_LINES {
                    self.last.pop_front();
                }
                self.last
                    .push_back(crate::diagnostics::without_escapes(line));
            }
        }
    }
}
