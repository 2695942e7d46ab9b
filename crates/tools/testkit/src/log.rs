//! `LogBuffer`: the log of a test.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::Dispatch;

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
        keep_places_wanted();
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

/// Keeps two subscribers of the whole process that want every place that logs.
///
/// `tracing` remembers for each place whether a subscriber wants it. As long as a process has one subscriber, it asks the subscriber
/// of the thread that reaches the place first (`Rebuilder::JustOne` of tracing-core). If another test does, which has none, nobody
/// seems to want the place, and its lines are missing in the log of this test.
fn keep_places_wanted() {
    static SUBSCRIBERS: OnceLock<[Dispatch; 2]> = OnceLock::new();
    SUBSCRIBERS.get_or_init(|| {
        [(); 2].map(|()| Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish()))
    });
}

/// The log of this thread while `run` runs.
pub fn logged(run: impl FnOnce()) -> String {
    let buffer = LogBuffer::default();
    buffer.logs(run);
    buffer.text()
}
