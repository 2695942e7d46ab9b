//! `Event`: a server-sent event, and its encoding (HTML Living Standard section 9.2.6).

use std::fmt::Display;
use std::time::Duration;

use apus_http::EventLines;
use bytes::Bytes;
use serde::Serialize;

/// An event, or a part of a stream that is none: a comment, a time to wait.
///
/// Only one with [data](Event::data) is given to scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event(EventLines);

/// An event as it is sent: clones share their memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedEvent(Bytes);

impl Event {
    /// An event that says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds data. Its lines come to the script as they are, with `\n` between them; a second call begins a
    /// new line.
    #[must_use]
    pub fn data(mut self, data: impl AsRef<str>) -> Self {
        self.0.data(data.as_ref());
        self
    }

    /// Adds data in JSON (RFC 8259), which has no line breaks.
    ///
    /// # Errors
    /// The value has no form in JSON, as a map whose keys are not text.
    pub fn json(self, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.data(serde_json::to_string(value)?))
    }

    /// The type, for which a script listens by `addEventListener`; `message` if this is not called. Line
    /// breaks, which it cannot hold, are left out.
    #[must_use]
    pub fn event(mut self, name: impl AsRef<str>) -> Self {
        self.0.field("event", name.as_ref());
        self
    }

    /// What the client says in `Last-Event-ID` when it comes back. Line breaks and NUL, which it cannot hold,
    /// are left out.
    #[must_use]
    pub fn id(mut self, id: impl Display) -> Self {
        self.0.field("id", id);
        self
    }

    /// How long the client waits before it comes back, in whole milliseconds.
    #[must_use]
    pub fn retry(mut self, after: Duration) -> Self {
        self.0.field("retry", after.as_millis());
        self
    }

    /// Adds a comment, which clients pass over.
    #[must_use]
    pub fn comment(mut self, text: impl AsRef<str>) -> Self {
        self.0.comment(text.as_ref());
        self
    }
}

/// An event of data.
impl From<&str> for Event {
    fn from(data: &str) -> Self {
        Self::new().data(data)
    }
}

/// An event of data.
impl From<String> for Event {
    fn from(data: String) -> Self {
        Self::new().data(data)
    }
}

impl From<Event> for EncodedEvent {
    fn from(event: Event) -> Self {
        Self(event.0.finish())
    }
}

impl From<&str> for EncodedEvent {
    fn from(data: &str) -> Self {
        Event::from(data).into()
    }
}

impl From<String> for EncodedEvent {
    fn from(data: String) -> Self {
        Event::from(data).into()
    }
}

impl EncodedEvent {
    /// What is sent.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_lines() {
        let event = Event::new()
            .id("7")
            .event("price")
            .retry(Duration::from_millis(1500))
            .comment("not for scripts")
            .data("gold")
            .json(&["71.20"])
            .unwrap();
        assert_eq!(
            EncodedEvent::from(event).into_bytes(),
            "id: 7\nevent: price\nretry: 1500\n: not for scripts\ndata: gold\ndata: [\"71.20\"]\n\n"
        );
    }
}
