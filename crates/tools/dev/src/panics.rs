//! Panics of the application, as the standard library reports them on standard error.

use std::collections::VecDeque;
use std::time::Instant;

/// The panics that are kept until a response asks for them.
const KEPT_PANICS: usize = 32;

/// The longest message or backtrace, in bytes.
const MAX_TEXT: usize = 256 * 1024;

/// A panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedPanic {
    /// The file, line and column.
    pub(crate) place: String,
    /// The message.
    pub(crate) message: String,
    /// The frames, the innermost first.
    pub(crate) backtrace: String,
    at: Instant,
}

/// Finds reports of panics in lines.
#[derive(Debug, Default)]
pub(crate) struct PanicParser {
    current: Option<UnfinishedPanic>,
    finished: VecDeque<ReportedPanic>,
}

#[derive(Debug)]
struct UnfinishedPanic {
    panic: ReportedPanic,
    is_in_backtrace: bool,
}

impl PanicParser {
    /// Reads the next line.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(place) = place(line) {
            self.finish();
            self.current = Some(UnfinishedPanic {
                panic: ReportedPanic {
                    place: place.to_owned(),
                    message: String::new(),
                    backtrace: String::new(),
                    at: Instant::now(),
                },
                is_in_backtrace: false,
            });
            return;
        }
        let Some(current) = &mut self.current else {
            return;
        };
        if line == "stack backtrace:" {
            current.is_in_backtrace = true;
            return;
        }
        // The frames are indented, and a note about the variable RUST_BACKTRACE follows the report.
        let is_over = line.starts_with("note: ") && line.contains("`RUST_BACKTRACE=")
            || current.is_in_backtrace && !line.starts_with(' ');
        if is_over {
            self.finish();
            return;
        }
        let text = if current.is_in_backtrace {
            &mut current.panic.backtrace
        } else {
            &mut current.panic.message
        };
        if text.len() + line.len() < MAX_TEXT {
            text.push_str(line);
            text.push('\n');
        }
    }

    /// The first panic since this time. Each is returned once.
    pub(crate) fn take_since(&mut self, start: Instant) -> Option<ReportedPanic> {
        self.finish();
        let found = self.finished.iter().position(|panic| panic.at >= start)?;
        self.finished.remove(found)
    }

    fn finish(&mut self) {
        if let Some(UnfinishedPanic { mut panic, .. }) = self.current.take() {
            panic.message.truncate(panic.message.trim_end().len());
            if self.finished.len() == KEPT_PANICS {
                self.finished.pop_front();
            }
            self.finished.push_back(panic);
        }
    }
}

/// The place in `thread 'main' (4711) panicked at src/main.rs:2:5:`.
fn place(line: &str) -> Option<&str> {
    let (thread, place) = line.split_once(" panicked at ")?;
    let is_report = thread.starts_with("thread '");
    is_report.then(|| place.strip_suffix(':')).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
listening
thread 'apus-worker-0' (41) panicked at src/lib.rs:38:5:
no such user: \"a\"
in the second line
stack backtrace:
   0: __rustc::rust_begin_unwind
   1: my_shop::home
             at ./src/lib.rs:38:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
another line

thread 'apus-worker-1' panicked at /deps/src/x.rs:1:2:
short
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
";

    #[test]
    fn reports_have_place_message_and_backtrace() {
        let start = Instant::now();
        let mut parser = PanicParser::default();
        REPORT.lines().for_each(|line| parser.line(line));
        let first = parser.take_since(start).unwrap();
        assert_eq!(first.place, "src/lib.rs:38:5");
        assert_eq!(first.message, "no such user: \"a\"\nin the second line");
        assert!(
            first
                .backtrace
                .ends_with("my_shop::home\n             at ./src/lib.rs:38:5\n")
        );
        let second = parser.take_since(start).unwrap();
        assert_eq!(
            (second.place.as_str(), second.message.as_str()),
            ("/deps/src/x.rs:1:2", "short")
        );
        assert_eq!(second.backtrace, "");
        assert_eq!(parser.take_since(start), None);
    }

    #[test]
    fn a_panic_before_the_request_is_not_its_own() {
        let mut parser = PanicParser::default();
        REPORT.lines().for_each(|line| parser.line(line));
        assert_eq!(parser.take_since(Instant::now()), None);
    }
}
