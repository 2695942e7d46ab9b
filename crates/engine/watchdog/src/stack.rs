//! The stack of a thread, with names and lines.

use std::fmt;
use std::path::PathBuf;

/// What the name of the function that began the work contains, whose callers are of no interest.
const OUTERMOST: &str = "apus_watchdog::run_watched";
/// What the name of the function contains that noted the frames: the frames of the signal are up to it.
const INNERMOST: &str = "capture_this_thread";

/// Where a thread was: the innermost function first.
#[derive(Debug)]
pub struct Stack {
    frames: Vec<StackFrame>,
}

/// A function that was called, and where it was.
#[derive(Debug)]
struct StackFrame {
    function: String,
    place: Option<(PathBuf, u32)>,
}

impl Stack {
    pub(crate) fn of_addresses(addresses: Vec<usize>) -> Self {
        let mut frames = Vec::new();
        for address in addresses {
            backtrace::resolve(address as *mut _, |symbol| {
                let function = symbol.name().map(|name| format!("{name:#}"));
                frames.push(StackFrame {
                    function: function.unwrap_or_else(|| format!("{address:#x}")),
                    place: symbol
                        .filename()
                        .zip(symbol.lineno())
                        .map(|(file, line)| (file.to_owned(), line)),
                });
            });
        }
        if let Some(position) = frames
            .iter()
            .rposition(|frame| frame.function.contains(INNERMOST))
        {
            // The next one is the return from the signal.
            frames.drain(..(position + 2).min(frames.len()));
        }
        if let Some(position) = frames
            .iter()
            .position(|frame| frame.function.contains(OUTERMOST))
        {
            frames.truncate(position);
        }
        Self { frames }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, StackFrame { function, place }) in self.frames.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{number:4}: {function}")?;
            if let Some((file, line)) = place {
                write!(f, "\n             at {}:{line}", file.display())?;
            }
        }
        Ok(())
    }
}
