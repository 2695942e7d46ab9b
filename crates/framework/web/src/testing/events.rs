//! `TestEvent`: the events of a stream, as a browser reads them (HTML standard section 9.2.6).

use std::collections::VecDeque;

/// A Server-Sent Event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestEvent {
    /// Its name; empty stands for `message`.
    pub name: String,
    /// Its data, with a line feed between lines.
    pub data: String,
    /// The last id until then.
    pub id: String,
}

/// Turns bytes into events.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    /// The bytes of a line whose end did not come yet.
    rest: Vec<u8>,
    lines: Vec<String>,
    name: String,
    id: String,
    events: VecDeque<TestEvent>,
}

impl EventReader {
    /// The next event that is complete.
    pub(super) fn next(&mut self) -> Option<TestEvent> {
        self.events.pop_front()
    }

    /// Reads bytes. A line ends with a line feed.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = String::from_utf8_lossy(&self.rest).into_owned();
                    self.rest.clear();
                    self.read_line(line.trim_end_matches('\r'));
                }
                byte => self.rest.push(*byte),
            }
        }
    }

    fn read_line(&mut self, line: &str) {
        if line.is_empty() {
            let lines = std::mem::take(&mut self.lines);
            let name = std::mem::take(&mut self.name);
            if !lines.is_empty() {
                self.events.push_back(TestEvent {
                    name,
                    data: lines.join("\n"),
                    id: self.id.clone(),
                });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "data" => self.lines.push(value),
            "event" => self.name = value,
            "id" => self.id = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_across_pieces() {
        let stream =
            ": beat\n\nid: 1\nevent: price\ndata: a\r\ndata:b\n\nretry: 5\n\ndata\n\ndata: half";
        for size in [1, 2, 7, stream.len()] {
            let mut reader = EventReader::default();
            stream
                .as_bytes()
                .chunks(size)
                .for_each(|piece| reader.read(piece));
            let event = |name: &str, data: &str| TestEvent {
                name: name.into(),
                data: data.into(),
                id: "1".into(),
            };
            assert_eq!(reader.next(), Some(event("price", "a\nb")));
            assert_eq!(reader.next(), Some(event("", "")));
            assert_eq!(reader.next(), None);
        }
    }
}
