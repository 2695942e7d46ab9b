//! `LogBuffer`: the log of a test.

use std::io;
use std::sync::{Arc, Mutex};

/// What is logged.
#[derive(Clone, Default)]
pub struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    /// All lines until now.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Runs something whose lines of the log it gets.
    pub fn logs(&self, run: impl FnOnce()) {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run);
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of this thread while `run` runs.
pub fn logged(run: impl FnOnce()) -> String {
    let buffer = LogBuffer::default();
    buffer.logs(run);
    buffer.text()
}
