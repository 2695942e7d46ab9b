//! What a developer sees in the terminal: progress if there is one, errors always.

use std::env;
use std::io::{self, IsTerminal, Write};

use crate::diagnostics::without_escapes;

/// Standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevTerminal {
    is_terminal: bool,
    has_colours: bool,
}

impl DevTerminal {
    pub(crate) fn of_process() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let no_colours = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_terminal,
            has_colours: is_terminal && !no_colours,
        }
    }

    pub(crate) fn has_colours(self) -> bool {
        self.has_colours
    }

    /// Shows a line about the progress of the work, on a terminal.
    pub(crate) fn progress(self, line: &str) {
        if self.is_terminal {
            self.write(line);
        }
    }

    /// Shows text, which may have escape sequences for colours.
    pub(crate) fn write(self, text: &str) {
        let text = text.trim_end();
        let mut output = io::stderr().lock();
        // The reader of standard error may be gone.
        let _ = if self.has_colours {
            writeln!(output, "{text}")
        } else {
            writeln!(output, "{}", without_escapes(text))
        };
    }
}
