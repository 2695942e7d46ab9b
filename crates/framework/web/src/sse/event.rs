//! `Event`: a server-sent event, and its encoding (HTML Living Standard section 9.2.6).

use std::fmt::Display;
use std::time::Duration;

use apus_http::EventLines;
use bytes::Bytes;
use serde::Serialize;

/// An event, a comment or a reconnection time.
///
/// Scripts get only events with [data](Event::data).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event(EventLines);

/// An event in its encoded form. Clones share their memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedEvent(Bytes);

impl Event {
    /// An empty event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds data. The script gets its lines with `\n` between them. A second call starts a new line.
    #[must_use]
    pub fn data(mut self, data: impl AsRef<str>) -> Self {
        self.0.data(data.as_ref());
        self
    }

    /// Adds data in JSON (RFC 8259), which has no line breaks.
    ///
    /// # Errors
    /// The value cannot be serialized as JSON, for example a map whose keys are not text.
    pub fn json(self, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.data(serde_json::to_string(value)?))
    }

    /// Sets the type, which scripts pass to `addEventListener`. Default: `message`. Line breaks are not
    /// allowed in it and left out.
    #[must_use]
    pub fn event(mut self, name: impl AsRef<str>) -> Self {
        self.0.field("event", name.as_ref());
        self
    }

    /// Sets the id, which the client sends in `Last-Event-ID` when it reconnects. Line breaks and NUL are not
    /// allowed in it and left out.
    #[must_use]
    pub fn id(mut self, id: impl Display) -> Self {
        self.0.field("id", id);
        self
    }

    /// Sets how long the client waits before it reconnects, in whole milliseconds.
    #[must_use]
    pub fn retry(mut self, after: Duration) -> Self {
        self.0.field("retry", after.as_millis());
        self
    }

    /// Adds a comment, which clients ignore.
    #[must_use]
    pub fn comment(mut self, text: impl AsRef<str>) -> Self {
        self.0.comment(text.as_ref());
        self
    }
}

/// An event with this data.
impl From<&str> for Event {
    fn from(data: &str) -> Self {
        Self::new().data(data)
    }
}

/// An event with this data.
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
    /// The encoded bytes.
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
