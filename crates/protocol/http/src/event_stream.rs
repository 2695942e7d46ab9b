//! The format `text/event-stream` (HTML Living Standard sections 9.2.5 and 9.2.6).

use std::fmt::{self, Write};

use bytes::Bytes;
use memchr::memchr2;

/// The lines of an event. A value can neither begin another field nor end the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLines(String);

impl EventLines {
    /// Writes a `data` line for each line of a text; CR, LF and CRLF end one.
    pub fn data(&mut self, text: &str) {
        self.each_line("data: ", text);
    }

    /// Writes a comment line for each line of a text. Clients ignore comments.
    pub fn comment(&mut self, text: &str) {
        self.each_line(": ", text);
    }

    /// Writes a field of one line, such as `event` or `id`. Line breaks and NUL, which it cannot hold, are left
    /// out.
    pub fn field(&mut self, name: &'static str, value: impl fmt::Display) {
        self.0.push_str(name);
        self.0.push_str(": ");
        // Writing to a string does not fail.
        let _ = write!(WithoutBreaks(&mut self.0), "{value}");
        self.0.push('\n');
    }

    /// The event with the empty line that ends it.
    pub fn finish(mut self) -> Bytes {
        self.0.push('\n');
        self.0.into()
    }

    fn each_line(&mut self, name: &str, text: &str) {
        let mut rest = Some(text);
        while let Some(text) = rest {
            let end = memchr2(b'\r', b'\n', text.as_bytes());
            let (line, after) = text.split_at(end.unwrap_or(text.len()));
            // Room for this line and for the empty line that ends the event.
            self.0
                .reserve(name.len().saturating_add(line.len()).saturating_add(2));
            self.0.push_str(name);
            self.0.push_str(line);
            self.0.push('\n');
            rest = after
                .strip_prefix("\r\n")
                .or_else(|| after.strip_prefix(['\r', '\n']));
        }
    }
}

struct WithoutBreaks<'a>(&'a mut String);

impl Write for WithoutBreaks<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kept = text.chars().filter(|char| !"\r\n\0".contains(*char));
        self.0.extend(kept);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_data_is_one_whatever_ends_it() {
        for (data, lines) in [
            ("", &[""][..]),
            ("one", &["one"]),
            ("one\ntwo", &["one", "two"]),
            ("one\r\ntwo\rthree\n", &["one", "two", "three", ""]),
            ("\n\r", &["", "", ""]),
            (" kept", &[" kept"]),
            ("id: 1\n\ndata: 2", &["id: 1", "", "data: 2"]),
        ] {
            let mut event = EventLines::default();
            event.data(data);
            let lines: String = lines.iter().map(|line| format!("data: {line}\n")).collect();
            assert_eq!(event.finish(), format!("{lines}\n"), "{data:?}");
        }
    }

    #[test]
    fn a_name_or_an_id_cannot_begin_a_line_of_its_own() {
        let mut event = EventLines::default();
        event.field("event", "a\ndata: b");
        event.field("id", "1\r\n\n\x002");
        event.comment("seen\nby nobody");
        event.data("x");
        let lines = "event: adata: b\nid: 12\n: seen\n: by nobody\ndata: x\n\n";
        assert_eq!(event.finish(), lines);
    }
}
